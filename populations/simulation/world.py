"""Simulation of a whole run in one process: the real controller with simulated learners and time.

It uses no socket, clock, file or other process: the controller's state machine gets events from a
queue in simulated time, and its commands add new events.

Tests: `tests/populations/simulation/test_properties.py`.
"""

from __future__ import annotations

import heapq
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict, Unpack

from msgspec import structs

from arena.config import LearnerSetup
from arena.types import LearnerId
from arena.wire.messages import PROTOCOL_VERSION, Evaluate, Failed, Hello, Stop, Train
from populations.config.run_config import RunConfig
from populations.config.run_file import RunFile, learner_setup
from populations.controller.evolution.exploring import answer
from populations.controller.evolution.generations import first_generations
from populations.controller.evolution.initial_policies import initial_policies
from populations.controller.machine import handle
from populations.controller.rating_fit import fit_ratings
from populations.controller.rating_input import Snapshot, fit_input, snapshot
from populations.controller.state.events import (
    AssignmentFailed,
    AssignmentFinished,
    CheckpointsRemoved,
    Command,
    ControllerStarted,
    EndRun,
    Event,
    ExploreHyperparameters,
    FitRatings,
    GhostsLinked,
    LearnerExited,
    LearnerJoined,
    LearnerLeft,
    LinkGhosts,
    Now,
    RatingsFitted,
    RemoveCheckpoints,
    SendMessage,
    StartLearner,
    Ticked,
)
from populations.controller.state.ledger import LOST
from populations.controller.state.state import ControllerState, make_state
from populations.controller.state.transaction import Transaction
from populations.records.aggregates import Row
from populations.records.rows import RunRow
from populations.records.tables import GENERATIONS, POLICIES, Table, Tables
from populations.simulation.learner import UTC, SimulatedLearner
from populations.simulation.planted import PlantedModel, make_landscape

START_S = 0.1
"""Simulated seconds from the start of a learner to its Hello."""

FITS_PER_ROUND = 8
"""Number of fits of ratings in the time in which every policy is evaluated once."""

TICK_S = 0.5
"""Seconds between two ticks of the controller in `play`."""

Watcher = Callable[[Sequence[Row]], None]
Fault = Callable[[int, Train | Evaluate, float], str | Failed | None]


class Speeds(TypedDict, total=False):
    """Speeds of simulated learners; see `SimulatedLearner`."""

    agent_steps_per_s: float
    matches_per_s: float


