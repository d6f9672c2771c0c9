"""Kuhn and Leduc poker against OpenSpiel's, and the tables that they are looked up in."""

import itertools
import math

import pytest
import torch

from arena.envs.batched.cards import CardGame
from arena.envs.batched.kuhn_poker import KuhnPoker
from arena.envs.batched.leduc_poker import LeducPoker
from arena.envs.chance import first_uniforms, uniforms
from arena.errors import ConfigError

CPU = torch.device("cpu")

Poker = type[KuhnPoker] | type[LeducPoker]


def keys(num_games: int, *, seed: int = 0) -> torch.Tensor:
    return torch.randint(2**31, (num_games,), generator=torch.Generator().manual_seed(seed))


def started(poker: Poker, num_games: int) -> CardGame:
    game = poker(num_games, device=CPU)
    game.reset(torch.ones(num_games, dtype=torch.bool), key=keys(num_games))
    return game


@pytest.mark.parametrize(
    ("poker", "num_cards", "num_dealt"), [(KuhnPoker, 3, 2), (LeducPoker, 6, 3)]
)
def test_all_deals_are_equally_likely(poker: Poker, num_cards: int, num_dealt: int) -> None:
    game = poker(1, device=CPU)
    deals = [tuple(deal) for deal in game.deals().tolist()]
    assert deals == list(itertools.permutations(range(num_cards), num_dealt))
    # The chance of a deal differs from the frequency in 60,000 by less than 5 deviations.
    num_games = 60_000
    many = started(poker, num_games)
    first = many.decisions()[0].observation[:, 0, 2 : 2 + num_cards].mean(dim=0)
    deviation = math.sqrt(1 / num_cards * (1 - 1 / num_cards) / num_games)
    assert ((first - 1 / num_cards).abs() < 5 * deviation).all()


@pytest.mark.parametrize("poker", [KuhnPoker, LeducPoker])
def test_a_deal_begins_all_games_with_its_cards(poker: Poker) -> None:
    deals = poker(1, device=CPU).deals()
    game = started(poker, len(deals))
    game.step([torch.ones(len(deals), 1, dtype=torch.int64)])
    game.deal(deals)
    (group,) = game.decisions()
    assert group.agent_index.eq(0).all()
    assert torch.equal(group.observation[:, 0].nonzero()[:, 1].view(-1, 2)[:, 1] - 2, deals[:, 0])


@pytest.mark.parametrize("poker", [KuhnPoker, LeducPoker])
def test_an_episode_is_a_function_of_its_key(poker: Poker) -> None:
    game = started(poker, 64)
    first = game.decisions()[0].observation.clone()
    game.step([torch.ones(64, 1, dtype=torch.int64)])
    some = torch.arange(64) % 2 == 0
    others = game.decisions()[0].observation.clone()
    game.reset(some, key=keys(64))
    again = game.decisions()[0].observation
    assert torch.equal(again[some], first[some])
    assert torch.equal(again[~some], others[~some])


def test_nothing_leaves_the_end_of_a_game() -> None:
    game = started(KuhnPoker, 2)
    passes = [torch.zeros(2, 1, dtype=torch.int64)]
    game.step(passes)
    assert game.step(passes).terminated.all()
    (group,) = game.decisions()
    assert group.agent_index.tolist() == [[-1], [-1]]
    assert game.step(passes).reward.eq(0).all()


def test_draws_in_one_go_are_the_draws_one_by_one() -> None:
    some = keys(50, seed=3)
    together = first_uniforms(some, num_draws=4)
    one_by_one = torch.stack([uniforms(some, draw=draw) for draw in range(4)], dim=1)
    assert torch.equal(together, one_by_one)


@pytest.mark.parametrize(
    ("cards", "says"),
    [
        ([[0, 0], [0, 1]], r"different ones of the deck, got \[0, 0\]"),
        ([[0, 1], [2, 3]], r"different ones of the deck, got \[2, 3\]"),
        ([[0, 1]], r"\(2, 2\), got \(1, 2\)"),
    ],
)
def test_cards_that_cannot_be_dealt_are_refused(cards: list[list[int]], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        started(KuhnPoker, 2).deal(torch.tensor(cards))


@pytest.mark.parametrize("poker", [KuhnPoker, LeducPoker])
def test_it_takes_no_kwargs(poker: Poker) -> None:
    with pytest.raises(ConfigError, match="players"):
        poker(2, device=CPU, players=3)
