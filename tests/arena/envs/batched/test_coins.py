"""The race for coins: who takes them, where they come back, and what collectors see."""

from __future__ import annotations

import pytest
import torch

from tests.assets.coins import CELLS, NUM_STEPS, THINGS, Coins

STAY, RIGHT, DOWN = 0, 1, 3


@pytest.fixture
def game() -> Coins:
    found = Coins(2, device=torch.device("cpu"))
    found.reset(torch.tensor([True, True]), key=torch.tensor([5, 6]))
    return found


def put(game: Coins, *places: tuple[int, int]) -> None:
    """Put collectors and coins of both games into cells."""
    game._places = torch.tensor([places, places])


def test_who_arrives_alone_takes_a_coin_and_it_comes_back_elsewhere(game: Coins) -> None:
    put(game, (6, 6), (3, 3), (6, 0), (4, 3))
    # The first one goes over the edge in both games, the second one down in one of them.
    result = game.step([torch.tensor([[RIGHT, STAY], [RIGHT, DOWN]])])
    assert result.reward.tolist() == [[1.0, -1.0], [0.0, 0.0]]
    assert game._places[0, :2].tolist() == [[6, 0], [3, 3]]
    assert game._places[:, 2].tolist() == game._cells[:, THINGS].tolist()
    assert game._places[0, 3].tolist() == [4, 3]
    assert game._places[1, 3].tolist() == game._cells[1, THINGS + 1].tolist()


def test_a_coin_at_which_both_arrive_is_nobodys(game: Coins) -> None:
    put(game, (0, 0), (0, 2), (0, 1), (5, 5))
    result = game.step([torch.tensor([[RIGHT, 2], [RIGHT, STAY]])])
    assert result.reward.tolist() == [[0.0, 0.0], [1.0, -1.0]]


def test_collectors_see_coins_and_each_other_around_themselves_and_the_time(game: Coins) -> None:
    put(game, (1, 1), (0, 1), (1, 2), (1, 2))
    (group,) = game.decisions()
    assert group.observation[0, 0].nonzero().flatten().tolist() == [1, CELLS + 6 * 7]
    assert group.observation[0, 1].nonzero().flatten().tolist() == [8, CELLS + 7]
    game.step([torch.zeros((2, 2), dtype=torch.int64)])
    (group,) = game.decisions()
    assert group.observation[:, :, -1].tolist() == [[pytest.approx(1 / NUM_STEPS)] * 2] * 2


def test_a_game_ends_after_its_steps_and_only_it_begins_anew(game: Coins) -> None:
    for step in range(1, NUM_STEPS + 1):
        result = game.step([torch.zeros((2, 2), dtype=torch.int64)])
        assert result.terminated.all() == (step == NUM_STEPS)
    before = game._places.clone()
    game.reset(torch.tensor([True, False]), key=torch.tensor([5, 6]))
    assert game._time.tolist() == [0, NUM_STEPS]
    assert torch.equal(game._places[1], before[1])
    assert torch.equal(game._places[0], game._cells[0, :THINGS])
