"""What the controller knows: the journal's rows, what follows from them, and who is there.

Data, and what is said of it in one line. `populations.controller.machine` changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from arena.config import LearnerSetup
from arena.types import AssignmentId, LearnerId, WeightsRef
from arena.wire.messages import Stop
from populations.config import RunConfig
from populations.controller.commands import FitRatings, SendMessage
from populations.controller.events import (
    Now,
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
        failed_evaluations: Evaluations in a row that failed or took their learner with them.
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
    failed_evaluations: int = 0

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

    def refit(self, tx: Transaction) -> None:
        """Have ratings fitted if evaluation matches came in since the last fit."""
        if not self.fitting and self.ratings_are_stale():
            self.fitting = True
            tx.commands.append(FitRatings(fit=fit_input(self.league, self.tables)))

    def ratings_are_stale(self) -> bool:
        """Whether evaluation matches came in since the last fit."""
        return self.league.last_evaluation_sequence > self.fitted

    def settle(self, learner_id: LearnerId) -> None:
        """A learner did its work: its slot's crashes are no longer in a row."""
        slot = self.learners[learner_id].slot
        if slot is not None:
            self.slots[slot].crashes = 0

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
