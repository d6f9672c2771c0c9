"""What a worker answers when an assignment cannot be done, or must end early."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file

from arena.checkpoints.manifest import WEIGHTS
from arena.config import NetworkConfig
from arena.errors import (
    ConfigError,
    DiskRefused,
    EnvironmentFault,
    EnvironmentNotMade,
    EnvWorkersLost,
    WireError,
)
from arena.learners.loop import carry_out
from arena.learners.work.faults import (
    MAX_REASON,
    MAX_SILENT_ROLLOUTS,
    AssignmentFault,
    Reached,
    Silence,
    fault_of,
)
from arena.learners.work.worker import Worker
from arena.spaces import ObservationLayout
from arena.types import CheckpointRef, Player, PlayerId, PolicyId, Seating
from tests.arena.learners.conftest import evaluate, failed, setup_of
from tests.arena.samples import ASSETS, Counted, facts_of

if TYPE_CHECKING:
    from tests.arena.learners.conftest import Bench

POLICY = PolicyId("player/p000")
RANDOM = Player(player=PlayerId("bot:random"))


@pytest.mark.parametrize(
    ("may_stop_early", "turns", "num_rollouts"), [(True, 8, 1), (True, 0, 0), (False, 8, 0)]
)
def test_told_to_stop(bench: Bench, may_stop_early: bool, turns: int, num_rollouts: int) -> None:
    """A rollout is eight turns; one that was begun is thrown away."""
    worker = bench.worker()
    start = bench.start(worker)
    bench.should_stop = lambda: bench.progress.turns > turns
    answer = worker.carry_out(
        bench.train(start, bench.mirror(), agent_steps=10_000, may_stop_early=may_stop_early)
    )
    if num_rollouts:
        assert bench.manifest(bench.published(answer)).agent_steps == 48
    else:
        assert bench.failed(answer).kind == "stopped"
        policy_directory = bench.root / "populations" / POLICY / "checkpoints"
        assert len(list(policy_directory.iterdir())) == 1


def test_told_to_stop_before_the_start_publishes_nothing(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    bench.should_stop = lambda: True
    assert (
        bench.failed(worker.carry_out(bench.train(start, bench.mirror(), may_stop_early=True))).kind
        == "stopped"
    )
    assert bench.failed(worker.carry_out(bench.evaluate((RANDOM, RANDOM, 1)))).kind == "stopped"
    assert bench.progress.turns == 0


def test_evaluation_can_be_stopped_in_between(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench.should_stop = lambda: bench.progress.turns > 2
    answer = bench.failed(bench.worker().carry_out(bench.evaluate((RANDOM, RANDOM, 1000))))
    assert (answer.kind, bench.progress.turns) == ("stopped", 3)
    assert not [record for record in caplog.records if record.exc_info]


def test_a_missing_checkpoint_is_named(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    start = bench.start(bench.worker())
    gone = CheckpointRef(digest=start.digest, key=start.key.replace("p000", "p777"))
    answer = bench.failed(
        bench.worker().carry_out(bench.train(gone, bench.mirror(), agent_steps=1))
    )
    assert (answer.kind, answer.key, answer.policy) == ("checkpoint", gone.key, POLICY)
    assert (answer.assignment_id, answer.attempt) == (1, 2)
    assert "assignment 1 failed" in [one.message for one in caplog.records if one.exc_info]


def test_a_damaged_ghost_is_named(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    ghost = bench.frozen(start, "player/p000@000000000000")
    file = bench.root / start.key / WEIGHTS
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\1\0")
    answer = bench.failed(bench.worker().carry_out(bench.evaluate((ghost, RANDOM, 1))))
    assert (answer.kind, answer.key) == ("checkpoint", start.key)


def test_a_checkpoint_of_another_architecture_is_refused(bench: Bench) -> None:
    start = bench.start(bench.worker())
    other = bench.worker(network=NetworkConfig(hidden_sizes=(16,)))
    answer = bench.failed(other.carry_out(bench.train(start, bench.mirror())))
    assert (answer.kind, answer.key) == ("checkpoint", start.key)
    assert "its network is" in answer.reason
    assert "16" in answer.reason


def test_numbers_that_are_not_finite_name_the_policy(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    hyperparameters = {"rollout_length": 8, "learning_rate": 1e30}
    message = bench.train(
        start, bench.mirror(), agent_steps=10_000, hyperparameters=hyperparameters
    )
    answer = bench.failed(worker.carry_out(message))
    assert (answer.kind, answer.policy) == ("non_finite", POLICY)


def breaking(make: Callable[[], Any], error: Exception) -> Callable[[], Any]:
    """Make environments whose every step raises."""

    def env() -> Any:
        made = make()

        def step(actions: object) -> object:
            raise error

        made.step = step
        return made

    return env


def test_an_environment_that_breaks_is_replaced(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    make = bench.env
    bench.env = breaking(make, EnvironmentFault("reward of agent a is nan"))
    answer = bench.failed(worker.carry_out(bench.train(start, bench.mirror())))
    assert (answer.kind, answer.reason) == ("environment", "reward of agent a is nan")
    bench.env = make
    bench.finished(worker.carry_out(bench.train(start, bench.mirror())))
    assert bench.num_made == 2


def test_a_reason_that_no_message_takes_keeps_its_place(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    bench.env = breaking(bench.env, EnvironmentFault("\ud800" + 20_000 * "x"))
    # The answer is also checked to be encodable.
    answer = bench.failed(carry_out(worker, bench.train(start, bench.mirror())))
    assert (answer.kind, answer.reason) == ("environment", "?" + (MAX_REASON - 1) * "x")


def test_an_environment_that_cannot_be_made_is_a_failure_of_its_own(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    make = bench.env

    def gone() -> Any:
        raise SystemExit("no licence")

    bench.env = gone
    answer = bench.failed(worker.carry_out(bench.train(start, bench.mirror())))
    assert answer.kind == "making"
    assert "raised SystemExit: no licence" in answer.reason
    bench.env = make
    bench.finished(worker.carry_out(bench.train(start, bench.mirror())))


def no_winner(returns: object, infos: object) -> dict[str, float]:
    raise LookupError("nobody has won")


def test_an_outcome_that_raises_in_a_batched_game_is_users_code(tmp_path: Path) -> None:
    setup = setup_of(
        tmp_path,
        facts_of("batched_games:TakesTurns"),
        environment={"outcome": f"{__name__}:no_winner"},
        launch_directory=ASSETS,
    )
    worker = Worker(setup, progress=Counted(), should_stop=lambda: False)
    answer = failed(worker.carry_out(evaluate((RANDOM, RANDOM, 6))))
    worker.close()
    assert answer.kind == "code"
    assert "no_winner raised LookupError: nobody has won\n" in answer.reason


class Picky(torch.nn.Module):
    """An encoder that fails with the weights whose mark is named."""

    fails_with: ClassVar[list[float]] = []

    mark: torch.Tensor

    def __init__(self, observation: ObservationLayout) -> None:
        super().__init__()
        self.num_features = 4
        self.layer = torch.nn.Linear(observation.size, self.num_features)
        self.register_buffer("mark", torch.rand(1))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if float(self.mark) in self.fails_with:
            raise LookupError("no such word")
        features: torch.Tensor = self.layer(rows)
        return features


def test_a_network_that_raises_names_its_policy_or_the_weights_that_it_plays_with(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = NetworkConfig(encoder=f"{__name__}:Picky", hidden_sizes=(4,))
    worker = bench.worker(network=network)
    mine, other = bench.start(worker), bench.start(worker, seed=6)
    rival = bench.frozen(other, "player/p001")
    training = bench.train(mine, Seating(players=(bench.me(), rival)))
    match = bench.evaluate((bench.frozen(mine, "player/p000"), rival, 1))

    def fails_with(checkpoint: CheckpointRef) -> None:
        weights = load_file(bench.root / checkpoint.key / WEIGHTS)
        (mark,) = [float(tensor) for name, tensor in weights.items() if name.endswith("mark")]
        monkeypatch.setattr(Picky, "fails_with", [mark])

    fails_with(other)
    for message in (training, match):
        answer = bench.failed(worker.carry_out(message))
        assert (answer.kind, answer.policy, answer.key) == ("code", None, other.key)
        assert "LookupError: no such word" in answer.reason
    fails_with(mine)
    answer = bench.failed(worker.carry_out(training))
    assert (answer.kind, answer.policy, answer.key) == ("code", POLICY, None)
    assert "LookupError: no such word" in answer.reason
    answer = bench.failed(worker.carry_out(match))
    assert (answer.kind, answer.policy, answer.key) == ("code", None, mine.key)
    monkeypatch.setattr(Picky, "fails_with", [])
    bench.published(worker.carry_out(training))


def test_a_seating_that_leaves_a_trainee_out_is_an_error(bench: Bench) -> None:
    worker = bench.worker()
    start = bench.start(worker)
    other = PolicyId("player/p001")
    trainees = (bench.trainee(start), bench.trainee(start, policy=other))
    answer = bench.failed(worker.carry_out(bench.train(None, bench.mirror(), trainees=trainees)))
    assert answer.kind == "error"
    assert "player/p001 has no seat" in answer.reason


def test_a_player_without_weights_is_an_error(bench: Bench) -> None:
    worker = bench.worker()
    stranger = Player(player=PlayerId("player/p005"))
    answer = bench.failed(
        worker.carry_out(bench.train(bench.start(worker), Seating(players=(bench.me(), stranger))))
    )
    assert (answer.kind, "player/p005" in answer.reason) == ("error", True)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (AssignmentFault("stopped", "x"), "stopped"),
        (EnvironmentNotMade("x"), "making"),
        (EnvironmentFault("x"), "environment"),
        (EnvWorkersLost("x"), "environment"),
        (ConfigError("bot:x:Y in act raised SystemExit"), "code"),
        (DiskRefused("x"), "storage"),
        (MemoryError(), "place"),
        (OSError(24, "too many open files"), "place"),
        (WireError("Finished cannot be sent: it has 2000000 bytes, more than 1048576"), "message"),
        (ValueError("an action is not legal"), "error"),
    ],
)
def test_a_failure_is_of_the_kind_of_its_place(error: BaseException, kind: str) -> None:
    assert fault_of(error).kind == kind


def test_an_error_in_a_users_file_is_its_codes() -> None:
    # This test file stands for user code: it belongs to no installed package.
    with pytest.raises(KeyError) as caught:
        raise KeyError("x")
    fault = fault_of(caught.value)
    assert (fault.kind, fault.reason.splitlines()[0]) == ("code", "KeyError: 'x'")


SILENT, OTHER = PolicyId("player/p000"), PolicyId("player/p001")


def test_who_never_decides_beside_somebody_who_does_is_named() -> None:
    """A team of which one member's agents are never asked."""
    silence = Silence(num_envs=2)
    before = {SILENT: 0, OTHER: 0}
    for rollout in range(1, 17):
        reached = Reached(
            agent_steps={SILENT: 8 * rollout, OTHER: 0},
            num_episodes=rollout,
            is_done=False,
        )
        if rollout == 16:
            with pytest.raises(AssignmentFault, match=f"{OTHER} made no decision in 16 rollouts"):
                silence.add(reached, agent_steps_before=before)
        else:
            silence.add(reached, agent_steps_before=before)
        before = dict(reached.agent_steps)


def test_without_ended_episodes_it_takes_longer() -> None:
    silence = Silence(num_envs=2)
    reached = Reached(agent_steps={SILENT: 0}, num_episodes=0, is_done=False)
    for _ in range(MAX_SILENT_ROLLOUTS - 1):
        silence.add(reached, agent_steps_before={SILENT: 0})
    with pytest.raises(AssignmentFault, match="in which 0 episodes ended"):
        silence.add(reached, agent_steps_before={SILENT: 0})


def test_a_decision_begins_the_count_anew() -> None:
    silence = Silence(num_envs=1)
    steps = 0
    for rollout in range(1, 40):
        before, steps = steps, steps + (rollout % 10 == 0)
        reached = Reached(
            agent_steps={SILENT: steps},
            num_episodes=rollout,
            is_done=False,
        )
        silence.add(reached, agent_steps_before={SILENT: before})