@dataclass(slots=True)
class World:
    """Controller, simulated learners, and simulated time. Owned by one thread.

    Attributes:
        state: State of the controller.
        setup: Setup of the learners.
        learner: Simulated learner that carries out assignments.
        watch: Callback with the rows of each transaction.
        clock: Clock for ``handling_s``, which stays 0 with the default one.
        now_s: Simulated time.
        handling_s: Time that the controller took for all events, by ``clock``.
        given: Assignments that each learner has not finished yet, oldest first.
        over: Whether the run has ended.
        num_learners: Number of learners that have sent a Hello.
        fits: Snapshots that wait for a fit of ratings.
        fault: Function of slot, message and simulated time that plants faults. It returns the kind
            of a Failed, a whole Failed, ``lost`` (the process ends), or None: no fault.
        fails_after_s: Time from the start of an assignment to its planted fault.
        speeds: Speeds of learners by slot, where they differ from those of ``learner``.
    """

    state: ControllerState
    setup: LearnerSetup
    learner: SimulatedLearner
    watch: Watcher = lambda rows: None
    clock: Callable[[], float] = lambda: 0.0
    now_s: float = 0.0
    handling_s: float = 0.0
    given: dict[LearnerId, list[Train | Evaluate]] = field(default_factory=dict)
    over: bool = False
    num_learners: int = 0
    _agenda: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _num_planned: int = 0
    fits: list[Snapshot] = field(default_factory=list)
    fault: Fault = lambda slot, message, now_s: None
    fails_after_s: float = 0.01
    speeds: dict[int, Speeds] = field(default_factory=dict)
    _evaluations: int = 0

    def handle(self, event: Event) -> Transaction:
        """Let the controller handle an event, and carry out its commands."""
        started_s = self.clock()
        tx = handle(self.state, event, Now(monotonic_s=self.now_s, utc=UTC))
        # Time is measured without the commands, because in a real run learners and fits run
        # elsewhere.
        self.handling_s += self.clock() - started_s
        self.watch(tx.rows)
        for command in tx.commands:
            self.carry_out(command)
        return tx

    def carry_out(self, command: Command) -> None:
        """Carry out a command in place of the server, the launcher and the worker thread."""
        match command:
            case SendMessage(learner=learner, message=Train() | Evaluate() as message):
                queue = self.given[learner]
                queue.append(message)
                # With a longer queue the learner works on the oldest assignment already.
                if len(queue) == 1:
                    self._begin(learner)
            case SendMessage(learner=learner, message=Stop()):
                # The end is put on the agenda, because the transaction's other commands come first.
                self._plan(0.0, lambda: self._leave(learner))
            case StartLearner(slot=slot, populations=populations):
                self._plan(START_S, lambda: self._join(slot, populations))
            case FitRatings(known=known):
                self.fits.append(known)
                # The duration of a fit is measured in evaluations, counted from here.
                self._evaluations = 0
            case ExploreHyperparameters():
                self.handle(answer(command))
            case LinkGhosts(ghosts=ghosts):
                self.handle(GhostsLinked(players=tuple(ghost.player for ghost in ghosts)))
            case RemoveCheckpoints(keys=keys):
                self.handle(CheckpointsRemoved(keys=keys))
            case EndRun():
                self.over = True
            # Other commands are about processes and sinks, which the simulation does not have.
            case _:
                pass

    def advance(self) -> bool:
        """Process the next event of the agenda; return False if the run is over.

        Raises:
            RuntimeError: If the agenda is empty and the run is not over.
        """
        if self.over:
            return False
        if self.fits and self._fit_is_due():
            self.fits = [snapshot(self.state.league)]  # a fit that is due uses the newest results
            self.fit()
        # A due fit comes first, because it takes no simulated time of its own.
        elif self._agenda:
            # The number of planning breaks ties, so that functions are never compared.
            self.now_s, _, happen = heapq.heappop(self._agenda)
            happen()
        else:
            raise RuntimeError(f"nothing happens any more in the phase {self.state.phase.name!r}")
        return not self.over

    def _fit_is_due(self) -> bool:
        """Return whether the worker thread has finished its fit.

        As an approximation, a fit takes as long as ``num_policies // FITS_PER_ROUND`` evaluations,
        with few policies no time.
        """
        num_policies = len(self.state.tables.policies)
        # In deterministic mode, or if no learner has work, the run waits for these ratings.
        waits = self.state.settings.config.deterministic or not any(self.given.values())
        return waits or self._evaluations >= num_policies // FITS_PER_ROUND

    def fit(self) -> None:
        """Fit the pending snapshots, and let the controller handle the ratings."""
        while self.fits:
            # The duration is simulated in evaluations, so the fit must appear to take no time.
            self.state.fits.pace.begin(self.now_s)
            self.handle(RatingsFitted(ratings=fit_ratings(fit_input(self.fits.pop(0)))))

    def hello(self, learner: LearnerId, populations: tuple[str, ...] = ()) -> Hello:
        """Return a valid Hello for the run."""
        return Hello(
            learner=learner,
            pid=1000 + self.num_learners,
            host=f"host-{self.num_learners}",
            protocol=PROTOCOL_VERSION,
            arena_version="simulated",
            environment_digest=self.setup.spec.digest,
            config_digest=self.setup.digest,
            device="cpu",
            slots=1,
            populations=populations,
            store=self.state.settings.store,
        )

    def join(self, *, slot: int | None = None, populations: tuple[str, ...] = ()) -> LearnerId:
        """Let a new learner send its Hello; return the learner's id."""
        self.num_learners += 1
        learner = LearnerId(f"learner-{self.num_learners}")
        self.given.setdefault(learner, [])
        hello = self.hello(learner, populations)
        self.handle(LearnerJoined(learner=learner, hello=hello, slot=slot))
        return learner

    def _join(self, slot: int, populations: tuple[str, ...]) -> None:
        self.join(slot=slot, populations=populations)

    def _begin(self, learner: LearnerId) -> None:
        """Start a learner's oldest assignment, and put its end on the agenda."""
        message = self.given[learner][0]
        known = self.state.crew.learners.get(learner)
        # Slot -1 stands for a learner that no launcher has started.
        slot = -1 if known is None or known.slot is None else known.slot
        fault = self.fault(slot, message, self.now_s)
        if fault is not None:
            failed = fault if isinstance(fault, Failed) else _planted(message, kind=fault)
            self._plan(self.fails_after_s, lambda: self._fail(learner, slot, message, failed))
            return
        # The result is computed now, before its simulated end, as it depends only on the message.
        own = self.speeds.get(slot)
        simulated = self.learner if own is None else replace(self.learner, **own)
        finished, manifests = simulated.carry_out(message)
        event = AssignmentFinished(learner=learner, finished=finished, manifests=manifests)
        self._plan(finished.duration_s, lambda: self._finish(event))

    def _finish(self, event: AssignmentFinished | AssignmentFailed) -> None:
        if event.learner not in self.state.crew.learners:
            return  # the controller has dismissed the learner meanwhile
        queue = self.given[event.learner]
        message = queue.pop(0)
        self._evaluations += isinstance(message, Evaluate)
        # The next assignment must begin before the event is handled: `carry_out` itself begins an
        # assignment that it appends to an empty queue.
        if queue:
            self._begin(event.learner)
        self.handle(event)

    def _fail(
        self, learner: LearnerId, slot: int, message: Train | Evaluate, failed: Failed
    ) -> None:
        """Let an attempt fail, if the learner still has it."""
        if failed.kind == LOST:
            if learner in self.state.crew.learners:
                self.given[learner].clear()
                self.handle(LearnerExited(slot=slot, code=-signal.SIGSEGV))
            return
        damage = None
        if failed.kind == "checkpoint" and isinstance(message, Train):
            checkpoint = message.trainees[0].checkpoint
            if checkpoint is not None:
                failed, damage = structs.replace(failed, key=checkpoint.key), "a bit flipped"
        self._finish(AssignmentFailed(learner=learner, failed=failed, damage=damage))

    def play(self, seconds: float, *, tick_s: float = TICK_S) -> None:
        """Let simulated time pass, with ticks at which all learners count as responsive.

        Stop after ``seconds``, or at the end of the run.
        """
        end_s = self.now_s + seconds

        def tick() -> None:
            for known in self.state.crew.learners.values():
                known.last_heard_s = known.progress_at_s = self.now_s
            self.handle(Ticked())
            if self.now_s < end_s:
                self._plan(tick_s, tick)

        tick()
        while self.now_s < end_s and self.advance():
            pass

    def _leave(self, learner: LearnerId) -> None:
        """End a learner at once after it was asked to stop."""
        self.given[learner].clear()
        self.handle(LearnerLeft(learner=learner, reason="stopped"))

    def _plan(self, after_s: float, happen: Callable[[], None]) -> None:
        self._num_planned += 1
        heapq.heappush(self._agenda, (self.now_s + after_s, self._num_planned, happen))


