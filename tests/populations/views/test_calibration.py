"""Predicted scores beside those that were seen, against hand-computed numbers."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from arena.types import AssignmentId, Entrant, Seat
from populations.league.league import League
from populations.records.aggregates import PairRow
from populations.records.rows import RatingsRow, TallyRow
from populations.views.questions.results import calibrations
from tests.populations.rows import make_tally, tables_with

SEATS = (
    Seat(name="first", side="first", population="player", agents=("first",)),
    Seat(name="second", side="second", population="player", agents=("second",)),
)
ONE, OTHER, BOT = Entrant("one"), Entrant("other"), Entrant("bot:random")


def ratings(*, advantages: tuple[float, ...] = ()) -> dict[str, RatingsRow]:
    return {
        "player": RatingsRow(
            population="player",
            entrants=(ONE, OTHER),
            # 400 Elo are odds of 10 to 1.
            ratings=(400.0, 0.0),
            deviations=(10.0, 10.0),
            cyclicity=0.0,
            num_tallies=1,
            advantages=advantages,
        )
    }


def pair(first: Entrant, second: Entrant, **counts: float) -> PairRow:
    return PairRow(
        kind="evaluate", first=first, second=second, first_seat=0, second_seat=1, **counts
    )


def test_both_seats_are_one_pair() -> None:
    rows = [
        pair(ONE, OTHER, wins=8, draws=2, losses=0),
        pair(OTHER, ONE, wins=4, draws=0, losses=6),
    ]
    (found,) = calibrations(rows, ratings=ratings(), seats=SEATS).values()
    assert found.matches == 20
    assert found.seen == 8 + 1 + 6
    assert found.predicted == pytest.approx(20 * 10 / 11)
    assert found.variance == pytest.approx(20 * 10 / 121 - 0.25 * 2)
    assert found.deviations == pytest.approx((15 - 200 / 11) / math.sqrt(200 / 121 - 0.5))


def test_a_seat_is_worth_what_the_fit_says() -> None:
    rows = [pair(ONE, OTHER, wins=1, draws=0, losses=0)]
    fits = ratings(advantages=(0.0, -400.0, 400.0, 0.0))
    (found,) = calibrations(rows, ratings=fits, seats=SEATS).values()
    assert found.predicted == pytest.approx(0.5)


def test_the_unrated_and_matches_against_oneself_are_left_out() -> None:
    rows = [
        pair(ONE, Entrant("nobody"), wins=1, draws=0, losses=0),
        pair(ONE, ONE, wins=1, draws=0, losses=1),
    ]
    assert calibrations(rows, ratings=ratings(), seats=SEATS) == {}


def test_of_many_sides_a_row_is_where_its_population_begins() -> None:
    """Three populations share twelve sides: a fit's table is as wide as seats have results."""
    names = [f"{population}{index}" for index in range(4) for population in "abc"]
    seats = tuple(Seat(name=name, side=name, population=name[0], agents=(name,)) for name in names)
    league = League(tables_with(), seats=seats, half_life_matches=1e12)
    width = league.num_rated_seats
    assert width == 3
    advantages = [0.0] * width**2
    advantages[1 * width + 2] = -400.0
    fits = {
        population: replace(row, population=population)
        for population in "abc"
        for row in ratings(advantages=tuple(advantages)).values()
    }
    tally = make_tally((BOT, ONE, OTHER) * 4, (1, 2, 16 * 16, 0, 0), matches=16, length_sum=16)
    rows = [
        row
        for row in league.add_tally(
            TallyRow(sequence=1, assignment_id=AssignmentId(1), kind="evaluate", tally=tally)
        )
        if isinstance(row, PairRow)
    ]
    ((pair, found),) = calibrations(rows, ratings=fits, seats=seats).items()
    assert pair == (("b", ONE), ("c", OTHER))
    # Each player has two opponents of the other population in a match, so half a match counts for
    # each.
    assert found.seen == found.matches == 8
    assert found.predicted == pytest.approx(4)
