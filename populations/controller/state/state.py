"""State of the controller: the journal's rows, what follows from them, and the learners.

Data, and what is said of it in one line. `populations.controller.machine` changes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from arena.config import LearnerSetup
from arena.types import AssignmentId, Digest, LearnerId, PolicyId, WeightsRef, is_bot
from arena.wire.messages import Stop
from populations.config.run_config import RunConfig
from populations.controller.indexes.curve_points import Curves
from populations.controller.indexes.opponent_pool import OpponentPools
from populations.controller.indexes.pbt_members import MemberIndex
from populations.controller.indexes.pending_evaluations import PendingMatches
from populations.controller.indexes.player_strengths import StrengthIndex
from populations.controller.indexes.raised_alerts import Alerts, resumed
from populations.controller.indexes.rated_pins import RatedPins
from populations.controller.indexes.stop_goals import StopGoals
from populations.controller.indexes.training_queue import TrainingQueue
from populations.controller.state.clocks import Countdown, MatchTimes
from populations.controller.state.commands import SendMessage
from populations.controller.state.events import Now
from populations.controller.state.fits import Fits
from populations.controller.state.leases import (
    CLUSTER_LIVENESS_S,
    MAX_CRASHES,
    CarriedEpisodes,
    Fault,
    Learner,
    Patience,
    Pause,
    Slot,
    make_slots,
    slot_place,
)
from populations.controller.state.ledger import Ledger, Outcome
from populations.controller.state.transaction import Transaction
from populations.core import Exploit, Explore, Matchmaker, Thinning
from populations.hyperparameter_schedules import ScheduledValues
from populations.league.league import League
from populations.matchmaking.external_players import (
    ExternalPlayer,
    external_player_id,
    external_player_key,
)
from populations.matchmaking.make import make_matchmaker
from populations.pbt.make import make_exploit, make_explore
from populations.records import aggregates, rows
from populations.records.aggregates import Row
from populations.records.tables import Tables
from populations.storage.retention import Retention
from populations.thinning.make import make_thinning

Phase = Literal["training", "evaluating", "stopping", "over"]


@dataclass(slots=True)
class ControllerState:
    """Everything the controller knows.

    Durable: ``tables`` (equal to the journal after each commit) and ``league``, which asks them.
    Not durable: who is there, what they hold, and in which phase the end of the run is.

    Attributes:
        config: The resolved configuration.
        setup: Setup of learners; its digests must match theirs.
        tables: The journal's rows.
        league: Players and results, as the rows have them.
        retention: Which checkpoints are needed by what; a fold of the rows too.
        patience: How long to wait for learners.
        slots: Places of the launcher.
        matchmaker: Draws opponents.
        external_players: Players from outside, bots and imported ones, by population.
        opponent_pools: Possible opponents, in columns; an index over the rows.
        training_queue: Policies by how little they have trained; an index over the rows.
        members: Policies as PBT sees them; an index over the rows.
        strengths: Ratings of players and how sure they are; an index over the rows.
        pending_matches: Evaluation matches that ratings do not cover; an index over the rows.
        alerts: Warnings for people; of those that hold there are rows.
        curves: Points written of each policy.
        goals: Measurements that goals of ``stop`` ask for.
        rated_pins: Checkpoints that stay because of their rating.
        exploit: By population, decides who copies whom.
        explore: By population, decides what changes about hyperparameters.
        thinning: Decides which ghosts of a full pool go.
        scheduled: By population, hyperparameters that follow agent steps.
        initial_weights: Another run's weights that policies start from, by population.
        immigrants: Other runs' weights, by key, for immigration and for resets of exploiters.
        waiting: Policies with a pending decision for which nobody explores yet, first come first.
        exploring: Policies for which the worker thread explores.
        learners: By id.
        phase: ``training``; ``evaluating`` (nothing is trained any more, final matches are
            played); ``stopping`` (nothing new is given out); ``over``.
        reason: Why the phase is not ``training``.
        evaluation_only: Time left of an epoch that only evaluates; None: it trains.
        finals: Time left of the final matches; None: training goes on, or seconds decide nothing.
        interrupted: Whether somebody asked for the stop, so that the run can be resumed.
        failed: Whether the run cannot go on.
        fits: Fits of ratings.
        stopping_s: When learners were told to stop.
        started_s: When this epoch began, on the controller's clock.
        elapsed_before_s: Seconds of the run before this epoch.
        last_event_s: When the controller last took an event in.
        holders: Which learner has which assignment.
        episodes: Episodes in flight that learners hold, by each policy that learns in them.
        match_times: Time of the last evaluations of all learners.
        spent_before_s: Learner seconds of training and of evaluation before this epoch.
        share_reached: Evaluation's share when training ended; None before.
        gone: Learners that left or were given up, the last ones; they may not come back. With those
            that were out of reach, the failure that is withdrawn if they speak.
        refused_at_s: When a learner that was refused was last noted in the events.
        pause: While the disk refuses checkpoints or ghosts, or nothing finishes.
        failed_starts: Processes in a row that ended without a Hello.
        ledger: Failures, and whose fault they are.
        faults: Places whose learner was at fault and has done nothing right since.
        doublings: Doublings of a policy's budget, one for each assignment without an ended episode.
        store: Digest of the store's id, which learners must see; None: they are not asked.
        measured_length: Calls of ``step`` in an episode of random play at launch; 0: not known.
        versions: Versions of packages that the run records.
    """

    config: RunConfig
    setup: LearnerSetup
    tables: Tables
    league: League
    retention: Retention
    patience: Patience
    slots: list[Slot]
    matchmaker: Matchmaker
    external_players: Mapping[str, tuple[ExternalPlayer, ...]]
    exploit: Mapping[str, Exploit]
    explore: Mapping[str, Explore]
    thinning: Thinning
    initial_weights: dict[str, WeightsRef] = field(default_factory=dict)
    immigrants: Mapping[str, WeightsRef] = field(default_factory=dict)
    waiting: list[PolicyId] = field(default_factory=list)
    exploring: set[PolicyId] = field(default_factory=set)
    learners: dict[LearnerId, Learner] = field(default_factory=dict)
    phase: Phase = "training"
    reason: str = ""
    evaluation_only: Countdown | None = None
    finals: Countdown | None = None
    interrupted: bool = False
    failed: bool = False
    stopping_s: float = 0.0
    started_s: float = 0.0
    elapsed_before_s: float = 0.0
    last_event_s: float = 0.0
    holders: dict[AssignmentId, LearnerId] = field(default_factory=dict)
    episodes: dict[PolicyId, CarriedEpisodes] = field(default_factory=dict)
    match_times: MatchTimes = field(default_factory=MatchTimes)
    spent_before_s: tuple[float, float] = (0.0, 0.0)
    share_reached: float | None = None
    gone: dict[LearnerId, Outcome | None] = field(default_factory=dict)
    refused_at_s: float = float("-inf")
    pause: Pause | None = None
    failed_starts: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    faults: dict[str, Fault] = field(default_factory=dict)
    doublings: Counter[PolicyId] = field(default_factory=Counter)
    store: Digest | None = None
    measured_length: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    opponent_pools: OpponentPools = field(default_factory=OpponentPools)
    training_queue: TrainingQueue = field(default_factory=TrainingQueue)
    members: MemberIndex = field(default_factory=MemberIndex)
    strengths: StrengthIndex = field(default_factory=StrengthIndex)
    fits: Fits = field(init=False)
    pending_matches: PendingMatches = field(init=False)
    scheduled: Mapping[str, ScheduledValues] = field(init=False)
    alerts: Alerts = field(default_factory=Alerts)
    curves: Curves = field(default_factory=Curves)
    rated_pins: RatedPins = field(default_factory=RatedPins)
    goals: StopGoals = field(default_factory=StopGoals)

    def __post_init__(self) -> None:
        self.fits = Fits(self.league)
        self.scheduled = {
            name: population.scheduled for name, population in self.config.populations.items()
        }
        self.pending_matches = PendingMatches(
            seats=self.setup.seats,
            ranked=self.setup.ranked_populations,
            checkpoints=self.tables.checkpoints,
        )
        # Evaluations that the epoch before has left open.
        for row in self.tables.assignments.values():
            self._apply_evaluation(row)

    def begin(self, now: Now) -> Transaction:
        """Return a new transaction, each of whose rows feeds the indexes when it is put."""
        self.tables.begin()
        return Transaction(tables=self.tables, index=self.apply, now=now)

    def apply(self, row: Row) -> None:
        """Feed every index over the journal's rows with a row that was put into the tables.

        Nothing else feeds them, so this is the list of what depends on which rows. Results are not
        on it: the league puts those of tallies into the tables itself (`League.add_tally`).
        """
        match row:
            case rows.PolicyRow():
                self.opponent_pools.apply(row, self.tables)
                self.training_queue.apply(row, self.tables)
                self.members.apply(row)
                self.strengths.apply(row, teams=self.league.teams)
                self.retention.apply(row)
            case rows.CheckpointRow():
                # Walks for a standing that ended here may now go on to its parent.
                self.league.forget_standing(row.weights_digest)
                self.retention.apply(row)
            case rows.GhostRow():
                self.opponent_pools.apply(row, self.tables)
                self.strengths.apply(row, teams=self.league.teams)
                self.retention.apply(row)
            case rows.GameRow():
                self.retention.apply(row)
            case rows.AssignmentRow():
                self.training_queue.apply(row, self.tables)
                self.goals.add_assignment(row)
                self._apply_evaluation(row)
                self.retention.apply(row)
            case aggregates.RecordRow():
                self.members.apply(row)
                self.retention.apply(row)
            case rows.TallyRow():
                self.goals.add_tally(row, self.league.checkpoints)
            case rows.Deletion(row=(rows.GhostRow() | rows.GameRow()) as gone):
                self.retention.release(gone)
            case rows.Deletion(row=rows.CheckpointRow()):
                self.pending_matches.forget_lines()
            case _:
                pass  # the league makes pairs; ratings come with spreads that no row has

    def _apply_evaluation(self, row: rows.AssignmentRow) -> None:
        num_tallies = self.tables.num_tallies
        self.pending_matches.apply(row, num_tallies=num_tallies, estimate=self.fits.estimate)

    @property
    def countdown(self) -> Countdown | None:
        """Return the time that evaluation has when nothing is trained; None: no time is named."""
        return self.finals if self.evaluation_only is None else self.evaluation_only

    def elapsed_s(self, now: Now) -> float:
        """Return the seconds of the run, over all epochs."""
        return self.elapsed_before_s + now.monotonic_s - self.started_s

    def trained_s(self, now: Now) -> float:
        """Return the seconds in which the run trained, over all epochs, while it trains."""
        return self.elapsed_s(now) - self.tables.run.closing_s

    def draw(self, tx: Transaction) -> np.random.Generator:
        """Return the next decision's randomness, a function of the run's seed and its number."""
        return np.random.default_rng(np.random.SeedSequence(self.draw_words(tx)))

    def draw_words(self, tx: Transaction) -> list[int]:
        """Return the words that seed the next decision, for one that is drawn later."""
        # The counter is durable: a resumed run goes on with the next number.
        number = self.tables.run.decisions
        tx.count(decisions=1)
        # Stream 0 of the run's seed (`jobs.assignment_seed` has the others).
        return [self.config.seed, 0, number]

    @property
    def is_evolving(self) -> bool:
        """Return whether a decision of PBT waits for new hyperparameters."""
        return bool(self.waiting or self.exploring)

    def coming(self) -> Iterator[tuple[str, Slot]]:
        """Yield the places of learners that are yet to say Hello, with their slots.

        A place whose learner was at fault is not waited for, nor one whose processes end, or never
        say Hello, time after time, or for which there is no machine.
        """
        for index, slot in enumerate(self.slots):
            place = slot_place(index)
            is_awaited = not slot.is_waiting and slot.crashes < MAX_CRASHES
            if slot.learner is None and is_awaited and place not in self.faults:
                yield place, slot

    def reset_failures(self, learner_id: LearnerId) -> None:
        """Record that a learner did its work: its failures and crashes are no longer in a row."""
        learner = self.learners[learner_id]
        # A place that does its work is no longer refused or passed over.
        self.faults.pop(learner.place, None)
        if self.pause is not None:
            self.pause.failed_s.pop(learner.place, None)
        if learner.slot is not None:
            self.slots[learner.slot].crashes = 0

    def stop(self, tx: Transaction, *, reason: str, interrupted: bool) -> None:
        """Give out nothing more and let learners publish what they have."""
        # The first reason stays.
        if self.phase in ("stopping", "over"):
            return
        self.phase = "stopping"
        self.reason = reason
        self.interrupted = interrupted
        # Learners have their grace from here on.
        self.stopping_s = tx.now.monotonic_s
        for learner_id in self.learners:
            message = Stop(grace_s=self.patience.grace_s)
            tx.commands.append(SendMessage(learner=learner_id, message=message))

    def fail(self, tx: Transaction, *, reason: str) -> None:
        """End the run: it cannot go on."""
        if self.phase == "over":
            return
        self.stop(tx, reason=reason, interrupted=False)
        # Of several failures the first is the reason; a stop that was asked for before is none.
        if not self.failed:
            self.reason, self.interrupted, self.failed = reason, False, True


def is_for_now(state: ControllerState, row: rows.AssignmentRow) -> bool:
    """Return whether an open assignment is done in this epoch; only evaluations may be."""
    return state.evaluation_only is None or row.kind == "evaluate"


def _patience(config: RunConfig) -> Patience:
    if config.launcher != "ray":
        return Patience()
    return Patience(liveness_s=CLUSTER_LIVENESS_S)


def make_state(
    config: RunConfig,
    setup: LearnerSetup,
    tables: Tables,
    *,
    patience: Patience | None = None,
    initial_weights: dict[str, WeightsRef] | None = None,
    imported: Mapping[str, WeightsRef] | None = None,
    immigrants: Mapping[str, WeightsRef] | None = None,
    store: Digest | None = None,
    measured_length: float = 0.0,
    versions: Mapping[str, str] | None = None,
) -> ControllerState:
    """Return the controller of a run, from its configuration and its journal's rows."""
    pbt = {name: config.pbt_of(name) for name in config.populations}
    return ControllerState(
        config=config,
        setup=setup,
        tables=tables,
        # Folds of the rows: nothing of them is stored.
        league=_league(config, setup, tables),
        retention=_retention(config, tables),
        patience=patience or _patience(config),
        slots=make_slots(config),
        matchmaker=make_matchmaker(
            config.matchmaking,
            window=config.ghosts.window,
            launch_directory=setup.launch_directory,
        ),
        external_players=external_players(config, imported or {}),
        exploit={
            name: make_exploit(section, launch_directory=setup.launch_directory)
            for name, section in pbt.items()
        },
        thinning=make_thinning(
            config.ghosts.thinning, config.ghosts, launch_directory=setup.launch_directory
        ),
        explore={
            name: make_explore(section, launch_directory=setup.launch_directory)
            for name, section in pbt.items()
        },
        initial_weights=initial_weights or {},
        immigrants=immigrants or {},
        store=store,
        measured_length=measured_length,
        versions=versions or {},
        alerts=resumed(tables.alerts.values()),
        curves=Curves({name: row.num_tallies for name, row in tables.ratings.items()}),
        goals=StopGoals(config.stop.player, repeats_games=setup.repeats_games),
        match_times=MatchTimes(
            # Records count a match once for each seat.
            matches=sum(row.matches for row in tables.records.values()) / len(setup.seats),
            seconds=tables.run.evaluation_s + tables.run.extra_evaluation_s,
        ),
        # The shares of this epoch count from here.
        spent_before_s=(tables.run.training_s, tables.run.evaluation_s),
    )


