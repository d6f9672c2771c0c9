from __future__ import annotations

import pytest
import torch

from arena.environment_spec import EnvironmentRequest
from arena.envs.batched.connect_four import ConnectFour
from arena.envs.inspect import inspect_environment
from tools.bench.play import PlainLoop, RandomGame, random_play
from tools.bench.subject import Subject, load_subject


@pytest.fixture(scope="module")
def tag() -> Subject:
    return load_subject("simple_tag", ["environment.num_envs=2"])


def test_a_bare_game_is_played_for_ever() -> None:
    games = 32
    play = RandomGame(
        ConnectFour(games, device=torch.device("cpu")),
        num_games=games,
        generator=torch.Generator().manual_seed(1),
    )
    # Games last 42 moves at most: without a reset nobody would decide after that.
    assert [play() for _ in range(100)] == [games] * 100


@pytest.mark.parametrize(
    ("environment_id", "decisions"),
    [("classic/tictactoe-v3", 1), ("mpe2/simple_spread_v3", 3), ("classic/rps-v2", 2)],
)
def test_a_plain_loop_goes_on_from_episode_to_episode(environment_id: str, decisions: int) -> None:
    kwargs = {"max_cycles": 4} if "mpe2" in environment_id else {}
    spec = inspect_environment(
        EnvironmentRequest(environment_id, kwargs=kwargs, launch_directory="")
    )
    play = PlainLoop(spec, num_envs=2, launch_directory="")
    assert [play() for _ in range(40)] == [2 * decisions] * 40
    play.close()


def test_random_play_counts_every_decision(tag: Subject) -> None:
    env = tag.make_env()
    play = random_play(
        env,
        actions=tag.players.actions,
        generator=torch.Generator().manual_seed(1),
    )
    # Two environments of three predators and one prey, all of whom decide at once.
    assert play() == 2 * 4
    env.close()
