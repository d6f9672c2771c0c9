"""Fast versions of the tables of `experiments.ratings.intervals`."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from arena.types import RANDOM_BOT, Entrant
from experiments.ratings.direct_games import League, direct_differences
from experiments.ratings.intervals import main, measure
from populations.league.ratings import Ratings
from tests.populations.rows import make_ratings


@pytest.mark.slow
def test_a_champion_is_rarely_below_what_is_reported() -> None:
    # The raw rating was too high in 20 of 30 leagues; of 12 leagues two below are chance in one of
    # 30 cases.
    found = measure("champions", "200 players", leagues=12, seed=3)
    assert found["below, as rated"].sum() >= 4
    assert found["below, as reported"].sum() <= 2
    assert abs(found["bias, as reported"].mean()) < 25.0


def test_pair_effects_widen_intervals_and_are_told() -> None:
    found = measure("pairs", 100.0, leagues=16, seed=3)
    assert found["by matches alone"].mean() < 0.75
    assert 0.92 <= found["holds"].mean() <= 0.98
    assert (found["misfit warned"] == 1.0).all()
    without = measure("pairs", 0.0, leagues=8, seed=3)
    assert not without["misfit warned"].any()
    assert not without["cyclic warned"].any()


def test_draws_that_rise_with_strength_bend_nothing() -> None:
    found = measure("draws", 0.95, leagues=60, seed=3)
    assert 0.93 <= found["holds"].mean() <= 0.97
    assert abs(found["error of the span"].mean()) < 25.0


@pytest.mark.parametrize("size", [5, 20])
def test_no_league_without_misfit_is_warned_of(size: int) -> None:
    found = measure("alarms", size, leagues=15, seed=3)
    assert not found["misfit warned"].any()
    assert not found["cyclic warned"].any()


def test_the_bootstrap_is_no_longer_of_no_width() -> None:
    found = measure("bootstrap", 1, leagues=2, seed=3)
    assert found["bootstrap width"].min() > 100.0
    assert np.mean(found["bootstrap holds"]) >= 0.7


def test_a_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["alarms", "--leagues", "2"])
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0].startswith("| alarms | leagues | misfit warned |")
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["5", "10", "20", "40"]


@pytest.mark.parametrize("layout", ["two sides of two", "four sides"])
def test_intervals_are_wide_enough_for_matches_of_many_comparisons(layout: str) -> None:
    # With a result for each pair of seats .64 and .85 of the intervals held.
    found = measure("sides", layout, leagues=300, seed=1)
    assert found["arena evaluate"].mean() > 0.92
    assert found["league"].mean() > 0.92


def test_intervals_hold_where_seats_have_a_worth_and_matches_are_drawn() -> None:
    found = measure("seats", 20, leagues=40, seed=1)
    for name, held in found.items():
        assert held.mean() > 0.9, name


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
    # The first won 99.5 + 90 of 200; half a win is added to each.
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
    # The bot has the seats of the players that it is compared with.
    assert difference("predator/p0", RANDOM_BOT) == pytest.approx((-140.0, 5.0))
    assert difference("prey/p0", RANDOM_BOT) == pytest.approx((390.0, 5.0))
