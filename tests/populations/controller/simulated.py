"""The simulated run of `populations.simulation`, step by step and with a simple truth.

Learners raise a planted skill by so many Elo per 1000 agent steps, so decisions can be checked
against what is known to be true. Nothing happens by itself: a test says who works and when.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
from msgspec import structs

from arena.checkpoints.manifest import Manifest
from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.types import AssignmentId, Entrant, LearnerId
from arena.wire.messages import (
    Acknowledge,
    Evaluate,
    Finished,
    Heartbeat,
    Refuse,
    Stop,
    Train,
    Trainee,
)
from populations.choices import number_of
from populations.config.resolve import resolve_config
from populations.config.run_config import RunConfig, validate_config
from populations.config.run_file import learner_setup, new_run_file
from populations.controller.evolution.exploring import answer
from populations.controller.indexes.opponent_pool import OpponentPools
from populations.controller.state.events import (
    AssignmentFinished,
    Command,
    ControllerStarted,
    Event,
    ExploreHyperparameters,
    HeartbeatReceived,
    LearnerLeft,
    LinkGhosts,
    SendMessage,
    StartLearner,
    Ticked,
)
from populations.controller.state.leases import Learner, MatchTimes
from populations.controller.state.state import make_state
from populations.controller.state.transaction import Transaction
from populations.records.aggregates import Row
from populations.records.rows import (
    AssignmentRow,
    EventRow,
    TallyRow,
)
from populations.records.tables import Tables
from populations.simulation.learner import SimulatedLearner
from populations.simulation.planted import PlantedModel, Weights
from populations.simulation.world import World as SimulatedWorld
from populations.simulation.world import make_tables
from tests.populations.rows import BOX, DISCRETE, make_spec, make_tally, make_tally_row, tables_with

START, BOT = -200.0, -400.0

M = TypeVar("M", Train, Evaluate)
P = ParamSpec("P")


def duel_spec() -> EnvironmentSpec:
    """Two agents in turn with equal spaces."""
    return make_spec("tests.duel:env", ("player_0", "player_1"))


def crowd_spec() -> EnvironmentSpec:
    """Twelve agents in turn with equal spaces: more sides than have results by pairs of seats."""
    return make_spec("tests.crowd:env", tuple(f"player_{index}" for index in range(12)))


NARROW = AgentSpec(observation={**BOX, "shape": [3]}, action=DISCRETE, mask=None)


def tag_spec() -> EnvironmentSpec:
    """Two predators and one prey, all at once."""
    agents = ("adversary_0", "adversary_1", "agent_0")
    return make_spec("tests.tag:env", agents, api="parallel", agent_0=NARROW)


def duet_spec() -> EnvironmentSpec:
    """A speaker and two listeners, all at once; they have different spaces."""
    agents = ("speaker_0", "listener_0", "listener_1")
    return make_spec("tests.duet:env", agents, api="parallel", speaker_0=NARROW)


AT_ONCE: dict[str, object] = {
    "ready_agent_steps": 500,
    "warm_up_agent_steps": 500,
    "min_matches": 1,
    "min_rating_gap": 0,
    "confidence": 0,
    "fraction": 0.5,
}
"""PBT in which everybody who is behind copies somebody at the first opportunity."""

DUEL: dict[str, object] = {
    "environment": {"id": "tests.duel:env", "num_envs": 8},
    "populations": {"player": {"size": 4}},
    "ghosts": {"every_agent_steps": 1000},
    "pbt": {
        "ready_agent_steps": 1000,
        "warm_up_agent_steps": 1000,
        "min_matches": 20,
        "min_rating_gap": 10,
    },
    "assignment": {"agent_steps": 500},
    "evaluation": {"share": 0.3},
    "learners": 2,
    "stop": {"agent_steps_per_policy": 6000},
}

CROWD: dict[str, object] = {**DUEL, "environment": {"id": "tests.crowd:env", "num_envs": 8}}

TAG: dict[str, object] = {
    **DUEL,
    "environment": {
        "id": "tests.tag:env",
        "num_envs": 8,
        "sides": {"predators": ["adversary_*"], "prey": ["agent_*"]},
    },
    "populations": {
        "predator": {"agents": ["adversary_*"], "size": 3},
        "prey": {"agents": ["agent_*"], "size": 3},
    },
    "learners": {"predator": 1, "prey": 1},
}

DUET: dict[str, object] = {
    **DUEL,
    "environment": {"id": "tests.duet:env", "num_envs": 8, "sides": {"team": ["*"]}},
    "populations": {"speaker": {"size": 4}, "listener": {"size": 4}},
}


def make_config(document: dict[str, object], spec: EnvironmentSpec) -> RunConfig:
    """A resolved configuration from plain data."""
    return resolve_config(validate_config(document), spec, launch_directory=".")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleTruth(PlantedModel):
    """Fresh weights are all alike, and bots weaker."""

    def fresh(self, rng: np.random.Generator) -> Weights:
        del rng
        return Weights(skill=START, potential=0.0, kind=0)

    def bot(self, name: str) -> Weights:
        del name
        return Weights(skill=BOT, potential=0.0, kind=0)

    def copied(self, donor: Weights, rng: np.random.Generator) -> Weights:
        del rng
        return donor


def crowd_tally(
    first: Entrant, second: Entrant, *, wins: int, losses: int, sequence: int = 1
) -> TallyRow:
    """Evaluation of one player in the first six seats of a crowd against another in the others.

    A match is 36 comparisons, so multiples of that are whole matches.
    """
    tally = make_tally(
        (first,) * 6 + (second,) * 6,
        (0, 6, wins, 0, losses),
        matches=(wins + losses) // 36,
        length_sum=10,
    )
    return make_tally_row(tally, sequence)


@dataclass(slots=True, kw_only=True)
class SimpleLearner(SimulatedLearner):
    """Learns at a constant rate.

    Attributes:
        learning: Elo per 1000 agent steps, from hyperparameters.
        match_s: Learner seconds of an evaluation match.
        train_s: Learner seconds of a training assignment.
    """

    learning: Callable[[Trainee], float] = lambda trainee: 50.0
    match_s: float = 0.2 / 128
    train_s: float = 1.0

    def carry_out(self, message: Train | Evaluate) -> tuple[Finished, dict[str, Manifest]]:
        finished, manifests = SimulatedLearner.carry_out(self, message)
        duration_s = self.train_s
        if isinstance(message, Evaluate):
            matches = sum(pairing.num_matches for pairing in message.pairings)
            duration_s = self.match_s * matches
        return structs.replace(finished, duration_s=duration_s), manifests

    def improved(
        self,
        message: Train,
        trainee: Trainee,
        before: Mapping[str, Weights],
        rng: np.random.Generator,
    ) -> Weights:
        weights = before[trainee.policy]
        gained = self.learning(trainee) * message.agent_steps / len(message.trainees) / 1000.0
        return replace(weights, skill=weights.skill + gained + float(rng.normal(0.0, 1.0)))


@dataclass(slots=True)
class World(SimulatedWorld):
    """A controller, its simulated learners, and everything that was committed.

    Attributes:
        committed: Rows in order of commit, as a journal would hold them.
        questions: What the worker thread was asked to explore and has not yet answered.
        leases: Learner, assignment and attempt of everything that was given out.
        refused: Learners that were turned away or fenced, with the reason.
        may_join_again: Whether these may come again, in the same order.
    """

    committed: list[Row] = field(default_factory=list)
    questions: list[ExploreHyperparameters] = field(default_factory=list)
    acknowledged: list[Acknowledge] = field(default_factory=list)
    leases: set[tuple[LearnerId, AssignmentId, int]] = field(default_factory=set)
    refused: list[tuple[LearnerId, str]] = field(default_factory=list)
    may_join_again: list[bool] = field(default_factory=list)
    stops: set[LearnerId] = field(default_factory=set)
    started: list[StartLearner] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)

    @property
    def learning(self) -> Callable[[Trainee], float]:
        """Elo per 1000 agent steps, from hyperparameters."""
        assert isinstance(self.learner, SimpleLearner)
        return self.learner.learning

    @learning.setter
    def learning(self, learning: Callable[[Trainee], float]) -> None:
        assert isinstance(self.learner, SimpleLearner)
        self.learner.learning = learning

    @property
    def skills(self) -> dict[str, float]:
        """Planted skill, in Elo, of each weights digest."""
        return {digest: weights.skill for digest, weights in self.learner.weights.items()}

    def handle(self, event: Event) -> Transaction:
        """Let the controller take an event in, note what it commits, carry its commands out."""
        # `super()` fails here, because dataclasses with slots are created a second time.
        self.watch = self.committed.extend
        return SimulatedWorld.handle(self, event)

    def join(self, *, slot: int | None = None, populations: tuple[str, ...] = ()) -> LearnerId:
        """A learner says Hello; one without a slot comes in the place of all of the launcher's."""
        if slot is None:
            self.state.crew.slots = [
                place for place in self.state.crew.slots if place.learner is not None
            ]
        return SimulatedWorld.join(self, slot=slot, populations=populations)

    def carry_out(self, command: Command) -> None:
        """Remember what is for learners; do at once what is for the disk."""
        match command:
            case SendMessage(learner=learner, message=Train() | Evaluate() as message):
                queue = self.given.setdefault(learner, [])
                lease = (learner, message.assignment_id, message.attempt)
                # else the message is a repetition, which learners ignore
                if lease not in self.leases:
                    self.leases.add(lease)
                    queue.append(message)
            case SendMessage(learner=learner, message=Refuse() as refuse):
                self.refused.append((learner, refuse.reason))
                self.may_join_again.append(refuse.again)
            case SendMessage(message=Acknowledge() as message):
                self.acknowledged.append(message)
            case SendMessage(learner=learner, message=Stop()):
                self.stops.add(learner)
            case StartLearner():
                self.started.append(command)
            case ExploreHyperparameters():
                self.questions.append(command)
            case _:
                if isinstance(command, LinkGhosts):
                    self.linked += [ghost.player for ghost in command.ghosts]
                SimulatedWorld.carry_out(self, command)

    def beat(self, learner: LearnerId, *, progress: int = 0) -> None:
        """A learner's heartbeat about what it runs."""
        queue = self.given.get(learner)
        message = queue[0] if queue else None
        self.handle(
            HeartbeatReceived(
                learner=learner,
                heartbeat=Heartbeat(
                    assignment_id=message.assignment_id if message else None,
                    attempt=message.attempt if message else 0,
                    progress=progress,
                    agent_steps=0,
                    rss_bytes=1,
                ),
            )
        )

    def _pass(self, seconds: float) -> None:
        """Let time pass in which all learners are heard."""
        if seconds > 0.0:
            self.now_s += seconds
            for known in self.state.crew.learners.values():
                known.last_heard_s += seconds

    def work(self, learner: LearnerId) -> AssignmentFinished | None:
        """Return the result of a learner's oldest assignment, without telling the controller."""
        queue = self.given.get(learner)
        if not queue:
            return None
        finished, manifests = self.learner.carry_out(queue.pop(0))
        return AssignmentFinished(learner=learner, finished=finished, manifests=manifests)

    def hear(self) -> None:
        """Every learner has just been heard."""
        for known in self.state.crew.learners.values():
            known.last_heard_s = self.now_s

    def step(self) -> bool:
        """Every learner finishes what it has, ratings are fitted; a second passes at least."""
        self.hear()
        self.now_s += 1.0
        moved = False
        for learner in list(self.given):
            event = self.work(learner)
            if event is not None:
                moved = True
                self._pass(event.finished.duration_s - 1.0)
                self.handle(event)
            elif learner in self.stops:
                self.stops.discard(learner)
                self.handle(LearnerLeft(learner=learner, reason="stopped"))
        self.fit()
        self.explore()
        self.handle(Ticked())
        return moved

    def steps(self, num_steps: int) -> None:
        """Go on for some steps."""
        for _ in range(num_steps):
            self.step()

    def explore(self) -> None:
        """The worker thread answers what it was asked to explore."""
        while self.questions:
            self.handle(answer(self.questions.pop(0)))

    def restart(self) -> None:
        """The controller dies; another one loads what was committed."""
        self.state = make_state(self.state.settings.config, self.setup, fold(self.committed))
        for of_before in (self.given, self.questions, self.fits):
            of_before.clear()
        self.handle(ControllerStarted())

    def kill(self) -> None:
        """Controller and learners die; another controller and a learner go on."""
        self.restart()
        self.join()

    def run(self, *, max_steps: int = 2000, kill_at: Collection[int] = ()) -> None:
        """Go on until the run is over; before some steps everybody dies."""
        for learner in list(self.state.crew.learners):
            self.given.setdefault(learner, [])
            self.beat(learner)
        for step in range(max_steps):
            if self.over:
                return
            if step in kill_at:
                self.kill()
            self.step()
        raise AssertionError(
            f"the run is not over after {max_steps} steps: {self.state.phase.name}"
        )

    def messages(self, kind: type[M], *statuses: str) -> list[M]:
        """Messages of one kind as often as they were committed, or of rows of some statuses."""
        rows = [row for row in self.committed if isinstance(row, AssignmentRow)]
        rows = [row for row in rows if not statuses or row.status in statuses]
        return [row.message for row in rows if isinstance(row.message, kind)]

    def events(self, *kinds: str) -> list[EventRow]:
        """Committed events of some kinds."""
        return [row for row in self.committed if isinstance(row, EventRow) and row.kind in kinds]