def make_tables(run_file: RunFile) -> Tables:
    """Return the tables of a new run, in memory."""
    policies = initial_policies(run_file.config)
    return Tables(
        run=RunRow(run=run_file.run),
        policies=Table(POLICIES, policies),
        generations=Table(GENERATIONS, first_generations(policies)),
    )


def make_learner(
    setup: LearnerSetup, config: RunConfig, model: PlantedModel, **speeds: Unpack[Speeds]
) -> SimulatedLearner:
    """Make the simulated learner of a run.

    Raises:
        ConfigError: If a search space is not valid.
    """
    landscapes = {
        name: make_landscape(
            population.search_space, start=population.start_values, width=model.width
        )
        for name, population in config.populations.items()
    }
    return SimulatedLearner(setup=setup, model=model, landscapes=landscapes, **speeds)


def make_world(run_file: RunFile, model: PlantedModel, **speeds: Unpack[Speeds]) -> World:
    """Make the world of a new run, whose controller is not yet started."""
    setup = learner_setup(run_file, root=Path("simulated"))
    state = make_state(run_file.config, setup, make_tables(run_file))
    learner = make_learner(setup, run_file.config, model, **speeds)
    return World(state=state, setup=setup, learner=learner)


def start(world: World) -> None:
    """Start the controller of a world."""
    world.handle(ControllerStarted())


def _planted(message: Train | Evaluate, *, kind: str) -> Failed:
    return Failed(
        assignment_id=message.assignment_id, attempt=message.attempt, kind=kind, reason="planted"
    )
