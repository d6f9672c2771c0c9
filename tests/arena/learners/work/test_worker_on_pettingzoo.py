"""Whole assignments on real environments, with nothing faked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from arena.checkpoints.manifest import Manifest
from arena.checkpoints.tensors import load_checkpoint
from arena.config import LearnerSetup, NetworkConfig, NormalizerWarmUp
from arena.environment_spec import EnvironmentRequest, EnvironmentSpec
from arena.envs.inspect import inspect_environment, inspect_lessons
from arena.errors import ConfigError
from arena.learners.work.worker import Worker
from arena.matches.teammates import seats_per_agent
from arena.types import CheckpointRef, Entrant, Player, PlayerId, PolicyId, Seating
from arena.wire.messages import Failed, Finished, Train
from tests.arena.learners import conftest as messages
from tests.arena.learners.conftest import evaluate, finished, frozen, published, setup_of, trainee
from tests.arena.samples import ASSETS, Counted

RANDOM = Player(player=PlayerId("bot:random"))
HYPERPARAMETERS: dict[str, float] = {"rollout_length": 16, "num_epochs": 1, "num_minibatches": 2}


def make_setup(
    root: Path,
    environment: str,
    *,
    num_envs: int,
    launch_directory: str = "",
    kwargs: Mapping[str, object] | None = None,
    lessons: Sequence[Mapping[str, object]] = (),
    reads_state: bool = False,
    **changes: Any,
) -> LearnerSetup:
    launch_directory = launch_directory or str(root)
    request = EnvironmentRequest(
        environment,
        kwargs=kwargs or {},
        launch_directory=launch_directory,
        reads_state=reads_state,
    )
    return setup_of(
        root,
        inspect_lessons(inspect_environment(request), lessons, request=request),
        environment={"id": environment, "num_envs": num_envs},
        launch_directory=launch_directory,
        **changes,
    )


def make_worker(root: Path, environment: str, **options: Any) -> Worker:
    setup = make_setup(root, environment, **options)
    return Worker(setup, progress=Counted(), should_stop=lambda: False)


def train(*trainees: tuple[str, CheckpointRef | None], seatings: Any, agent_steps: int) -> Train:
    return messages.train(
        None,
        *(Seating(players=players) for players in seatings),
        trainees=tuple(
            trainee(checkpoint, policy=PolicyId(policy), hyperparameters=HYPERPARAMETERS)
            for policy, checkpoint in trainees
        ),
        agent_steps=agent_steps,
        seed=4,
    )


def start(worker: Worker, policy: str) -> CheckpointRef:
    return published(worker.carry_out(train((policy, None), seatings=(), agent_steps=0)))


def live(policy: str) -> Player:
    return Player(player=PlayerId(policy))


@pytest.mark.slow
def test_tictactoe_in_turns_with_masks(tmp_path: Path) -> None:
    results = []
    for name in ("one", "other"):
        root = tmp_path / name
        root.mkdir()
        worker = make_worker(root, "classic/tictactoe-v3", num_envs=8)
        first = start(worker, "player/p000")
        me, ghost = live("player/p000"), frozen(root, first, "player/p000@000000000000")
        message = train(
            ("player/p000", first),
            seatings=[(me, me), (me, ghost), (RANDOM, me)],
            agent_steps=300,
        )
        answer = finished(worker.carry_out(message))
        matches = finished(worker.carry_out(evaluate((ghost, RANDOM, 40), (RANDOM, ghost, 40))))
        worker.close()
        results.append((answer.checkpoints, answer.tallies, matches.tallies))
        assert all(math.isfinite(value) for value in answer.metrics.values())
        assert 5 <= answer.metrics["episode/length_mean"] <= 9
        assert [tally.matches for tally in matches.tallies] == [40, 40]
    assert results[0] == results[1]


def test_figures_rewards_and_observations_are_measured(tmp_path: Path) -> None:
    worker = make_worker(tmp_path, "own_figures:FiguresAtOnce", num_envs=4, launch_directory=ASSETS)
    first = start(worker, "player/p000")
    me = live("player/p000")
    answer = finished(
        worker.carry_out(train(("player/p000", first), seatings=[(me, RANDOM)], agent_steps=128))
    )
    metrics = answer.metrics
    assert metrics["rollout/steps_count"] == 32.0, "two rollouts of 16"
    assert metrics["reward/min"] == metrics["reward/max"] == 0.0
    assert metrics["observation/spread"] == 3.0, "the round is 0 to 3 where it is decided"
    assert 0.0 <= metrics["environment/sum_min"] < metrics["environment/sum_max"] <= 4.0
    assert 1.0 < metrics["environment/sum_mean"] < 3.0, "the sum of four coins"
    assert 0.5 < metrics["environment/sum_deviation"] < 1.5
    assert "environment/ignored_count" not in metrics
    worker.close()


@pytest.mark.parametrize(("least", "share"), [(None, 1.0), (4.0, 1.0), (4.5, 0.0)])
def test_success_is_what_the_environment_says_or_a_return(
    least: float | None, share: float, tmp_path: Path
) -> None:
    # Each agent gets 1 in each of 4 steps, and the environment reports success.
    worker = make_worker(
        tmp_path, "lessons:parallel_env", num_envs=4, launch_directory=ASSETS, success_return=least
    )
    first = start(worker, "player/p000")
    seatings = [(live("player/p000"), RANDOM)]
    answer = worker.carry_out(train(("player/p000", first), seatings=seatings, agent_steps=64))
    assert finished(answer).metrics["environment/success_mean"] == share
    worker.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_simple_spread_in_cooperation(tmp_path: Path) -> None:
    pytest.importorskip("mpe2")
    agents = ("agent_0", "agent_1", "agent_2")
    worker = make_worker(
        tmp_path,
        "mpe/simple_spread-v3",
        num_envs=2,
        sides={"all": agents},
        populations={"agent": agents},
    )
    first = start(worker, "agent/p000")
    me = live("agent/p000")
    answer = finished(
        worker.carry_out(train(("agent/p000", first), seatings=[(me, me)], agent_steps=200))
    )
    (tally,) = answer.tallies
    assert tally.pairs == ()
    assert answer.metrics["episode/return_mean"] < 0
    home = frozen(tmp_path, answer.checkpoints[0].checkpoint, "agent/p000")
    evaluated = finished(worker.carry_out(evaluate((home, RANDOM, 3))))
    (compared,) = evaluated.tallies
    (pair,) = compared.pairs
    assert (compared.matches, pair.wins + pair.draws + pair.losses) == (3, 3)
    # Home and away each play an episode of 25 steps; the match counts 25 steps.
    assert answer.metrics["episode/length_mean"] == 25.0
    assert evaluated.metrics["episode/length_mean"] == 25.0
    worker.close()


@pytest.mark.parametrize("num_envs", [400, 2000])
def test_random_against_random_has_the_exact_values_of_tictactoe(
    tmp_path: Path, num_envs: int
) -> None:
    """Exact by recursion over positions: lengths have mean 7.626190 and deviation 1.2987."""
    worker = make_worker(tmp_path, "classic/tictactoe-v3", num_envs=num_envs)
    (tally,) = finished(worker.carry_out(evaluate((RANDOM, RANDOM, 2000)))).tallies
    (pair,) = tally.pairs
    for count, exact in ((pair.wins, 0.584921), (pair.draws, 0.126984), (pair.losses, 0.288095)):
        deviation = math.sqrt(exact * (1 - exact) / 2000)
        assert abs(count / 2000 - exact) < 5 * deviation
    # Every win is a return of 1 for one side and -1 for the other.
    assert tally.return_sum == (pair.wins - pair.losses, pair.losses - pair.wins)
    assert abs(tally.length_sum / 2000 - 7.626190) < 5 * 1.2987 / math.sqrt(2000)
    worker.close()


def test_training_plays_the_lesson_and_matches_the_last_one(tmp_path: Path) -> None:
    worker = make_worker(
        tmp_path,
        "lessons:parallel_env",
        num_envs=2,
        launch_directory=ASSETS,
        kwargs={"length": 7},
        lessons=[{"length": 2}, {"length": 7}, {"length": 3}],
    )
    first = start(worker, "player/p000")
    seatings = [(live("player/p000"), RANDOM)]
    lengths = []
    for lesson in (0, 1, 2):
        message = train(("player/p000", first), seatings=seatings, agent_steps=64)
        answer = finished(worker.carry_out(replace(message, lesson=lesson)))
        lengths.append({tally.length_sum / tally.matches for tally in answer.tallies})
        played = finished(worker.carry_out(evaluate((RANDOM, RANDOM, 4))))
        assert {tally.length_sum / tally.matches for tally in played.tallies} == {7.0}
    assert lengths == [{2.0}, {7.0}, {3.0}]


def test_lessons_with_other_spaces_are_refused_and_their_digest_covers_them() -> None:
    def inspected(*lessons: Mapping[str, object]) -> EnvironmentSpec:
        request = EnvironmentRequest("lessons:parallel_env", launch_directory=ASSETS)
        return inspect_lessons(inspect_environment(request), lessons, request=request)

    words = r"observations of a must be the same in training with .*'width': 5.*\[5\].*\[3\]"
    with pytest.raises(ConfigError, match=words):
        inspected({"width": 5}, {})
    plain, short = inspected(), inspected({"length": 2}, {})
    assert plain.digest != short.digest
    # Results refer to matches alone, so the lessons do not change the digest.
    assert plain.digest == short.of_matches.digest
    assert short.in_lesson(0).kwargs == {"length": 2}


SPEAKER, LISTENER = ("speaker_0",), ("listener_0",)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("speaker", "listener"),
    [
        ({"critic": "joint"}, {"critic": "joint", "agent_id": True, "core": "gru"}),
        ({"critic": "state", "core": "lstm"}, {"critic": "joint"}),
        ({}, {"critic": "state"}),
    ],
)
@pytest.mark.slow
def test_two_populations_learn_together(
    speaker: dict[str, Any], listener: dict[str, Any], tmp_path: Path
) -> None:
    """Each with what its own values see; what they publish plays without it."""
    pytest.importorskip("mpe2")
    common = {"hidden_sizes": (16,), "core_size": 8}
    networks = {
        "speaker": NetworkConfig.model_validate({**common, **speaker}),
        "listener": NetworkConfig.model_validate({**common, **listener}),
    }
    names = ("speaker/p000", "listener/p000")
    results = []
    for attempt in ("one", "other"):
        root = tmp_path / attempt
        root.mkdir()
        worker = make_worker(
            root,
            "mpe2/simple_speaker_listener_v4",
            num_envs=2,
            sides={"team": SPEAKER + LISTENER},
            populations={"speaker": SPEAKER, "listener": LISTENER},
            networks=networks,
            reads_state=True,
        )
        first = [start(worker, name) for name in names]
        # A team of the seating has two seats at home and two away.
        seating = tuple(live(name) for name in names) * 2
        message = train(*zip(names, first, strict=True), seatings=[seating], agent_steps=130)
        answer = finished(worker.carry_out(message))
        assert all(math.isfinite(value) for value in answer.metrics.values())
        home = [
            frozen(root, published.checkpoint, published.policy) for published in answer.checkpoints
        ]
        players = (*home, RANDOM, RANDOM)
        (matches,) = finished(worker.carry_out(evaluate((*players, 2)))).tallies
        assert matches.matches == 2
        worker.close()
        results.append((answer.checkpoints, answer.tallies, matches))
    assert results[0] == results[1]
    _, weights, optimizer = load_checkpoint(tmp_path / "one", results[0][0][1].checkpoint)
    assert "exp_avg.critic.head.weight" in optimizer
    assert float(weights["critic_normalizer.count"]) > 0.0


GAME = "tests.assets.teammates:parallel_env"
ROOT = Path(__file__).parents[4]
NUM_ENVS, ROLLOUT_LENGTH = 6, int(HYPERPARAMETERS["rollout_length"])
POLICY = "player/p000"
TRAINEE = Player(player=PlayerId(POLICY))


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    setup = make_setup(
        tmp_path,
        GAME,
        num_envs=NUM_ENVS,
        sides={"red": ("red_0", "red_1"), "blue": ("blue_0", "blue_1")},
        launch_directory=str(ROOT),
    )
    setup = setup.model_copy(update={"agent_seats": seats_per_agent(setup.seats)})
    return Worker(setup, progress=Counted(), should_stop=lambda: False)


def manifest(root: Path, checkpoint: CheckpointRef) -> Manifest:
    return load_checkpoint(root, checkpoint)[0]


def partner_of(root: Path, worker: Worker, policy: str) -> Player:
    return frozen(root, start(worker, policy), f"{policy}@000000000000")


def steps(root: Path, answer: Finished) -> int:
    return manifest(root, answer.checkpoints[0].checkpoint).agent_steps


@pytest.mark.slow
def test_only_the_trainees_own_seat_trains_and_counts(worker: Worker, tmp_path: Path) -> None:
    partner = partner_of(tmp_path, worker, "player/p001")
    rival = partner_of(tmp_path, worker, "player/p002")
    first = start(worker, POLICY)
    # In each step of each environment one of four decisions is the trainee's.
    seatings = [(TRAINEE, partner, rival, partner), (rival, partner, TRAINEE, partner)]
    answer = finished(worker.carry_out(train((POLICY, first), seatings=seatings, agent_steps=1)))
    assert steps(tmp_path, answer) == NUM_ENVS * ROLLOUT_LENGTH
    assert answer.metrics["rollout/trained_share"] == pytest.approx(1 / 4)
    me = Entrant("player/p000#0")
    beside, against = (Entrant(one.weights.digest) for one in (partner, rival) if one.weights)
    assert {tally.entrants for tally in answer.tallies} == {
        (me, beside, against, beside),
        (against, beside, me, beside),
    }
    for tally in answer.tallies:
        assert [(pair.first, pair.second) for pair in tally.pairs] == [(0, 2)]
        # Partners share their points, and so their returns.
        assert tally.return_sum[0] == tally.return_sum[1]


@pytest.mark.slow
def test_a_trainee_that_is_its_own_rival_learns_on_both_sides(
    worker: Worker, tmp_path: Path
) -> None:
    partner = partner_of(tmp_path, worker, "player/p001")
    first = start(worker, POLICY)
    itself = frozen(tmp_path, first, POLICY)
    # The partner is the trainee's own frozen checkpoint, so that seat does not learn.
    seatings = [(partner, TRAINEE, itself, TRAINEE)]
    answer = finished(worker.carry_out(train((POLICY, first), seatings=seatings, agent_steps=1)))
    assert steps(tmp_path, answer) == 2 * NUM_ENVS * ROLLOUT_LENGTH
    assert answer.metrics["rollout/trained_share"] == pytest.approx(2 / 4)


@pytest.mark.slow
def test_episodes_in_flight_keep_their_partners_in_the_next_assignment(
    worker: Worker, tmp_path: Path
) -> None:
    one, other = (partner_of(tmp_path, worker, f"player/p00{index}") for index in (1, 2))
    first = start(worker, POLICY)
    # Rollouts of 10 steps end within the episodes of 16.
    message = train((POLICY, first), seatings=[(TRAINEE, one, other, one)], agent_steps=1)
    (trainee,) = message.trainees
    trainee = replace(trainee, hyperparameters={**HYPERPARAMETERS, "rollout_length": 10})
    message = replace(message, trainees=(trainee,))
    answer = finished(worker.carry_out(message))
    assert answer.tallies == ()
    assert sum(held.num_envs for held in answer.in_flight) == NUM_ENVS
    second = answer.checkpoints[0].checkpoint
    trainee = replace(trainee, checkpoint=second, agent_steps=steps(tmp_path, answer))
    again = replace(
        message,
        trainees=(trainee,),
        opponents=(Seating(players=(other, TRAINEE, one, one)),),
        carried=message.opponents,
    )
    answer = finished(worker.carry_out(again))
    (tally,) = answer.tallies
    # All episodes ended with the players that they began with, though new partners were drawn.
    held = [player.weights.digest for player in (one, other, one) if player.weights]
    assert tally.entrants == ("player/p000#0", *held)
    assert (tally.matches, tally.length_sum) == (NUM_ENVS, 16 * NUM_ENVS)


def make(
    root: Path,
    warm_up: NormalizerWarmUp | None,
    sides: dict[str, tuple[str, ...]] | None = None,
    **changes: Any,
) -> Worker:
    setup = make_setup(
        root,
        "lessons:parallel_env",
        num_envs=2,
        launch_directory=ASSETS,
        sides=sides,
        kwargs={"length": 4},
        lessons=[{"length": 2}, {"length": 4}],
        population={"normalizer_warm_up": warm_up, **changes},
    )
    return Worker(setup, progress=Counted(), should_stop=lambda: False)


def first_weights(root: Path, worker: Worker) -> Mapping[str, torch.Tensor]:
    _, weights, _ = load_checkpoint(root, start(worker, "player/p000"))
    return weights


@pytest.mark.parametrize("sides", [None, {"all": ("a", "b")}], ids=["rivals", "cooperation"])
def test_statistics_are_those_of_the_first_lesson_by_hand_and_weights_are_as_ever(
    tmp_path: Path, sides: dict[str, tuple[str, ...]] | None
) -> None:
    (tmp_path / "warm").mkdir()
    (tmp_path / "cold").mkdir()
    warm = first_weights(
        tmp_path / "warm", make(tmp_path / "warm", NormalizerWarmUp(agent_steps=8), sides)
    )
    cold = first_weights(tmp_path / "cold", make(tmp_path / "cold", None, sides))
    name = next(name for name in warm if name.endswith("observation_normalizer.mean"))
    count = name.replace("mean", "count")
    # Two environments with two agents give four decisions a call, at 0 and at half of an episode.
    assert warm[count].item() == 8
    assert warm[name].tolist() == pytest.approx([0.25] * 3)
    assert warm[name.replace("mean", "variance")].tolist() == pytest.approx([0.0625] * 3)
    assert cold[count].item() == 0
    for key in warm:
        if "normalizer" not in key:
            torch.testing.assert_close(warm[key], cold[key], rtol=0, atol=0)


def test_only_new_weights_are_warmed_up(tmp_path: Path) -> None:
    worker = make(tmp_path, NormalizerWarmUp(agent_steps=8))
    first = start(worker, "player/p000")
    message = train(
        ("player/p000", first), seatings=[(live("player/p000"), RANDOM)], agent_steps=32
    )
    answer = finished(worker.carry_out(message))
    _, weights, _ = load_checkpoint(tmp_path, answer.checkpoints[0].checkpoint)
    count = next(name for name in weights if name.endswith("observation_normalizer.count"))
    # The rollout has 32 decisions: 16 calls of step in two environments, in the learning seat.
    assert weights[count].item() == 8 + 32


def test_an_algorithm_without_normalizers_says_so(tmp_path: Path) -> None:
    warm_up = NormalizerWarmUp(agent_steps=8)
    worker = make(tmp_path, warm_up, algorithm="dqn:Dqn")
    message = train(("player/p000", None), seatings=(), agent_steps=0)
    # The policy has default hyperparameters.
    trainee = replace(message.trainees[0], hyperparameters={})
    answer = worker.carry_out(replace(message, trainees=(trainee,)))
    assert isinstance(answer, Failed)
    assert "normalizer_warm_up: its algorithm has no method update_normalizers" in answer.reason


def test_a_bot_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be a bot .* got 'player/p000'"):
        NormalizerWarmUp(agent_steps=1, player="player/p000")
    spelled = NormalizerWarmUp(agent_steps=1, player="bot:a:B( x = 1 )")
    assert spelled.player == "bot:a:B(x=1)"
