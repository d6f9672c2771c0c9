"""Measurements of an epoch: times of matches, alerts, and points of curves."""

from __future__ import annotations

from dataclasses import dataclass

from populations.controller.indexes.curve_points import Curves
from populations.controller.indexes.raised_alerts import Alerts
from populations.controller.state.clocks import MatchTimes
from populations.records.rows import PolicyRow
from populations.records.tables import Tables


@dataclass(slots=True, kw_only=True)
class Measured:
    """Measurements of an epoch. It begins with sums of the journal's rows, and with its alerts.

    Attributes:
        match_times: Time of the last evaluations of all learners.
        alerts: Warnings for people; of those that hold there are rows.
        curves: Points written of each policy.
        spent_before_s: Learner seconds of training and of evaluation before this epoch.
        episode_length: Calls of ``step`` in an episode of random play at launch; 0: not known.
    """

    match_times: MatchTimes
    alerts: Alerts
    curves: Curves
    spent_before_s: tuple[float, float]
    episode_length: float = 0.0

    def expected_length(self, tables: Tables, policy: PolicyRow) -> float:
        """Return the expected calls of ``step`` in an episode; 0: not known.

        It is the policy's own mean, else the mean of its population, else what was measured at
        launch.
        """
        if policy.episode_length > 0.0:
            return policy.episode_length
        # 0 is unknown.
        known = [
            row.episode_length
            for row in tables.policies.values()
            if row.population == policy.population and row.episode_length > 0.0
        ]
        return sum(known) / len(known) if known else self.episode_length
