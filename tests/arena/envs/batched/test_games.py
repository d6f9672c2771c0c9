"""Batched games: by hand, and beside the games that they are twins of."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from arena.environment_spec import EnvironmentRequest
from arena.envs.batched.cards import CardGame
from arena.envs.batched.kuhn_poker import KuhnPoker
from arena.envs.batched.leduc_poker import LeducPoker
from arena.envs.batched.rock_paper_scissors import RockPaperScissors
from arena.envs.batched.tictactoe import TicTacToe
from arena.envs.chance import first_uniforms, uniforms
from arena.envs.checks.conformance import check_against
from arena.envs.openspiel.game import canonical_game_id, is_openspiel, openspiel_agent_spec
from arena.envs.registry import TWINS, canonical_id
from arena.envs.spaces.observations import describe
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
    # The frequency of each deal in 60,000 is within 5 standard deviations of its probability.
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


def noughts(num_games: int) -> TicTacToe:
    game = TicTacToe(num_games, device=CPU)
    game.reset(torch.ones(num_games, dtype=torch.bool), key=torch.zeros(num_games).long())
    return game


def play(game: TicTacToe, *moves: int) -> tuple[list[float], list[bool]]:
    """All games make the same moves; what the last brought to the first game."""
    for move in moves:
        result = game.step([torch.full((len(game.decisions()[0].agent_index), 1), move)])
    return result.reward[0].tolist(), result.terminated[0].tolist()


def test_a_line_on_the_last_free_cell_wins() -> None:
    # The moves are X: 0 1 5 6 2 and O: 3 4 7 8; the line is 0, 1, 2.
    assert play(noughts(1), 0, 3, 1, 4, 5, 7, 6, 8, 2) == ([1.0, -1.0], [True, True])


def test_a_full_board_without_a_line_is_a_draw() -> None:
    assert play(noughts(1), 0, 1, 2, 4, 3, 5, 7, 6, 8) == ([0.0, 0.0], [True, True])


def test_what_was_seen_stays_when_the_game_goes_on() -> None:
    game = noughts(2)
    seen = game.decisions()[0].observation
    before = seen.clone()
    play(game, 4)
    game.decisions()
    assert torch.equal(seen, before)


def test_tictactoe_takes_no_kwargs() -> None:
    with pytest.raises(ConfigError, match="screen_height"):
        TicTacToe(2, device=CPU, screen_height=100)


ROCK, PAPER, SCISSORS = 0, 1, 2


def hands(num_games: int, **kwargs: object) -> RockPaperScissors:
    game = RockPaperScissors(num_games, device=CPU, **kwargs)
    game.reset(torch.ones(num_games, dtype=torch.bool), key=torch.zeros(num_games).long())
    return game


def test_paper_beats_rock_in_either_seat() -> None:
    game = hands(2)
    result = game.step([torch.tensor([[PAPER, ROCK], [ROCK, PAPER]])])
    assert result.reward.tolist() == [[1.0, -1.0], [-1.0, 1.0]]
    # Each agent observes the other's last action.
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


@pytest.mark.parametrize(
    ("num_games", "num_envs"),
    [
        (150, 32),
        pytest.param(50_000, 256, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
@pytest.mark.parametrize("environment_id", TWINS)
def test_the_twin_is_the_same_game(
    environment_id: str, num_games: int, num_envs: int, assets: str
) -> None:
    report = check_against(
        EnvironmentRequest(environment_id, launch_directory=assets),
        EnvironmentRequest(TWINS[environment_id], launch_directory=assets),
        num_games=num_games,
        num_envs=num_envs,
        seed=11,
    )
    assert report.difference is None
    assert report.games >= num_games
    assert report.decisions > 2 * num_games


@pytest.mark.parametrize(
    "kwargs",
    [{"num_actions": 5, "max_cycles": 4}, {"max_cycles": 0}, {"max_cycles": 1}, {"num_actions": 7}],
)
def test_twins_of_rock_paper_scissors_s_kin(kwargs: dict[str, object], assets: str) -> None:
    report = check_against(
        EnvironmentRequest("classic/rps-v2", kwargs=kwargs, launch_directory=assets),
        EnvironmentRequest(TWINS["classic/rps-v2"], kwargs=kwargs, launch_directory=assets),
        num_games=100,
        num_envs=16,
    )
    assert report.difference is None


def test_ids_are_canonical() -> None:
    for environment_id in TWINS:
        canonical = canonical_game_id if is_openspiel(environment_id) else canonical_id
        assert canonical(environment_id) == environment_id


def test_what_openspiel_s_agents_see_and_do() -> None:
    spec = openspiel_agent_spec((30,), 3)
    assert spec.observation == describe(Box(-np.inf, np.inf, (30,), np.float32))
    assert spec.action == describe(Discrete(3))
    assert spec.mask == "observation"
