import pytest
import torch

from arena.envs.batched.tictactoe import TicTacToe
from arena.errors import ConfigError

CPU = torch.device("cpu")


def started(num_games: int) -> TicTacToe:
    game = TicTacToe(num_games, device=CPU)
    game.reset(torch.ones(num_games, dtype=torch.bool), key=torch.zeros(num_games).long())
    return game


def play(game: TicTacToe, *moves: int) -> tuple[list[float], list[bool]]:
    """All games make the same moves; what the last brought to the first game."""
    for move in moves:
        result = game.step([torch.full((len(game.decisions()[0].agent_index), 1), move)])
    return result.reward[0].tolist(), result.terminated[0].tolist()


def test_a_line_on_the_last_free_cell_wins() -> None:
    # X: 0 1 5 6 2, O: 3 4 7 8; 0, 1, 2 is a line.
    assert play(started(1), 0, 3, 1, 4, 5, 7, 6, 8, 2) == ([1.0, -1.0], [True, True])


def test_a_full_board_without_a_line_is_a_draw() -> None:
    assert play(started(1), 0, 1, 2, 4, 3, 5, 7, 6, 8) == ([0.0, 0.0], [True, True])


def test_what_was_seen_stays_when_the_game_goes_on() -> None:
    game = started(2)
    seen = game.decisions()[0].observation
    before = seen.clone()
    play(game, 4)
    game.decisions()
    assert torch.equal(seen, before)


def test_it_takes_no_kwargs() -> None:
    with pytest.raises(ConfigError, match="screen_height"):
        TicTacToe(2, device=CPU, screen_height=100)
