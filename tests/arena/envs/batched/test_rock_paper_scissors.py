import pytest
import torch

from arena.envs.batched.rock_paper_scissors import RockPaperScissors
from arena.errors import ConfigError

CPU = torch.device("cpu")
ROCK, PAPER, SCISSORS = 0, 1, 2


def started(num_games: int, **kwargs: object) -> RockPaperScissors:
    game = RockPaperScissors(num_games, device=CPU, **kwargs)
    game.reset(torch.ones(num_games, dtype=torch.bool), key=torch.zeros(num_games).long())
    return game


def test_paper_beats_rock_in_either_seat() -> None:
    game = started(2)
    result = game.step([torch.tensor([[PAPER, ROCK], [ROCK, PAPER]])])
    assert result.reward.tolist() == [[1.0, -1.0], [-1.0, 1.0]]
    # Each sees what the other did.
    assert game.decisions()[0].observation.argmax(dim=2).tolist() == [[ROCK, PAPER], [PAPER, ROCK]]


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"num_actions": 4}, "odd integer of at least 3, got 4"),
        ({"num_actions": 1}, "odd integer of at least 3, got 1"),
        ({"num_actions": 3.0}, "odd integer of at least 3, got 3.0"),
        ({"num_actions": True}, "odd integer of at least 3, got True"),
        ({"max_cycles": None}, "max_cycles must be an integer, got None"),
        ({"max_cycle": 3}, "takes num_actions and max_cycles, got 'max_cycle'"),
        ({"render_mode": "human"}, "takes num_actions and max_cycles, got 'render_mode'"),
    ],
)
def test_wrong_kwargs_are_refused(kwargs: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RockPaperScissors(2, device=CPU, **kwargs)