def fold(rows: list[Row]) -> Tables:
    """What a journal that committed these rows would load."""
    tables = tables_with()
    for row in rows:
        tables.put(row)
    return tables


def by_rate(trainee: Trainee) -> float:
    """Learning rates make a difference, so that policies exploit."""
    return 5e4 * number_of(trainee.hyperparameters["learning_rate"])


def made_once(make: Callable[P, World]) -> Callable[P, World]:
    """Have worlds that are asked for again copied: no test sees what another did with one."""
    made: dict[str, World] = {}

    @wraps(make)
    def copied(*args: P.args, **kwargs: P.kwargs) -> World:
        key = repr((args, kwargs))
        if key not in made:
            made[key] = make(*args, **kwargs)
        world = copy.deepcopy(made[key])
        # The columns share memory, which a deep copy would separate.
        world.state.indexes.opponent_pools = OpponentPools(world.state.tables)
        return world

    return copied


def make_world(
    document: dict[str, object] | None = None,
    spec: EnvironmentSpec | None = None,
    *,
    joined: int = 0,
    learning: Callable[[Trainee], float] | None = None,
    steps: int = 0,
) -> World:
    """A controller of a new run, started, with so many learners, after so many steps."""
    spec = spec or duel_spec()
    config = validate_config(document or DUEL)
    run_file = new_run_file(config, spec, name="test", launch_directory=".")
    setup = learner_setup(run_file, root=Path("/nowhere"))
    tables = make_tables(run_file)
    committed: list[Row] = [
        tables.run,
        *tables.policies.values(),
        *tables.generations.values(),
    ]
    learner = SimpleLearner(
        setup=setup,
        model=SimpleTruth(),
        landscapes={},
        agent_steps_per_s=1000.0,
        episode_length=5,
        matches_per_seating=4,
    )
    state = make_state(run_file.config, setup, tables)
    world = World(state=state, setup=setup, learner=learner, committed=committed)
    world.handle(ControllerStarted())
    if learning is not None:
        world.learning = learning
    for _ in range(joined):
        world.join()
    world.steps(steps)
    return world


def stranger(
    world: World, *, speeds: Mapping[str, float] | None = None, match_s: float | None = None
) -> Learner:
    """A learner that the controller has not heard of, with speeds as if measured."""
    times = MatchTimes() if match_s is None else MatchTimes(matches=1.0, seconds=match_s)
    hello = world.hello(LearnerId("stranger"))
    return Learner(
        hello=hello, slot=None, last_heard_s=0.0, speeds=dict(speeds or {}), match_times=times
    )


def open_ids(world: World) -> set[AssignmentId]:
    """Assignments that are open."""
    return set(world.state.tables.assignments)
