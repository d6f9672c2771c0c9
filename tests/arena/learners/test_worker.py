from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from arena.checkpoints.manifest import WEIGHTS, Manifest
from arena.checkpoints.tensors import load_checkpoint, load_weights
from arena.config import EnvironmentConfig, LearnerSetup, NetworkConfig, PopulationSetup
from arena.envs.spaces import describe
from arena.envs.spec import AgentSpec, EnvironmentSpec
from arena.errors import EnvironmentFault
from arena.learners.worker import Worker
from arena.matches.seating import make_seats
from arena.networks.frozen import FrozenPolicy
from arena.types import (
    AssignmentId,
    CheckpointRef,
    Entrant,
    Player,
    PlayerId,
    PolicyId,
    Seating,
    WeightsRef,
)
from arena.wire.messages import Evaluate, Failed, Finished, Pairing, Train, Trainee

NETWORK = NetworkConfig(hidden_sizes=(8,))
HYPERPARAMETERS: dict[str, float] = {"rollout_length": 8, "num_epochs": 2, "num_minibatches": 2}
POLICY = PolicyId("player/p000")
RANDOM = Player(player=PlayerId("bot:random"))
NUM_ENVS = 6


class CountingProgress:
    def __init__(self) -> None:
        self.turns = 0
        self.agent_steps = 0

    def advance(self, agent_steps: int = 0) -> None:
        self.turns += 1
        self.agent_steps += agent_steps


def make_setup(root: Path, *, network: NetworkConfig = NETWORK) -> LearnerSetup:
    agents = ("a", "b")
    agent_spec = AgentSpec(
        observation=describe(gymnasium.spaces.Box(-1e6, 1e6, (4,), np.float32)),
        action=describe(gymnasium.spaces.Discrete(3)),
        mask="observation",
    )
    sides = {"a": ("a",), "b": ("b",)}
    return LearnerSetup(
        run="test",
        root=str(root),
        launch_directory=str(root),
        environment=EnvironmentConfig(id="scripted", num_envs=NUM_ENVS),
        spec=EnvironmentSpec(
            id="scripted",
            kwargs={},
            api="aec",
            agents=agents,
            agent_specs=dict.fromkeys(agents, agent_spec),
        ),
        sides=sides,
        seats=make_seats(agents=agents, sides=sides, populations={"player": agents}),
        populations={"player": PopulationSetup(agents=agents, network=network)},
        device="cpu",
        precision="float32",
    )


class Bench:
    """A run directory, and workers on it."""

    def __init__(self, root: Path, env: Callable[[], Any]) -> None:
        self.root = root
        self.env = env
        self.progress = CountingProgress()
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
        return Player(
            player=PlayerId(name),
            weights=WeightsRef(digest=self.manifest(checkpoint).weights_digest, key=checkpoint.key),
        )

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
        monkeypatch.setattr("arena.learners.worker.make_batched_env", bench.make_env)
        return bench

    return make


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()


def trainee(
    checkpoint: CheckpointRef | None,
    *,
    policy: PolicyId = POLICY,
    **changes: Any,
) -> Trainee:
    fields: dict[str, Any] = {
        "policy": policy,
        "generation": 0,
        "agent_steps": 0,
        "learner_updates": 0,
        "checkpoint": checkpoint,
        "hyperparameters": HYPERPARAMETERS,
    }
    return Trainee(**{**fields, **changes})


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
    return Train(
        assignment_id=AssignmentId(1),
        attempt=2,
        trainees=trainees or (trainee(checkpoint, policy=policy, **changes),),
        opponents=seatings,
        agent_steps=agent_steps,
        deadline_s=60.0,
        seed=seed,
        may_stop_early=may_stop_early,
    )


def evaluate(*pairings: tuple[Player, Player, int], seed: int = 3) -> Evaluate:
    return Evaluate(
        assignment_id=AssignmentId(7),
        attempt=1,
        pairings=tuple(
            Pairing(seating=Seating(players=(home, away)), num_matches=num_matches)
            for home, away, num_matches in pairings
        ),
        deadline_s=60.0,
        seed=seed,
    )


def finished(answer: Finished | Failed) -> Finished:
    assert isinstance(answer, Finished), answer
    return answer


def failed(answer: Finished | Failed) -> Failed:
    assert isinstance(answer, Failed), answer
    return answer


def published(answer: Finished | Failed) -> CheckpointRef:
    return finished(answer).checkpoints[0].checkpoint


