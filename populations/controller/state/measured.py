"""Measurements of an epoch: times of matches, alerts, and points of curves."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from arena.types import Digest, PolicyId
from populations.controller.indexes.raised_alerts import Alerts
from populations.controller.state.clocks import MatchTimes
from populations.controller.state.phase import Phase
from populations.controller.state.settings import Settings
from populations.records.rows import AssignmentRow, PolicyRow
from populations.records.tables import Tables

HeldPoints = dict[PolicyId, tuple[int, Mapping[str, float]]]
"""Training points by policy: agent steps, and metrics."""


class Curves(Struct):
    """Points of curves that were written. Owned by the controller's thread.

    Attributes:
        fitted: Last evaluation tally of each population's last fit.
        held: Last training point of each policy, where it was left out.
        written: Which weights' points were written last, after how many matches, and what they
            were.
        rated_at: Agent steps of the weights whose points were written last.
        run_at_s: When the run's last point was written; before any time, so that the first event
            writes one.
        run_at_steps: Agent steps of the run's last point.
        run_shown_at: Agent steps of the run's last point that an earlier controller wrote.
        is_resumed: Whether standings may be missing that an earlier controller did not come to
            write.
        unwritten: Training assignments whose points an earlier controller did not come to write.
    """

    fitted: dict[str, int] = {}
    held: HeldPoints = {}
    written: dict[PolicyId, tuple[Digest, int, Mapping[str, float]]] = {}
    rated_at: dict[PolicyId, int] = {}
    run_at_s: float = float("-inf")
    run_at_steps: int | None = None
    run_shown_at: int | None = None
    is_resumed: bool = False
    unwritten: list[AssignmentRow] = []


class Measured(Struct, kw_only=True):
    """Measurements of an epoch. It begins with sums of the journal's rows, and with its alerts.

    Attributes:
        settings: Settings of the run, in which measured times may decide nothing.
        tables: The journal's rows, which tell what is not measured yet.
        phase: How far the epoch is, which an alert may end.
        match_times: Time of the last evaluations of all learners.
        alerts: Warnings for people; of those that hold there are rows.
        curves: Points written of each policy.
        spent_before_s: Learner seconds of training and of evaluation before this epoch.
        episode_length: Calls of ``step`` in an episode of random play at launch; 0: not known.
    """

    settings: Settings
    tables: Tables
    phase: Phase
    match_times: MatchTimes
    alerts: Alerts
    curves: Curves
    spent_before_s: tuple[float, float]
    episode_length: float = 0.0

    def expected_length(self, policy: PolicyRow) -> float:
        """Return the expected calls of ``step`` in an episode; 0: not known.

        It is the policy's own mean, else the mean of its population, else what was measured at
        launch.
        """
        if policy.episode_length > 0.0:
            return policy.episode_length
        # 0 is unknown.
        known = [
            row.episode_length
            for row in self.tables.policies.values()
            if row.population == policy.population and row.episode_length > 0.0
        ]
        return sum(known) / len(known) if known else self.episode_length