def external_players(
    config: RunConfig, weights: Mapping[str, WeightsRef]
) -> dict[str, tuple[ExternalPlayer, ...]]:
    """Return the players from outside by the population that they play for.

    Args:
        config: Configuration that names them. Bots play for every population.
        weights: Those of the others, by `external_player_key`.
    """
    found: dict[str, tuple[ExternalPlayer, ...]] = {}
    for population, section in config.populations.items():
        external = []
        # Where a player has all agents, nobody else plays them in training.
        only = section.player
        shares = config.matchmaking.bots if only is None else {only: 1.0}
        for index, name in enumerate(config.external_players):
            share = shares.get(name, 0.0)
            is_rated = name in (only, *config.evaluation.bots)
            own = weights.get(external_player_key(index, population))
            if (share or is_rated) and (own is not None or is_bot(name)):
                player = external_player_id(name)
                external.append(
                    ExternalPlayer(player=player, share=share, weights=own, is_rated=is_rated)
                )
        found[population] = tuple(external)
    return found


def _league(config: RunConfig, setup: LearnerSetup, tables: Tables) -> League:
    return League(
        tables,
        seats=setup.seats,
        half_life_matches=config.payoffs.half_life_matches,
        mixes_teammates=bool(setup.agent_seats),
        repeats_games=setup.repeats_games,
    )


def _retention(config: RunConfig, tables: Tables) -> Retention:
    kept = config.checkpoints
    return Retention(
        tables,
        keep=kept.keep,
        milestones_every_agent_steps=kept.milestones_every_agent_steps,
        export_every_agent_steps=kept.export_every_agent_steps,
        exported_to_keep=kept.exported_to_keep,
    )