def test_no_steps_publishes_first_weights_that_the_seed_decides(bench: Bench) -> None:
    worker = bench.worker()
    first = bench.start(worker, seed=5)
    assert bench.start(bench.worker(), seed=5) == first
    assert bench.start(worker, seed=6).digest != first.digest
    manifest = bench.manifest(first)
    assert (manifest.policy, manifest.agent_steps, manifest.learner_updates) == (POLICY, 0, 0)
    assert (manifest.parent, manifest.donor) == (None, None)
    assert bench.num_made == 0


def test_initial_weights_come_from_another_player(bench: Bench) -> None:
    worker = bench.worker()
    other = bench.frozen(bench.start(worker, seed=5), "player/p009")
    checkpoint = published(
        worker.carry_out(train(None, agent_steps=0, seed=99, initial_weights=other.weights))
    )
    assert bench.manifest(checkpoint).weights_digest == other.weights.digest  # type: ignore[union-attr]


def test_training_does_whole_rollouts_until_the_budget_is_reached(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    answer = finished(worker.carry_out(train(start, mirror(), agent_steps=100, generation=3)))
    assert (answer.assignment_id, answer.attempt) == (1, 2)
    checkpoint = answer.checkpoints[0].checkpoint
    manifest = bench.manifest(checkpoint)
    # A rollout is 8 steps of 6 environments with one decision each: three of them exceed 100.
    assert manifest.agent_steps == 3 * 48
    assert bench.progress.agent_steps == 3 * 48
    assert (manifest.parent, manifest.generation) == (start.digest, 3)
    # Two epochs of two minibatches in each of three updates.
    assert manifest.learner_updates == 12
    assert {t.entrants for t in answer.tallies} == {("player/p000#3", "player/p000#3")}
    assert checkpoint.digest != start.digest


def test_counters_go_on_from_the_policys_own(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    policy = trainee(start, agent_steps=5000, learner_updates=700)
    answer = worker.carry_out(train(None, mirror(), agent_steps=1, trainees=(policy,)))
    manifest = bench.manifest(published(answer))
    assert (manifest.agent_steps, manifest.learner_updates) == (5048, 704)


def test_a_donors_weights_come_first_and_hyperparameters_after(bench: Bench) -> None:
    worker = bench.worker()
    donor = PolicyId("player/p001")
    donor_checkpoint = published(
        worker.carry_out(
            train(
                bench.start(worker, policy=donor),
                mirror(donor),
                policy=donor,
                hyperparameters={**HYPERPARAMETERS, "learning_rate": 1e-3},
            )
        )
    )
    answer = finished(
        worker.carry_out(
            train(
                donor_checkpoint,
                mirror(),
                donor=donor,
                generation=1,
                hyperparameters={**HYPERPARAMETERS, "learning_rate": 2e-3},
            )
        )
    )
    manifest = bench.manifest(answer.checkpoints[0].checkpoint)
    assert (manifest.policy, manifest.donor) == (POLICY, donor)
    assert manifest.parent == donor_checkpoint.digest
    assert manifest.hyperparameters["learning_rate"] == 2e-3
    assert answer.metrics["optimizer/learning_rate"] == pytest.approx(2e-3)


def test_an_assignment_is_a_function_of_its_message_and_checkpoints(
    make_bench: Callable[..., Bench],
) -> None:
    def chain(bench: Bench, *, keep_worker: bool) -> tuple[Any, ...]:
        worker = bench.worker()
        checkpoint = bench.start(worker)
        ghost = bench.frozen(checkpoint, "player/p000@000000000000")
        answers = []
        updates = 0
        for seed in (1, 2, 3):
            if not keep_worker:
                worker = bench.worker()
            seatings = (
                mirror(),
                Seating(players=(me(), ghost)),
                Seating(players=(RANDOM, me())),
            )
            message = train(checkpoint, *seatings, seed=seed, learner_updates=updates)
            answer = finished(worker.carry_out(message))
            checkpoint = answer.checkpoints[0].checkpoint
            updates = bench.manifest(checkpoint).learner_updates
            answers.append((answer.checkpoints, answer.tallies))
        return tuple(answers)

    kept = chain(make_bench("kept"), keep_worker=True)
    assert chain(make_bench("fresh"), keep_worker=False) == kept
    assert len({answer[0] for answer in kept}) == 3


def test_the_same_message_again_gives_the_same_result(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    message = train(start, mirror(), Seating(players=(me(), RANDOM)))
    one = finished(worker.carry_out(message))
    torch.rand(100)
    again = finished(worker.carry_out(message))
    assert (one.checkpoints, one.tallies) == (again.checkpoints, again.tallies)
    other = train(start, mirror(), Seating(players=(me(), RANDOM)), seed=12)
    assert finished(worker.carry_out(other)).checkpoints != one.checkpoints
    assert bench.num_made == 1


def test_frozen_players_never_change(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    ghost_checkpoint = bench.start(worker, policy=PolicyId("player/p001"), seed=8)
    ghost = bench.frozen(ghost_checkpoint, "player/p001")
    before = bench.weights_sha256(ghost_checkpoint)
    finished(
        worker.carry_out(
            train(start, Seating(players=(me(), ghost)), Seating(players=(ghost, me())))
        )
    )
    finished(worker.carry_out(evaluate((ghost, RANDOM, 20))))
    assert bench.weights_sha256(ghost_checkpoint) == before == ghost.weights.digest  # type: ignore[union-attr]


def test_a_ghosts_logits_survive_a_thousand_updates_of_its_policy(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    ghost = bench.frozen(start, "player/p000@000000000000")
    assert ghost.weights is not None
    observation = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))

    def logits() -> torch.Tensor:
        assert ghost.weights is not None
        cached = worker._players.frozen(ghost, population="player")
        assert isinstance(cached, FrozenPolicy)
        loaded = FrozenPolicy.from_weights(
            NETWORK, load_weights(bench.root, ghost.weights)[1], device=torch.device("cpu")
        )
        assert torch.equal(cached.logits(observation), loaded.logits(observation))
        return cached.logits(observation)

    before = logits()
    answer = worker.carry_out(
        train(
            start,
            Seating(players=(me(), ghost)),
            Seating(players=(ghost, me())),
            agent_steps=24 * 10,
            hyperparameters={**HYPERPARAMETERS, "num_epochs": 50, "learning_rate": 1e-2},
        )
    )
    manifest = bench.manifest(published(answer))
    assert manifest.learner_updates >= 1000
    assert manifest.weights_digest != ghost.weights.digest
    assert torch.equal(logits(), before)


def test_evaluation_plays_exactly_its_matches_and_names_what_played(bench: Bench) -> None:
    worker = bench.worker()
    one = bench.frozen(bench.start(worker, seed=1), "player/p000")
    other = bench.frozen(bench.start(worker, seed=2), "player/p000@000000000000")
    assert one.weights is not None
    assert other.weights is not None
    message = evaluate((one, other, 13), (other, one, 13), (one, RANDOM, 7), (one, one, 1))
    answer = finished(worker.carry_out(message))
    a, b = Entrant(one.weights.digest), Entrant(other.weights.digest)
    assert {t.entrants: t.matches for t in answer.tallies} == {
        (a, b): 13,
        (b, a): 13,
        (a, Entrant("bot:random")): 7,
        (a, a): 1,
    }
    for tally in answer.tallies:
        (pair,) = tally.pairs
        assert pair.wins + pair.draws + pair.losses == tally.matches
    assert answer.checkpoints == ()
    assert finished(bench.worker().carry_out(message)).tallies == answer.tallies


def test_more_pairings_than_environments_are_played_in_waves(bench: Bench) -> None:
    worker = bench.worker()
    one = bench.frozen(bench.start(worker), "player/p000")
    pairings = [(one, RANDOM, 2)] * (2 * NUM_ENVS + 1)
    (tally,) = finished(worker.carry_out(evaluate(*pairings))).tallies
    assert tally.matches == 2 * len(pairings)


def test_two_policies_train_together(bench: Bench) -> None:
    worker = bench.worker()
    other = PolicyId("player/p001")
    trainees = (
        trainee(bench.start(worker)),
        trainee(bench.start(worker, policy=other, seed=6), policy=other),
    )
    answer = finished(
        worker.carry_out(
            train(
                None,
                Seating(players=(me(), me(other))),
                Seating(players=(me(other), me())),
                trainees=trainees,
            )
        )
    )
    steps = {p.policy: bench.manifest(p.checkpoint).agent_steps for p in answer.checkpoints}
    assert set(steps) == {POLICY, other}
    # Whose turn it is differs by environment, but every decision belongs to one of them.
    assert sum(steps.values()) == 3 * 48
    assert min(steps.values()) > 0
    assert f"{other}/loss/policy" in answer.metrics


def test_metrics_are_finite_and_say_what_happened(bench: Bench) -> None:
    worker = bench.worker()
    answer = finished(worker.carry_out(train(bench.start(worker), mirror())))
    assert all(math.isfinite(value) for value in answer.metrics.values())
    assert {
        "loss/policy",
        "optimizer/learning_rate",
        "episode/return_mean",
        "episode/length_mean",
        "episode/count",
        "throughput/agent_steps_per_s",
        "time/collect_s",
        "time/update_s",
        "time/publish_s",
    } <= set(answer.metrics)
    matches = sum(tally.matches for tally in answer.tallies)
    assert answer.metrics["episode/count"] == matches
    length_sum = sum(tally.length_sum for tally in answer.tallies)
    assert answer.metrics["episode/length_mean"] == pytest.approx(length_sum / matches)


def test_more_seatings_than_environments_are_drawn_from(bench: Bench) -> None:
    worker = bench.worker()
    ghost = bench.frozen(bench.start(worker, seed=9), "player/p001")
    seatings = [Seating(players=(me(), ghost)), Seating(players=(ghost, me()))] * NUM_ENVS
    answer = finished(worker.carry_out(train(bench.start(worker), *seatings)))
    assert {len(set(t.entrants)) for t in answer.tallies} == {2}


@pytest.mark.parametrize(("may_stop_early", "num_rollouts"), [(True, 1), (False, 0)])
def test_told_to_stop(bench: Bench, may_stop_early: bool, num_rollouts: int) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    bench.should_stop = lambda: bench.progress.turns > 0
    answer = worker.carry_out(
        train(start, mirror(), agent_steps=10_000, may_stop_early=may_stop_early)
    )
    if num_rollouts:
        assert bench.manifest(published(answer)).agent_steps == 48
    else:
        assert failed(answer).kind == "stopped"
        policy_directory = bench.root / "populations" / POLICY / "checkpoints"
        assert len(list(policy_directory.iterdir())) == 1


def test_told_to_stop_before_the_start_publishes_nothing(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    bench.should_stop = lambda: True
    assert failed(worker.carry_out(train(start, mirror(), may_stop_early=True))).kind == "stopped"
    assert failed(worker.carry_out(evaluate((RANDOM, RANDOM, 1)))).kind == "stopped"
    assert bench.progress.turns == 0


def test_evaluation_can_be_stopped_in_between(bench: Bench) -> None:
    bench.should_stop = lambda: bench.progress.turns > 2
    answer = failed(bench.worker().carry_out(evaluate((RANDOM, RANDOM, 1000))))
    assert (answer.kind, bench.progress.turns) == ("stopped", 3)


def test_a_missing_checkpoint_is_named(bench: Bench) -> None:
    start = bench.start(bench.worker())
    gone = CheckpointRef(digest=start.digest, key=start.key.replace("p000", "p777"))
    answer = failed(bench.worker().carry_out(train(gone, mirror(), agent_steps=1)))
    assert (answer.kind, answer.key, answer.policy) == ("checkpoint", gone.key, POLICY)
    assert (answer.assignment_id, answer.attempt) == (1, 2)


def test_a_damaged_ghost_is_named(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    ghost = bench.frozen(start, "player/p000@000000000000")
    file = bench.root / start.key / WEIGHTS
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\1\0")
    answer = failed(bench.worker().carry_out(evaluate((ghost, RANDOM, 1))))
    assert (answer.kind, answer.key) == ("checkpoint", start.key)


def test_a_checkpoint_of_another_architecture_is_refused(bench: Bench) -> None:
    start = bench.start(bench.worker())
    other = bench.worker(network=NetworkConfig(hidden_sizes=(16,)))
    answer = failed(other.carry_out(train(start, mirror())))
    assert (answer.kind, answer.key) == ("checkpoint", start.key)
    assert "its network is" in answer.reason
    assert "16" in answer.reason


def test_numbers_that_are_not_finite_name_the_policy(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    hyperparameters = {**HYPERPARAMETERS, "learning_rate": 1e30}
    message = train(start, mirror(), agent_steps=10_000, hyperparameters=hyperparameters)
    answer = failed(worker.carry_out(message))
    assert (answer.kind, answer.policy) == ("non_finite", POLICY)


def test_an_environment_that_breaks_is_replaced(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    make = bench.env

    def broken() -> Any:
        env = make()

        def step(actions: object) -> object:
            raise EnvironmentFault("reward of agent a is nan")

        env.step = step
        return env

    bench.env = broken
    answer = failed(worker.carry_out(train(start, mirror())))
    assert (answer.kind, answer.reason) == ("environment", "reward of agent a is nan")
    bench.env = make
    finished(worker.carry_out(train(start, mirror())))
    assert bench.num_made == 2


def test_a_seating_that_leaves_a_trainee_out_is_an_error(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    other = PolicyId("player/p001")
    trainees = (trainee(start), trainee(start, policy=other))
    answer = failed(worker.carry_out(train(None, mirror(), trainees=trainees)))
    assert answer.kind == "error"
    assert "player/p001 has no seat" in answer.reason


def test_a_player_without_weights_is_an_error(bench: Bench) -> None:
    worker = bench.worker()
    stranger = Player(player=PlayerId("player/p005"))
    answer = failed(worker.carry_out(train(bench.start(worker), Seating(players=(me(), stranger)))))
    assert (answer.kind, "player/p005" in answer.reason) == ("error", True)
