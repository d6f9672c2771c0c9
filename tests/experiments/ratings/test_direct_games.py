"""What `experiments.ratings.direct_games` makes of games."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from arena.types import RANDOM_BOT, Entrant
from experiments.ratings.direct_games import League, direct_differences
from populations.league.ratings import Ratings
from tests.populations.rows import make_ratings


def test_a_difference_is_the_log_odds_of_the_score_over_both_seats_by_hand() -> None:
    games: dict[str, object] = {
        "players": ["runs/a:player/p0", "bot:random"],
        "names": ["player/p0", "bot:random"],
        "pairs": [
            {"home": "runs/a:player/p0", "away": "bot:random", "matches": 100, "score": 0.995},
            {"home": "bot:random", "away": "runs/a:player/p0", "matches": 100, "score": 0.1},
        ],
    }
    found = direct_differences(games)
    # 99.5 + 90 of 200 won, and half a win for each.
    own, other = 190.0, 11.0
    assert found.keys() == {("player/p0", "bot:random")}
    one = found["player/p0", "bot:random"]
    assert one.elo == pytest.approx(400.0 * math.log10(own / other))
    assert one.error == pytest.approx(400.0 / math.log(10.0) * math.sqrt(1.0 / own + 1.0 / other))


def test_players_of_two_sides_differ_by_their_ratings_and_the_worth_of_the_sides() -> None:
    """Prey sits in the second seat and 340 Elo ahead; errors of both are 3, 4 and 5, 0."""

    def ratings(population: str, rating: float, spread: tuple[float, float]) -> Ratings:
        row = make_ratings(
            population=population,
            entrants=(Entrant(f"weights of {population}"), Entrant(RANDOM_BOT)),
            ratings=(rating, 0.0),
            deviations=(5.0, 0.0),
            num_tallies=1,
            advantages=(0.0, -340.0, 340.0, 0.0),
        )
        return Ratings(row, np.array([spread, (0.0, 0.0)]))

    lines: dict[tuple[str, str], Any] = {}
    for population in ("predator", "prey"):
        lines[population, f"{population}/p0"] = SimpleNamespace(weights=f"weights of {population}")
        lines[population, RANDOM_BOT] = SimpleNamespace(weights=None)
    league = League(
        ratings={
            "predator": ratings("predator", 200.0, (3.0, 4.0)),
            "prey": ratings("prey", 50.0, (5.0, 0.0)),
        },
        lines=lines,
        sides={"predator": 0, "prey": 1},
    )

    def difference(one: str, two: str) -> tuple[float, float] | None:
        return league.difference(league.rated(one, against=two), league.rated(two, against=one))

    assert difference("predator/p0", "prey/p0") == pytest.approx((-190.0, math.hypot(2.0, 4.0)))
    # The bot has the seats of those that it meets.
    assert difference("predator/p0", RANDOM_BOT) == pytest.approx((-140.0, 5.0))
    assert difference("prey/p0", RANDOM_BOT) == pytest.approx((390.0, 5.0))
