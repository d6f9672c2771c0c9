from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import pytest
import torch

from arena.errors import ConfigError
from arena.matches.seating import make_seats
from arena.matches.tournament import Contender, TournamentResult, play_tournament
from arena.types import Entrant
from tests.arena.samples import Always


def contender(action: int, *populations: str) -> Contender:
    return {population: Always(action) for population in populations or ("p",)}


def tournament(
    env: Any,
    contenders: dict[str, Contender],
    *,
    num_matches: int,
    sides: dict[str, tuple[str, ...]],
) -> TournamentResult:
    return play_tournament(
        env,
        contenders=contenders,
        num_matches=num_matches,
        seats=make_seats(agents=env.agents, sides=sides, populations=env.populations),
        sides=sides,
        seed=3,
        generator=torch.Generator().manual_seed(3),
    )


def payoff_env(scripted_env: Any, agents: tuple[str, ...], *, num_envs: int) -> Any:
    """One step; each agent's reward is its action."""
    env = scripted_env(
        num_envs=num_envs,
        agents=agents,
        populations={"p": agents},
        in_turns=False,
        num_sides=len(agents),
        length=lambda seed, episode: 1,
    )
    env.reward = lambda seed, episode, step, agent: float(
        next(row[4] for row in reversed(env.decisions) if row[:4] == (seed, episode, step, agent))
    )
    return env


@pytest.mark.parametrize("num_envs", [1, 4, 64])
def test_every_ordered_pair_plays_exactly_n_matches(scripted_env: Any, num_envs: int) -> None:
    env = payoff_env(scripted_env, ("a", "b"), num_envs=num_envs)
    result = tournament(
        env,
        {"strong": contender(2), "weak": contender(1), "feeble": contender(1)},
        num_matches=5,
        sides={"a": ("a",), "b": ("b",)},
    )
    rows = {
        (r.home, r.away): (r.matches, r.wins, r.draws, r.losses, r.score, r.mean_return)
        for r in result.pairs
    }
    assert rows == {
        ("strong", "weak"): (5, 5, 0, 0, 1.0, 2.0),
        ("strong", "feeble"): (5, 5, 0, 0, 1.0, 2.0),
        ("weak", "strong"): (5, 0, 0, 5, 0.0, 1.0),
        ("weak", "feeble"): (5, 0, 5, 0, 0.5, 1.0),
        ("feeble", "strong"): (5, 0, 0, 5, 0.0, 1.0),
        ("feeble", "weak"): (5, 0, 5, 0, 0.5, 1.0),
    }
    first = result.pairs[0]
    assert first.seats == {"a": "strong", "b": "weak"}
    assert [(t.entrants, t.matches) for t in result.tallies[:1]] == [(("strong", "weak"), 5)]


def test_with_three_sides_home_has_each_seat_in_turn(scripted_env: Any) -> None:
    agents = ("a", "b", "c")
    env = payoff_env(scripted_env, agents, num_envs=8)
    result = tournament(
        env,
        {"strong": contender(2), "weak": contender(1)},
        num_matches=6,
        sides={agent: (agent,) for agent in agents},
    )
    played = {tally.entrants: tally.matches for tally in result.tallies}
    assert played == {
        ("strong", "weak", "weak"): 2,
        ("weak", "strong", "weak"): 2,
        ("weak", "weak", "strong"): 2,
        ("weak", "strong", "strong"): 2,
        ("strong", "weak", "strong"): 2,
        ("strong", "strong", "weak"): 2,
    }
    # In each match the player is compared with two rivals.
    assert [(r.matches, r.wins, r.losses, r.score) for r in result.pairs] == [
        (6, 12, 0, 1.0),
        (6, 0, 12, 0.0),
    ]


@pytest.mark.parametrize("num_matches", [1, 2, 4, 7])
def test_matches_left_over_are_spread_over_all_sides(scripted_env: Any, num_matches: int) -> None:
    agents = ("a", "b", "c")
    env = payoff_env(scripted_env, agents, num_envs=8)
    names = ("v", "w", "x")
    result = tournament(
        env,
        {"v": contender(1), "w": contender(2), "x": contender(2)},
        num_matches=num_matches,
        sides={agent: (agent,) for agent in agents},
    )
    alone: Counter[tuple[str, int]] = Counter()
    for tally in result.tallies:
        for index, entrant in enumerate(tally.entrants):
            if tally.entrants.count(entrant) == 1:
                alone[str(entrant), index] += tally.matches
    of_side = [sum(alone[name, index] for name in names) for index in range(len(agents))]
    # There are six ordered pairs.
    assert of_side == [2 * num_matches] * 3
    assert all(pair.matches == num_matches for pair in result.pairs)
    # In matches against each other both players have the same sides equally often.
    for home, away in combinations(names, 2):
        sides = [
            sorted(
                (tally.entrants.index(Entrant(one)), tally.matches)
                for tally in result.tallies
                if set(tally.entrants) == {home, away} and tally.entrants.count(Entrant(one)) == 1
            )
            for one in (home, away)
        ]
        assert sides[0] == sides[1]


def test_cooperation_compares_two_plays_of_the_same_episodes(scripted_env: Any) -> None:
    env = payoff_env(scripted_env, ("a", "b"), num_envs=3)
    env.num_sides = 1
    result = tournament(
        env,
        {"strong": contender(2), "weak": contender(1)},
        num_matches=4,
        sides={"all": ("a", "b")},
    )
    first, second = result.pairs
    assert first.seats == {"home": "strong", "away": "weak"}
    assert (first.matches, first.wins, first.draws, first.losses) == (4, 4, 0, 0)
    assert (second.wins, second.losses, second.mean_return) == (0, 4, 1.0)


def test_contenders_of_different_populations_meet_in_the_order_that_fits(
    scripted_env: Any,
) -> None:
    env = payoff_env(scripted_env, ("a", "b"), num_envs=3)
    env.populations = {"wolf": ("a",), "hare": ("b",)}
    contenders = {
        "a wolf": contender(2, "wolf"),
        "a hare": contender(1, "hare"),
        "bot:random": contender(1, "wolf", "hare"),
    }
    result = tournament(env, contenders, num_matches=2, sides={"a": ("a",), "b": ("b",)})
    assert [(r.home, r.away) for r in result.pairs] == [
        ("a wolf", "a hare"),
        ("a wolf", "bot:random"),
        ("bot:random", "a hare"),
    ]
    with pytest.raises(ConfigError, match="no two of"):
        tournament(
            env,
            {"x": contender(1, "wolf"), "y": contender(1, "wolf")},
            num_matches=1,
            sides={"a": ("a",), "b": ("b",)},
        )


def test_one_contender_has_nobody_to_play(scripted_env: Any) -> None:
    with pytest.raises(ValueError, match="two or more contenders"):
        tournament(
            payoff_env(scripted_env, ("a", "b"), num_envs=1),
            {"A": contender(1)},
            num_matches=1,
            sides={"a": ("a",), "b": ("b",)},
        )
