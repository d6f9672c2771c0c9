"""The controller as a pure state machine: an event comes in, a transaction comes out.

No socket, clock, file or global random. The server commits the transaction's rows and then, and
only then, carries out its commands; so whatever was acknowledged or sent is in the journal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from arena.config import LearnerSetup
from arena.types import AssignmentId, LearnerId, WeightsRef
from arena.wire.messages import Refuse, Stop
from populations.config import RunConfig
from populations.controller import assigning, ending, results, staffing
from populations.controller.commands import FitRatings, LinkGhosts, RemoveCheckpoints, SendMessage
from populations.controller.events import (
    AssignmentFailed,
    AssignmentFinished,
    CheckpointsRemoved,
    ControllerStarted,
    Event,
    GhostsLinked,
    HeartbeatReceived,
    LearnerExited,
    LearnerJoined,
    LearnerLeft,
    LearnerUnreachable,
    Now,
    RatingsFitted,
    StopRequested,
    StrangerSpoke,
    Ticked,
)
from populations.controller.learners import Learner, Patience, Slot
from populations.controller.slots import make_slots
from populations.controller.transaction import Transaction
from populations.core import Exploit, Explore, Matchmaker
from populations.league.league import League
from populations.matchmaking.make import make_matchmaker
from populations.pbt.exploit import make_exploit
from populations.pbt.explore import make_explore
from populations.ratings.fit import fit_input
from populations.storage.tables import Tables

Phase = Literal["training", "evaluating", "stopping", "over"]


@dataclass(slots=True)
class ControllerState:
    """Everything the controller knows.

    Durable: ``tables`` (equal to the journal after each commit) and ``league`` (their fold).
    Not durable: who is there, what they hold, and in which phase the end of the run is.

    Attributes:
        config: The resolved configuration.
        setup: What learners were set up with; its digests must match theirs.
        tables: The journal's rows.
        league: What follows from them.
        patience: How long to wait for learners.
        slots: Places of the launcher.
        matchmaker: Draws opponents.
        exploit: Decides who copies whom.
        explore: Decides what changes about hyperparameters.
        initial_weights: Another run's weights that policies start from, by population.
        learners: By id.
        phase: ``training``; ``evaluating`` (nothing is trained any more, final matches are
            played); ``stopping`` (nothing new is given out); ``over``.
        reason: Why the phase is not ``training``.
        interrupted: Whether somebody asked for the stop, so that the run can be resumed.
        failed: Whether the run cannot go on.
        fitting: Whether the worker thread fits ratings now.
        fitted: Sequence of the last evaluation tally that ratings cover.
        stopping_s: When learners were told to stop.
        started_s: When this epoch began, on the controller's clock.
        elapsed_before_s: Of the run before this epoch.
        last_tick_s: When the controller last looked at the clock.
        failed_starts: Processes in a row that ended without a Hello.
    """

    config: RunConfig
    setup: LearnerSetup
    tables: Tables
    league: League
    patience: Patience
    slots: list[Slot]
    matchmaker: Matchmaker
    exploit: Exploit
    explore: Explore
    initial_weights: dict[str, WeightsRef] = field(default_factory=dict)
    learners: dict[LearnerId, Learner] = field(default_factory=dict)
    phase: Phase = "training"
    reason: str = ""
    interrupted: bool = False
    failed: bool = False
    fitting: bool = False
    fitted: int = 0
    stopping_s: float = 0.0
    started_s: float = 0.0
    elapsed_before_s: float = 0.0
    last_tick_s: float = 0.0
    failed_starts: int = 0

    @property
    def is_cooperation(self) -> bool:
        """Whether the environment has one side, so that nobody has an opponent."""
        return len(self.setup.sides) == 1

    def held(self) -> dict[AssignmentId, LearnerId]:
        """Which learner has which open assignment."""
        return {
            held.assignment_id: learner_id
            for learner_id, learner in self.learners.items()
            for held in learner.held
        }

    def elapsed_s(self, now: Now) -> float:
        """Of the run, over all epochs."""
        return self.elapsed_before_s + now.monotonic_s - self.started_s

    def draw(self, tx: Transaction) -> np.random.Generator:
        """Randomness of the next decision: a function of the run's seed and the decision's number.

        So no random state is stored anywhere, and a resumed run draws what it would have drawn.
        """
        number = self.tables.run.decisions
        tx.count(decisions=1)
        return np.random.default_rng(np.random.SeedSequence([self.config.seed, 0, number]))

    def handle(self, event: Event, now: Now) -> Transaction:
        """Take in one event; what it changes is in memory when this returns."""
        tx = Transaction(tables=self.tables, now=now)
        self._take_in(event, tx)
        if self.phase != "over":
            ending.advance(self, tx)
            staffing.staff(self, tx)
            assigning.fill(self, tx)
        if tx.rows:
            tx.put(replace(self.tables.run, elapsed_s=self.elapsed_s(now)))
        return tx

    def _take_in(self, event: Event, tx: Transaction) -> None:
        match event:
            case ControllerStarted():
                self._start(tx)
            case LearnerJoined():
                staffing.join(self, tx, event)
            case HeartbeatReceived():
                learner = self.learners.get(event.learner)
                if learner is not None:
                    learner.hear(event.heartbeat, now_s=tx.now.monotonic_s)
            case AssignmentFinished():
                results.finish(self, tx, event)
            case AssignmentFailed():
                results.fail(self, tx, event)
            case LearnerLeft():
                staffing.lose(self, tx, event.learner, reason=f"left: {event.reason}")
            case LearnerUnreachable():
                reason = "an assignment could not be sent to it"
                staffing.lose(self, tx, event.learner, reason=reason, crash=True)
            case LearnerExited():
                staffing.exit_slot(self, tx, slot_index=event.slot, code=event.code)
            case StrangerSpoke():
                message = Refuse(reason="fenced: this learner was given up, or is of another epoch")
                tx.commands.append(SendMessage(learner=event.learner, message=message))
            case RatingsFitted():
                self._take_ratings(tx, event)
            case GhostsLinked():
                for player in event.players:
                    tx.put(replace(self.tables.ghosts[player], linked=True))
            case CheckpointsRemoved():
                for key in event.keys:
                    tx.put(replace(self.tables.checkpoints[key], state="deleted"))
            case StopRequested():
                self.stop(tx, reason=event.reason, interrupted=True)
            case Ticked():
                staffing.check(self, tx)

    def _start(self, tx: Transaction) -> None:
        now_s = tx.now.monotonic_s
        self.started_s = self.last_tick_s = now_s
        self.elapsed_before_s = self.tables.run.elapsed_s
        run = self.tables.run
        tx.put(replace(run, state="running", reason="", epoch=run.epoch + 1))
        tx.add_event("controller_started", epoch=run.epoch + 1, resumed=run.epoch > 0)
        unlinked = tuple(ghost for ghost in self.tables.ghosts.values() if not ghost.linked)
        if unlinked:
            tx.commands.append(LinkGhosts(ghosts=unlinked))
        doomed = tuple(row.key for row in self.tables.checkpoints.values() if row.state == "doomed")
        if doomed:
            tx.commands.append(RemoveCheckpoints(keys=doomed))
        self.fitted = min((row.num_tallies for row in self.tables.ratings.values()), default=0)
        self.refit(tx)

    def refit(self, tx: Transaction) -> None:
        """Have ratings fitted if evaluation matches came in since the last fit."""
        if not self.fitting and self.ratings_are_stale():
            self.fitting = True
            tx.commands.append(FitRatings(fit=fit_input(self.league, self.tables)))

    def ratings_are_stale(self) -> bool:
        """Whether evaluation matches came in since the last fit."""
        return self.league.last_evaluation_sequence > self.fitted

    def _take_ratings(self, tx: Transaction, event: RatingsFitted) -> None:
        self.fitting = False
        for row in event.rows:
            tx.put(row)
            self.fitted = row.num_tallies
        self.refit(tx)

    def stop(self, tx: Transaction, *, reason: str, interrupted: bool) -> None:
        """Give out nothing more and let learners publish what they have."""
        if self.phase in ("stopping", "over"):
            return
        self.phase = "stopping"
        self.reason = reason
        self.interrupted = interrupted
        self.stopping_s = tx.now.monotonic_s
        for learner_id in self.learners:
            message = Stop(grace_s=self.patience.grace_s)
            tx.commands.append(SendMessage(learner=learner_id, message=message))

    def fail(self, tx: Transaction, *, reason: str) -> None:
        """End the run: it cannot go on."""
        if self.phase == "over":
            return
        self.stop(tx, reason=reason, interrupted=False)
        self.failed = True


def make_state(
    config: RunConfig,
    setup: LearnerSetup,
    tables: Tables,
    *,
    patience: Patience | None = None,
    initial_weights: dict[str, WeightsRef] | None = None,
) -> ControllerState:
    """The controller of a run, from its configuration and its journal's rows."""
    half_life = config.payoffs.half_life_matches
    return ControllerState(
        config=config,
        setup=setup,
        tables=tables,
        league=League.fold(tables, seats=setup.seats, half_life_matches=half_life),
        patience=patience or Patience(),
        slots=make_slots(config),
        matchmaker=make_matchmaker(
            config.matchmaking.kind,
            weighting=config.matchmaking.weighting,
            latest_ratio=config.matchmaking.latest_ratio,
            window=config.ghosts.window,
        ),
        exploit=make_exploit(
            config.pbt.exploit,
            fraction=config.pbt.fraction,
            min_matches=config.pbt.min_matches,
            min_rating_gap=config.pbt.min_rating_gap,
            mutate_others=config.pbt.mutate_others,
        ),
        explore=make_explore(
            config.pbt.explore,
            perturb_factors=config.pbt.perturb_factors,
            resample_probability=config.pbt.resample_probability,
        ),
        initial_weights=initial_weights or {},
    )
