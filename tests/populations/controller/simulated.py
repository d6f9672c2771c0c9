"""A controller with simulated learners: no process, socket, clock or file.

Learners "train" by raising a planted skill and play matches whose results follow Elo's curve, so
decisions can be checked against what is known to be true.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from arena.checkpoints.manifest import (
    OPTIMIZER,
    WEIGHTS,
    FileRecord,
    Manifest,
    checkpoint_key,
)
from arena.config import LearnerSetup
from arena.envs.spec import AgentSpec, EnvironmentSpec
from arena.types import (
    AssignmentId,
    CheckpointRef,
    Digest,
    Entrant,
    LearnerId,
    PairScore,
    Player,
    Seating,
    Tally,
    is_bot,
    trainee_entrant,
)
from arena.wire.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Evaluate,
    Finished,
    Heartbeat,
    Hello,
    Published,
    Stop,
    Train,
    Trainee,
)
from populations.config import RunConfig, resolve_config, validate_config
from populations.controller.commands import (
    EndRun,
    FitRatings,
    LinkGhosts,
    RemoveCheckpoints,
    SendMessage,
    StartLearner,
)
from populations.controller.events import (
    AssignmentFinished,
    CheckpointsRemoved,
    ControllerStarted,
    Event,
    GhostsLinked,
    HeartbeatReceived,
    LearnerJoined,
    LearnerLeft,
    Now,
    RatingsFitted,
    Ticked,
)
from populations.controller.machine import handle
from populations.controller.run import initial_policies
from populations.controller.state import ControllerState, make_state
from populations.controller.transaction import Transaction
from populations.ratings.fit import FitInput, fit_ratings
from populations.run_file import learner_setup, new_run_file
from populations.storage.tables import Tables
from populations.types import EventRow, Row, RunRow

BOX: dict[str, object] = {
    "type": "Box", "shape": [4], "dtype": "float32", "low": None, "high": None
}  # fmt: skip
DISCRETE: dict[str, object] = {"type": "Discrete", "n": 3, "start": 0}


def duel_spec() -> EnvironmentSpec:
    """Two agents in turn with equal spaces."""
    agent = AgentSpec(observation=BOX, action=DISCRETE, mask=None)
    return EnvironmentSpec(
        id="tests.duel:env",
        kwargs={},
        api="aec",
        agents=("player_0", "player_1"),
        agent_specs={"player_0": agent, "player_1": agent},
    )


def tag_spec() -> EnvironmentSpec:
    """Two predators and one prey, all at once."""
    predator = AgentSpec(observation=BOX, action=DISCRETE, mask=None)
    prey = AgentSpec(observation={**BOX, "shape": [3]}, action=DISCRETE, mask=None)
    return EnvironmentSpec(
        id="tests.tag:env",
        kwargs={},
        api="parallel",
        agents=("adversary_0", "adversary_1", "agent_0"),
        agent_specs={"adversary_0": predator, "adversary_1": predator, "agent_0": prey},
    )


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


def make_config(document: dict[str, object], spec: EnvironmentSpec) -> RunConfig:
    """A resolved configuration from plain data."""
    return resolve_config(validate_config(document), spec, launch_directory=".")


@dataclass
class World:
    """A controller, its simulated learners, and everything that was committed.

    Attributes:
        state: The controller.
        setup: What learners were set up with.
        committed: Rows in order of commit, as a journal would hold them.
        skills: Planted skill, in Elo, of each weights digest.
        learning: Elo per 1000 agent steps, from hyperparameters.
    """

    state: ControllerState
    setup: LearnerSetup
    committed: list[Row]
    skills: dict[str, float] = field(default_factory=dict)
    learning: Callable[[Trainee], float] = lambda trainee: 50.0
    now_s: float = 0.0
    given: dict[LearnerId, list[Train | Evaluate]] = field(default_factory=dict)
    acknowledged: list[Acknowledge] = field(default_factory=list)
    stops: set[LearnerId] = field(default_factory=set)
    started: list[StartLearner] = field(default_factory=list)
    fits: list[FitInput] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    over: bool = False
    num_learners: int = 0

    def handle(self, event: Event) -> Transaction:
        """Let the controller take an event in, and carry its commands out."""
        tx = handle(self.state, event, Now(monotonic_s=self.now_s, utc="2026-01-01T00:00:00+00:00"))
        self.committed += tx.rows
        for command in tx.commands:
            match command:
                case SendMessage(learner=learner, message=Train() | Evaluate() as message):
                    self.given.setdefault(learner, []).append(message)
                case SendMessage(message=Acknowledge() as message):
                    self.acknowledged.append(message)
                case SendMessage(learner=learner, message=Stop()):
                    self.stops.add(learner)
                case StartLearner():
                    self.started.append(command)
                case FitRatings(fit=fit):
                    self.fits.append(fit)
                case LinkGhosts(ghosts=ghosts):
                    self.linked += [ghost.player for ghost in ghosts]
                    self.handle(GhostsLinked(players=tuple(g.player for g in ghosts)))
                case RemoveCheckpoints(keys=keys):
                    self.handle(CheckpointsRemoved(keys=keys))
                case EndRun():
                    self.over = True
                case _:
                    pass
        return tx

    def join(self, *, slot: int | None = None, populations: tuple[str, ...] = ()) -> LearnerId:
        """A learner says Hello."""
        self.num_learners += 1
        learner = LearnerId(f"learner-{self.num_learners}")
        self.handle(
            LearnerJoined(learner=learner, hello=self.hello(learner, populations), slot=slot)
        )
        return learner

    def hello(self, learner: LearnerId, populations: tuple[str, ...] = ()) -> Hello:
        """A Hello that fits the run."""
        return Hello(
            learner=learner,
            pid=1000 + self.num_learners,
            host="here",
            protocol=PROTOCOL_VERSION,
            arena_version="0",
            environment_digest=self.setup.spec.digest,
            config_digest=self.setup.digest,
            device="cpu",
            slots=1,
            populations=populations,
        )

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

    def work(self, learner: LearnerId) -> AssignmentFinished | None:
        """What a learner's oldest assignment leads to, without telling the controller."""
        queue = self.given.get(learner, [])
        if not queue:
            return None
        message = queue.pop(0)
        return AssignmentFinished(learner=learner, **self._result(message))  # type: ignore[arg-type]

    def step(self) -> bool:
        """Every learner finishes what it has, ratings are fitted, a second passes."""
        self.now_s += 1.0
        moved = False
        for learner in list(self.given):
            event = self.work(learner)
            if event is not None:
                moved = True
                self.handle(event)
            elif learner in self.stops:
                self.stops.discard(learner)
                self.handle(LearnerLeft(learner=learner, reason="stopped"))
        self.fit()
        self.handle(Ticked())
        return moved

    def fit(self) -> None:
        """The worker thread fits what it was asked to."""
        while self.fits:
            self.handle(RatingsFitted(rows=fit_ratings(self.fits.pop(0))))

    def run(self, *, max_steps: int = 2000) -> None:
        """Go on until the run is over."""
        for learner in list(self.state.learners):
            self.given.setdefault(learner, [])
            self.beat(learner)
        for _ in range(max_steps):
            if self.over:
                return
            for learner in self.state.learners:
                self.state.learners[learner].last_heard_s = self.now_s
            self.step()
        raise AssertionError(f"the run is not over after {max_steps} steps: {self.state.phase}")

    def events(self, *kinds: str) -> list[EventRow]:
        """Committed events of some kinds."""
        return [row for row in self.committed if isinstance(row, EventRow) and row.kind in kinds]

    def _result(self, message: Train | Evaluate) -> dict[str, object]:
        rng = np.random.default_rng(message.seed)
        manifests: dict[str, Manifest] = {}
        checkpoints: list[Published] = []
        tallies: list[Tally] = []
        metrics: dict[str, float] = {}
        if isinstance(message, Train):
            for trainee in message.trainees:
                manifest = self._train(message, trainee, rng)
                key = checkpoint_key(
                    trainee.policy, agent_steps=manifest.agent_steps, digest=manifest.digest
                )
                manifests[key] = manifest
                ref = CheckpointRef(digest=manifest.digest, key=key)
                checkpoints.append(Published(policy=trainee.policy, checkpoint=ref))
                tallies += [
                    self._play(s, 4, rng, trainee) for s in dict.fromkeys(message.opponents)
                ]
            metrics = {"throughput/agent_steps_per_s": 1000.0, "episode/length_mean": 5.0}
        else:
            tallies = [self._play(p.seating, p.num_matches, rng, None) for p in message.pairings]
        finished = Finished(
            assignment_id=message.assignment_id,
            attempt=message.attempt,
            checkpoints=tuple(checkpoints),
            tallies=tuple(tallies),
            metrics=metrics,
            duration_s=1.0 if isinstance(message, Train) else 0.2,
        )
        return {"finished": finished, "manifests": manifests}

    def _train(self, message: Train, trainee: Trainee, rng: np.random.Generator) -> Manifest:
        before = -200.0
        parent: Digest | None = None
        if trainee.checkpoint is not None:
            row = self.state.tables.checkpoints[trainee.checkpoint.key]
            before, parent = self.skills[row.weights_digest], row.digest
        gained = self.learning(trainee) * message.agent_steps / 1000.0
        text = f"{message.seed} {trainee.policy} {trainee.agent_steps}"
        digest = Digest(hashlib.sha256(text.encode()).hexdigest())
        self.skills[digest] = before + gained + float(rng.normal(0.0, 1.0))
        record = FileRecord(sha256=digest, size_bytes=1)
        return Manifest(
            policy=trainee.policy,
            generation=trainee.generation,
            agent_steps=trainee.agent_steps + message.agent_steps,
            learner_updates=trainee.learner_updates + message.agent_steps // 10,
            hyperparameters=dict(trainee.hyperparameters),
            parent=parent,
            donor=trainee.donor,
            environment_digest=self.setup.spec.digest,
            population_agents=("player_0",),
            network=self.setup.populations[trainee.policy.split("/")[0]].network,
            files={WEIGHTS: record, OPTIMIZER: record},
            arena_version="0",
            created="2026-01-01T00:00:00+00:00",
        )

    def _play(
        self, seating: Seating, num_matches: int, rng: np.random.Generator, trainee: Trainee | None
    ) -> Tally:
        def entrant(player: Player) -> Entrant:
            if player.weights is not None:
                return Entrant(player.weights.digest)
            if is_bot(player.player):
                return Entrant(player.player)
            assert trainee is not None
            return trainee_entrant(trainee.policy, generation=trainee.generation)

        names = tuple(entrant(player) for player in seating.players)
        skill = [self.skills.get(name, -400.0 if is_bot(name) else 0.0) for name in names]
        chance = 1.0 / (1.0 + math.pow(10.0, (skill[1] - skill[0]) / 400.0))
        wins = int(rng.binomial(num_matches, chance))
        return Tally(
            entrants=names,
            matches=num_matches,
            pairs=(PairScore(first=0, second=1, wins=wins, draws=0, losses=num_matches - wins),),
            return_sum=(float(wins), float(num_matches - wins)),
            return_sum_of_squares=(float(wins), float(num_matches - wins)),
            length_sum=num_matches * 5,
        )


def make_world(
    document: dict[str, object] | None = None, spec: EnvironmentSpec | None = None
) -> World:
    """A controller of a new run, started, without learners."""
    spec = spec or duel_spec()
    config = validate_config(document or DUEL)
    run_file = new_run_file(config, spec, name="test", launch_directory=".")
    setup = learner_setup(run_file, root=Path("/nowhere"))
    policies = initial_policies(run_file.config)
    tables = Tables(
        run=RunRow(run=run_file.run),
        policies={row.policy: row for row in policies},
        checkpoints={},
        ghosts={},
        generations={},
        assignments={},
        tallies=[],
        ratings={},
        num_events=0,
    )
    state = make_state(run_file.config, setup, tables)
    world = World(state=state, setup=setup, committed=[tables.run, *policies])
    world.handle(ControllerStarted())
    return world


def open_ids(world: World) -> set[AssignmentId]:
    """Assignments that are open."""
    return set(world.state.tables.assignments)
