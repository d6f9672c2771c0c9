"""Epoch of the controller: its settings, its phase with the reason for it, and its measurements.

Its phases are training, evaluating, stopping and over.

Tests: `tests/populations/controller/state/test_measured.py`, and `test_goals.py` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from arena.config import LearnerSetup
from arena.types import Digest, PolicyId, WeightsRef
from arena.wire.messages import Stop
from populations.config.run_config import RunConfig
from populations.controller.indexes.alert_kinds import Alerts
from populations.controller.state.events import Now
from populations.controller.state.leases import Crew, MatchTimes
from populations.controller.state.transaction import Transaction
from populations.core import Exploit, Explore, Matchmaker, Thinning
from populations.hyperparameter_schedules import ScheduledValues
from populations.matchmaking.external_players import ExternalPlayer
from populations.records.rows import AssignmentRow, PolicyRow, RunRow
from populations.records.tables import Tables

PhaseName = Literal["training", "evaluating", "stopping", "over"]


class Countdown(Struct, kw_only=True):
    """Time for which a run is evaluated without training, PBT and new ghosts.

    Attributes:
        duration_s: Seconds that it lasts.
        began_s: Time when it began; None: it has not.
        left_s: Seconds left; at 0 or below no more evaluations are given out.
    """

    duration_s: float
    began_s: float | None = None
    left_s: float = 0.0

    def __post_init__(self) -> None:
        self.left_s = self.duration_s

    def advance(self, now_s: float, *, may_begin: bool) -> None:
        """Update the seconds left; time does not count before it may begin, as processes start."""
        if self.began_s is None and may_begin:
            self.began_s = now_s
        if self.began_s is not None:
            self.left_s = self.duration_s - (now_s - self.began_s)


class Phase(Struct, kw_only=True):
    """Phase of an epoch and its times, from its beginning to its end.

    Attributes:
        crew: Learners, which are sent a Stop at the end.
        name: ``training``; ``evaluating`` (nothing is trained any more, final matches are
            played); ``stopping`` (nothing new is given out); ``over``.
        reason: Why the phase is not ``training``.
        evaluation_only: Time left of an epoch that only evaluates; None: it trains.
        finals: Time left of the final matches; None: training goes on, or seconds decide nothing.
        interrupted: Whether a user requested the stop, so that the run can be resumed.
        failed: Whether the run cannot go on.
        stopping_s: When learners were sent a Stop.
        started_s: When this epoch began, on the controller's clock.
        elapsed_before_s: Seconds of the run before this epoch.
        last_event_s: When the controller last processed an event.
        share_reached: Evaluation's share of learner seconds when training ended; None before.
    """

    crew: Crew
    name: PhaseName = "training"
    reason: str = ""
    evaluation_only: Countdown | None = None
    finals: Countdown | None = None
    interrupted: bool = False
    failed: bool = False
    stopping_s: float = 0.0
    started_s: float = 0.0
    elapsed_before_s: float = 0.0
    last_event_s: float = 0.0
    share_reached: float | None = None

    @property
    def countdown(self) -> Countdown | None:
        """Return the time limit of evaluation without training; None: there is no limit."""
        return self.finals if self.evaluation_only is None else self.evaluation_only

    def elapsed_s(self, now: Now) -> float:
        """Return the elapsed seconds of the run, over all epochs."""
        return self.elapsed_before_s + now.monotonic_s - self.started_s

    def trained_s(self, now: Now, run: RunRow) -> float:
        """Return the run's seconds of training, over all epochs; valid only while it trains."""
        return self.elapsed_s(now) - run.closing_s

    def is_for_now(self, row: AssignmentRow) -> bool:
        """Return whether this epoch gives out an open assignment; some epochs only evaluate."""
        return self.evaluation_only is None or row.kind == "evaluate"

    def stop(self, tx: Transaction, *, reason: str, interrupted: bool) -> None:
        """Stop giving out assignments, and let learners publish the work that they have done."""
        # A later stop must not replace the reason of the first.
        if self.name in ("stopping", "over"):
            return
        self.name = "stopping"
        self.reason = reason
        self.interrupted = interrupted
        # The time after which learners are killed counts from here.
        self.stopping_s = tx.now.monotonic_s
        for learner_id in self.crew.learners:
            tx.send(learner_id, Stop(grace_s=self.crew.patience.grace_s))

    def fail(self, tx: Transaction, *, reason: str) -> None:
        """End the run as failed, because it cannot go on."""
        if self.name == "over":
            return
        self.stop(tx, reason=reason, interrupted=False)
        # The first of several failures is the reason; it replaces that of a requested stop.
        if not self.failed:
            self.reason, self.interrupted, self.failed = reason, False, True


class Settings(Struct, kw_only=True):
    """Settings and rules of a run, constant except for external players with damaged weights.

    Attributes:
        config: The resolved configuration.
        setup: Setup of learners; its digests must match theirs.
        matchmaker: Rule that draws opponents.
        external_players: Bots and imported policies, by the population that they play for.
        exploit: By population, the rule that decides which policy copies which.
        explore: By population, the rule that changes hyperparameters.
        thinning: Rule that decides which ghosts of a full pool are removed.
        scheduled: By population, hyperparameters that follow agent steps.
        initial_weights: Another run's weights that policies start from, by population.
        immigrants: Other runs' weights, by key, for immigration and for resets of exploiters.
        store: Digest of the store's id, which learners must report; None: it is not checked.
        versions: Versions of packages that the run records.
    """

    config: RunConfig
    setup: LearnerSetup
    matchmaker: Matchmaker
    external_players: Mapping[str, tuple[ExternalPlayer, ...]]
    exploit: Mapping[str, Exploit]
    explore: Mapping[str, Explore]
    thinning: Thinning
    scheduled: Mapping[str, ScheduledValues]
    initial_weights: Mapping[str, WeightsRef]
    immigrants: Mapping[str, WeightsRef]
    store: Digest | None
    versions: Mapping[str, str]


HeldPoints = dict[PolicyId, tuple[int, Mapping[str, float]]]
"""Points of training curves that are not written yet, by policy: agent steps, and metrics."""


class Curves(Struct):
    """Points of curves that were written. Owned by the controller's thread.

    Attributes:
        fitted: Last evaluation tally of each population's last fit.
        held: Last training point of each policy, if it was not written yet.
        written: By policy, the last point of its standing: weights, their number of matches, and
            metrics.
        rated_at: By policy, agent steps of the weights in that point.
        run_at_s: Time of the run's last point; minus infinity at first, so that the first event
            writes one.
        run_at_steps: Agent steps of the run's last point.
        run_shown_at: Agent steps of the run's last point that an earlier controller wrote.
        is_resumed: Whether an earlier controller may have ended before it wrote all standings.
        unwritten: Training assignments whose points an earlier controller did not write.
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
    """Measurements of an epoch; its first values come from the journal's rows.

    Attributes:
        settings: Settings of the run; in deterministic mode measured times may decide nothing.
        tables: The journal's rows, which have values for what is not measured yet.
        phase: Phase of the epoch, which an alert may end.
        match_times: Time of the last evaluations of all learners.
        alerts: Warnings for users; the active ones have rows.
        curves: Points of curves that were written.
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
        known = [
            row.episode_length
            for row in self.tables.policies.values()
            if row.population == policy.population and row.episode_length > 0.0
        ]
        return sum(known) / len(known) if known else self.episode_length
