"""A run directory with a scripted environment, workers on it, and messages for them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from arena.checkpoints.manifest import WEIGHTS, Manifest
from arena.checkpoints.tensors import load_checkpoint
from arena.config import EnvironmentConfig, LearnerSetup, NetworkConfig, PopulationSetup
from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.envs.spaces.observations import describe
from arena.learners.work.worker import Worker
from arena.matches.seating import make_seats
from arena.types import (
    AssignmentId,
    CheckpointRef,
    Player,
    PlayerId,
    PolicyId,
    Seating,
    WeightsRef,
)
from arena.wire.messages import Evaluate, Failed, Finished, Pairing, Train, Trainee
from tests.arena.samples import Counted, each_alone
from tests.populations.rows import make_evaluate, make_train, make_trainee

NETWORK = NetworkConfig(hidden_sizes=(8,))
HYPERPARAMETERS: dict[str, float] = {"rollout_length": 8, "num_epochs": 2, "num_minibatches": 2}
POLICY = PolicyId("player/p000")
NUM_ENVS = 6


def setup_of(
    root: Path,
    spec: EnvironmentSpec,
    *,
    sides: Mapping[str, tuple[str, ...]] | None = None,
    populations: Mapping[str, tuple[str, ...]] | None = None,
    networks: Mapping[str, NetworkConfig] | None = None,
    environment: Mapping[str, Any] | None = None,
    population: Mapping[str, Any] | None = None,
    **changes: Any,
) -> LearnerSetup:
    """What a learner is told of an environment, by default one of all agents' own sides.

    Args:
        networks: Networks of populations that have another one.
        environment: Settings of the environment.
        population: Settings of every population.
    """
    sides = sides or each_alone(spec)
    populations = populations or {"player": spec.agents}
    given = {"id": spec.id, "num_envs": NUM_ENVS, **(environment or {})}
    fields = {"launch_directory": str(root), "device": "cpu", "precision": "float32", **changes}
    return LearnerSetup(
        run="test",
        root=str(root),
        environment=EnvironmentConfig.model_validate(given),
        spec=spec,
        sides=sides,
        seats=make_seats(agents=spec.agents, sides=sides, populations=populations),
        populations={
            name: PopulationSetup(
                **{"agents": agents, "network": NETWORK, **(population or {})}
                | ({"network": networks[name]} if networks else {})
            )
            for name, agents in populations.items()
        },
        **fields,
    )


def make_setup(
    root: Path,
    *,
    network: NetworkConfig = NETWORK,
    algorithm_settings: Mapping[str, object] | None = None,
    **changes: Any,
) -> LearnerSetup:
    agents = ("a", "b")
    agent_spec = AgentSpec(
        observation=describe(gymnasium.spaces.Box(-1e6, 1e6, (4,), np.float32)),
        action=describe(gymnasium.spaces.Discrete(3)),
        mask="observation",
    )
    spec = EnvironmentSpec(
        id="scripted",
        kwargs={},
        api="aec",
        agents=agents,
        agent_specs=dict.fromkeys(agents, agent_spec),
    )
    settings = dict(algorithm_settings or {})
    return setup_of(
        root, spec, population={"network": network, "algorithm_settings": settings}, **changes
    )


def trainee(
    checkpoint: CheckpointRef | None, *, policy: PolicyId = POLICY, **changes: Any
) -> Trainee:
    fields = {"hyperparameters": HYPERPARAMETERS, **changes}
    return make_trainee(policy, checkpoint=checkpoint, **fields)


def me(policy: PolicyId = POLICY) -> Player:
    return Player(player=PlayerId(policy))


def mirror(policy: PolicyId = POLICY) -> Seating:
    return Seating(players=(me(policy), me(policy)))


def train(
    checkpoint: CheckpointRef | None,
    *seatings: Seating,
    agent_steps: int = 100,
    policy: PolicyId = POLICY,
    seed: int = 11,
    may_stop_early: bool = False,
    trainees: tuple[Trainee, ...] | None = None,
    **changes: Any,
) -> Train:
    return make_train(
        *(trainees or (trainee(checkpoint, policy=policy, **changes),)),
        attempt=2,
        opponents=seatings,
        agent_steps=agent_steps,
        seed=seed,
        may_stop_early=may_stop_early,
    )


def evaluate(*pairings: tuple[*tuple[Player, ...], int], seed: int = 3) -> Evaluate:
    return make_evaluate(
        assignment_id=AssignmentId(7),
        pairings=tuple(
            Pairing(seating=Seating(players=tuple(players)), num_matches=num_matches)
            for *players, num_matches in pairings
        ),
        seed=seed,
    )


def finished(answer: Finished | Failed) -> Finished:
    assert isinstance(answer, Finished), answer
    return answer


def failed(answer: Finished | Failed) -> Failed:
    assert isinstance(answer, Failed), answer
    return answer


def frozen(root: Path, checkpoint: CheckpointRef, name: str) -> Player:
    manifest = load_checkpoint(root, checkpoint)[0]
    weights = WeightsRef(digest=manifest.weights_digest, key=checkpoint.key)
    return Player(player=PlayerId(name), weights=weights)


def published(answer: Finished | Failed) -> CheckpointRef:
    return finished(answer).checkpoints[0].checkpoint


class Bench:
    """A run directory, workers on it, and the messages that they are sent."""

    trainee = staticmethod(trainee)
    me = staticmethod(me)
    mirror = staticmethod(mirror)
    train = staticmethod(train)
    evaluate = staticmethod(evaluate)
    finished = staticmethod(finished)
    failed = staticmethod(failed)
    published = staticmethod(published)

    def __init__(self, root: Path, env: Callable[[], Any]) -> None:
        self.root = root
        self.env = env
        self.progress = Counted()
        self.num_made = 0
        self.should_stop: Callable[[], bool] = lambda: False

    def make_env(self, *_: object, **__: object) -> Any:
        self.num_made += 1
        return self.env()

    def worker(self, **changes: Any) -> Worker:
        return Worker(
            make_setup(self.root, **changes),
            progress=self.progress,
            should_stop=lambda: self.should_stop(),
        )

    def start(self, worker: Worker, *, policy: PolicyId = POLICY, seed: int = 5) -> CheckpointRef:
        return published(worker.carry_out(train(None, agent_steps=0, policy=policy, seed=seed)))

    def frozen(self, checkpoint: CheckpointRef, name: str) -> Player:
        return frozen(self.root, checkpoint, name)

    def manifest(self, checkpoint: CheckpointRef) -> Manifest:
        return load_checkpoint(self.root, checkpoint)[0]

    def weights_sha256(self, checkpoint: CheckpointRef) -> str:
        return hashlib.sha256((self.root / checkpoint.key / WEIGHTS).read_bytes()).hexdigest()


@pytest.fixture
def make_bench(
    scripted_env: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Bench]:
    """Benches whose environment pays one for each action 2; ``name`` is the run directory."""

    def make(name: str = "run") -> Bench:
        def env() -> Any:
            made = scripted_env(num_envs=NUM_ENVS, length=lambda seed, episode: 2 + seed % 3)
            made.reward = lambda seed, episode, step, agent: float(
                step % 2 == agent
                and next(r[4] for r in reversed(made.decisions) if r[:3] == (seed, episode, step))
                == 2
            )
            return made

        root = tmp_path / name
        root.mkdir()
        bench = Bench(root, env)
        monkeypatch.setattr("arena.learners.work.worker.make_batched_env", bench.make_env)
        return bench

    return make


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
