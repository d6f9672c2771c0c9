"""Strengths of players that no fit has rated, beside the mode of all of them together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from arena.types import RANDOM_BOT, AssignmentId, Entrant, Seat
from populations.league.elimination import Link
from populations.league.league import League
from populations.league.merging import meetings, settled_points
from populations.league.pairs import link_row
from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.results import Rated
from populations.records.rows import TallyRow
from tests.populations.rows import make_tally, tables_with

SEATS = tuple(
    Seat(name=name, agents=(name,), population="player", side=name) for name in ("one", "two")
)
ADVANTAGE = 0.2
"""What the first seat is worth, in natural units."""


def rated(name: str) -> Rated:
    return "player", Entrant(name)


def league_of(*played: tuple[str, str, int, int]) -> League:
    """A league in which the first of two has won some matches in the first seat, and lost some."""
    league = League(tables_with(), seats=SEATS, half_life_matches=100.0)
    for sequence, (first, second, wins, losses) in enumerate(played, start=1):
        tally = make_tally((first, second), (0, 1, wins, 0, losses))
        league.add_tally(
            TallyRow(sequence=sequence, assignment_id=AssignmentId(1), kind="evaluate", tally=tally)
        )
    return league


def advantage(seats: tuple[int, int]) -> float:
    return {(0, 1): ADVANTAGE, (1, 0): -ADVANTAGE}[seats]


def test_meetings_are_as_the_player_sees_them() -> None:
    league = league_of(("a", "b", 3, 1), ("b", "a", 2, 6), ("c", "a", 1, 0))
    league.put(link_row(Link(2.0, 0.5), Entrant("a"), Entrant("d"), seat=0))
    met = meetings(league, rated("a"), advantage=advantage)
    assert set(met.played) == {rated("b"), rated("c")}
    seen = sorted((counts.wins, counts.losses, worth) for counts, worth in met.played[rated("b")])
    assert seen == [(3.0, 1.0, ADVANTAGE), (6.0, 2.0, -ADVANTAGE)]
    assert list(met.links) == [rated("d")]
    assert met.links[rated("d")][0] == pytest.approx((2.0, 0.5))
    (back,) = meetings(league, rated("d"), advantage=advantage).links[rated("a")]
    assert back == pytest.approx((2.0, -0.5))
    played, tied = met.by({rated("b"): 1.0, rated("c"): 2.0, rated("d"): 3.0}.__getitem__)
    assert sorted(point for point, _ in played) == [1.0, 2.0]
    assert [point for point, _ in tied] == [3.0]


def test_unrated_players_are_settled_at_the_mode_of_all_of_them() -> None:
    # u goes, and v and w came after the last fit, too: all 500 ahead of their line.
    league = league_of(
        ("u", "v", 9, 7),
        ("v", "w", 10, 6),
        ("u", "old", 15, 1),
        ("old", "w", 2, 14),
        ("u", "bot:random", 16, 0),
    )
    league.put(link_row(Link(1.5, 2.0), Entrant("old"), Entrant("v"), seat=0))
    fitted = {"old": 100.0, RANDOM_BOT: 0.0}
    line, variance = 80.0, 250.0**2
    found = settled_points(
        league,
        [rated("u")],
        estimate=lambda one: (fitted.get(one[1], line), variance),
        is_rated=lambda one: one[1] in fitted,
        advantage=advantage,
    )
    # Of w, which u has not met, nothing is said, but v is settled by it.
    assert next(iter(found)) == rated("u")
    assert set(found) == {rated("u"), rated("v"), rated("old"), rated(RANDOM_BOT)}
    assert found[rated("old")] == pytest.approx(100.0)

    def against(point: float, other: float, wins: int, losses: int) -> float:
        ahead = point - other
        return float(wins * np.logaddexp(0.0, -ahead) + losses * np.logaddexp(0.0, ahead))

    def loss(points: np.ndarray) -> float:  # minus log posterior
        u, v = points
        # w is given its line's strength: u has not met it.
        w, old = line / ELO_PER_UNIT, 100.0 / ELO_PER_UNIT
        prior = 0.5 * ELO_PER_UNIT**2 / variance * ((u - w) ** 2 + (v - w) ** 2)
        return float(
            prior
            + against(u + ADVANTAGE, v, 9, 7)
            + against(v + ADVANTAGE, w, 10, 6)
            + against(u + ADVANTAGE, old, 15, 1)
            + against(u + ADVANTAGE, 0.0, 16, 0)
            + 0.5 * 1.5 * (v - old + 2.0) ** 2
        )

    mode = optimize.minimize(loss, np.zeros(2), tol=1e-10).x * ELO_PER_UNIT
    assert [found[rated("u")], found[rated("v")]] == pytest.approx(mode.tolist(), abs=0.5)
    assert found[rated("u")] > 200.0
