from __future__ import annotations

from typing import Literal

import pytest
from msgspec.structs import replace

from arena.types import Entrant, Seat
from populations.audit.tally_checks import refold
from populations.league.league import League
from populations.ratings.results import Counts
from populations.records.rows import TallyRow
from tests.populations.rows import make_tally, make_tally_row, tables_with

BOT, WEIGHTS = Entrant("bot:random"), Entrant("a" * 64)
SEATS = tuple(
    Seat(name=name, side=name, population=population, agents=(name,))
    for name, population in (("hunter", "predator"), ("runner", "prey"))
)


def row(
    kind: Literal["train", "evaluate"], first: Entrant, second: Entrant, *outcome: int
) -> TallyRow:
    wins, draws, losses = outcome
    return make_tally_row(
        make_tally((first, second), (0, 1, wins, draws, losses), matches=sum(outcome)), kind=kind
    )


def fold(rows: list[TallyRow], seats: tuple[Seat, ...]) -> League:
    league = League(tables_with(), seats=seats, half_life_matches=1e12)
    for sequence, tally in enumerate(rows, start=1):
        league.tables.put(replace(tally, sequence=sequence))
        league.add_tally(replace(tally, sequence=sequence))
    return league


def counts(wins: float, draws: float, losses: float) -> Counts:
    """Results whose scores follow from wins and draws."""
    return Counts(wins, draws, losses, points=wins + draws / 2, squares=wins + draws / 4)


def test_only_evaluation_counts_and_each_population_has_its_own_scale() -> None:
    rows = [
        row("train", BOT, WEIGHTS, 100, 0, 0),
        row("evaluate", BOT, WEIGHTS, 1, 2, 3),
        row("evaluate", BOT, WEIGHTS, 10, 20, 30),
        row("evaluate", BOT, BOT, 7, 0, 1),
    ]
    league = fold(rows, SEATS)
    predator, prey = ("predator", BOT), ("prey", BOT)
    assert league.results == {
        (predator, ("prey", WEIGHTS), (0, 1)): counts(11, 22, 33),
        (predator, prey, (0, 1)): counts(7, 0, 1),
    }
    assert {rated: record.matches for rated, record in league.tables.records.items()} == {
        predator: 74,
        prey: 8,
        ("prey", WEIGHTS): 66,
    }
    assert league.payoff.record(BOT, WEIGHTS).wins == 100
    assert league.tables.last_evaluation_sequence == 4


def test_one_player_against_itself_is_no_result() -> None:
    seats = tuple(Seat(name=name, side=name, population="player", agents=(name,)) for name in "xy")
    assert fold([row("evaluate", WEIGHTS, WEIGHTS, 3, 0, 1)], seats).results == {}


def test_in_cooperation_no_seat_is_better_than_the_other() -> None:
    seats = tuple(
        Seat(name=name, side="team", population="agent", agents=("agent_0",))
        for name in ("home", "away")
    )
    league = fold([row("evaluate", BOT, WEIGHTS, 3, 0, 1)], seats)
    assert league.results == {(("agent", BOT), ("agent", WEIGHTS), (0, 0)): counts(3, 0, 1)}


def test_where_games_repeat_each_counts_once() -> None:
    """By hand: a game of 7 equal ones counts as one, of 5 with 2 different ones as 2."""
    seats = tuple(Seat(name=name, side=name, population="player", agents=(name,)) for name in "xy")
    other, script = Entrant("b" * 64), Entrant("bot:script:Bot")

    def played(tally: TallyRow, distinct: int | None) -> TallyRow:
        return replace(tally, tally=replace(tally.tally, distinct=distinct))

    rows = [
        played(row("evaluate", WEIGHTS, other, 7, 0, 0), 1),
        # The same game again, with another number of matches.
        played(row("evaluate", WEIGHTS, other, 4, 0, 0), 1),
        # Seats the other way round are another game.
        played(row("evaluate", other, WEIGHTS, 0, 5, 0), 1),
        # A bot that draws has others, as random play has without an end.
        played(row("evaluate", WEIGHTS, script, 5, 0, 5), 4),
        played(row("evaluate", WEIGHTS, BOT, 3, 0, 1), 2),
        played(row("evaluate", WEIGHTS, BOT, 4, 0, 0), 1),
        # Nobody counted how many games they were.
        played(row("evaluate", other, script, 3, 0, 0), None),
    ]
    sampled = fold(rows, seats)
    league = League(tables_with(), seats=seats, half_life_matches=1e12, repeats_games=True)
    for sequence, tally in enumerate(rows, start=1):
        league.add_tally(replace(tally, sequence=sequence))
    me, you = ("player", WEIGHTS), ("player", other)
    them, bot = ("player", script), ("player", BOT)
    assert league.results == {
        (me, you, (0, 1)): counts(1, 0, 0),
        (you, me, (0, 1)): counts(0, 1, 0),
        (me, them, (0, 1)): counts(2, 0, 2),
        (me, bot, (0, 1)): counts(7, 0, 1),
        (you, them, (0, 1)): counts(3, 0, 0),
    }
    assert sampled.results[me, you, (0, 1)] == counts(11, 0, 0)
    # What was played is what was played.
    assert league.tables.records == sampled.tables.records
    # A check folds the same rows from the same tallies.
    tallies = [replace(tally, sequence=sequence) for sequence, tally in enumerate(rows, start=1)]
    folded = refold(tallies, seats=seats, half_life_matches=1e12, repeats_games=True)
    assert {row.key: Counts.from_results(row) for row in folded.pairs.values()} == {
        ("evaluate", first, second, *both): counted
        for ((_, first), (_, second), both), counted in league.results.items()
    }


def test_of_three_sides_a_comparison_counts_half_a_match() -> None:
    seats = tuple(Seat(name=name, side=name, population="player", agents=(name,)) for name in "xyz")
    # Weights at x against the bot at y and z: 6 matches, two comparisons in each.
    tally = make_tally(
        (WEIGHTS, BOT, BOT),
        (0, 1, 4, 0, 2),
        (0, 2, 2, 2, 2),
        (1, 2, 3, 0, 3),
        matches=6,
        return_sum=(6.0, 0.0, 0.0),
        return_sum_of_squares=(6.0, 0.0, 0.0),
    )
    kinds: tuple[Literal["train", "evaluate"], ...] = ("evaluate", "train")
    for kind in kinds:
        league = League(tables_with(), seats=seats, half_life_matches=1e12)
        league.add_tally(replace(row(kind, BOT, BOT, 1, 0, 0), tally=tally))
        if kind == "evaluate":
            me, bot = ("player", WEIGHTS), ("player", BOT)
            assert league.results == {
                (me, bot, (0, 1)): counts(2.0, 0.0, 1.0),
                (me, bot, (0, 2)): counts(1.0, 1.0, 1.0),
            }
            # 7 of the 12 points of its comparisons; by its 6 matches it would be 1.17.
            assert league.record("player", WEIGHTS).score == 7 / 12
            met = league.evaluated_against(WEIGHTS, BOT)
            assert met is not None
            assert met[0] == 7 / 12
        else:
            found = league.payoff.record(WEIGHTS, BOT)
            assert (found.wins, found.draws, found.losses) == (3.0, 1.0, 2.0)
            assert (found.matches, found.mean_return) == (6.0, 1.0)


def test_of_many_sides_two_players_have_one_result_over_all_seats() -> None:
    seats = tuple(
        Seat(name=f"s{i}", side=f"s{i}", population="player", agents=(f"a{i}",)) for i in range(22)
    )

    def alone(seat: int, *, wins: int, losses: int) -> TallyRow:
        """Weights in one seat against the bot in 21 others, in 2 matches."""
        entrants = [BOT] * 22
        entrants[seat] = WEIGHTS
        # Named by their lowest seats, so seen from the bot but for the first seat.
        other = 1 if seat == 0 else 0
        first, second = min(seat, other), max(seat, other)
        wins, losses = (wins, losses) if seat == 0 else (losses, wins)
        tally = make_tally(
            tuple(entrants),
            (first, second, wins, 0, losses),
            matches=2,
            return_sum=tuple(8.0 if index == seat else -1.0 for index in range(22)),
            return_sum_of_squares=(64.0,) * 22,
            length_sum=10,
        )
        return replace(row("evaluate", BOT, BOT, 1, 0, 0), tally=tally)

    rows = [alone(0, wins=42, losses=0), alone(7, wins=21, losses=21)]
    league = fold(rows, seats)
    me, bot = ("player", WEIGHTS), ("player", BOT)
    # One row whoever sits where: (42 + 21) / 21 wins of 4 matches, and 21 / 21 losses.
    assert league.results == {(me, bot, (0, 0)): counts(3.0, 0.0, 1.0)}
    # 3 points and returns of 16 in 4 matches.
    assert league.evaluated_against(WEIGHTS, BOT) == (0.75, 4.0)
    assert league.evaluated_against(BOT, WEIGHTS) == (0.25, -0.5)
    assert league.num_met(me, bot) == 4.0
    record = league.record("player", WEIGHTS)
    assert (record.matches, record.wins, record.losses, record.return_sum) == (4, 63, 21, 16.0)
    # A match is one for a player of 21 seats, too, or a policy would soon have its least number.
    assert league.record("player", BOT).matches == 4
    assert league.record("player", BOT).return_sum == -2.0
    # Matchmaking has the same, from training.
    train = replace(rows[1], kind="train")
    learning = League(tables_with(), seats=seats, half_life_matches=1e12)
    learning.add_tally(train)
    found = learning.payoff.record(WEIGHTS, BOT)
    assert (found.wins, found.losses, found.mean_return) == (1.0, 1.0, 4.0)


def test_of_many_sides_a_match_is_one_result_however_seats_are_shared() -> None:
    seats = tuple(
        Seat(name=f"s{i}", side=f"s{i}", population="pq"[i % 2], agents=(f"a{i}",))
        for i in range(12)
    )
    tally = make_tally(
        (WEIGHTS, BOT) * 6,
        # 36 pairs of seats in each match.
        (0, 1, 120, 20, 40),
        matches=5,
        return_sum=(10.0, 5.0) * 6,
        return_sum_of_squares=(64.0,) * 12,
        length_sum=10,
    )
    league = fold([replace(row("evaluate", BOT, BOT, 1, 0, 0), tally=tally)], seats)
    (outcome,) = league.results.values()
    assert outcome == pytest.approx(counts(120 / 36, 20 / 36, 40 / 36))
    assert list(league.results) == [(("p", WEIGHTS), ("q", BOT), (0, 1))]
    # Each has the mean return of its seats.
    (pair,) = league.pairs_of(("p", WEIGHTS))
    assert (pair.first_return_sum, pair.second_return_sum) == pytest.approx((10.0, 5.0))


def test_a_member_of_a_team_has_one_result_of_a_match() -> None:
    seats = tuple(
        Seat(name=f"{side}/{name}", side=side, population=name, agents=(f"{name}_{side}",))
        for side in "xy"
        for name in ("p", "q")
    )
    entrants = tuple(Entrant(letter * 64) for letter in "bcde")
    pairs = [(0, 2), (0, 3), (1, 2), (1, 3)]
    tally = make_tally(entrants, *((first, second, 3, 2, 1) for first, second in pairs))
    league = fold([replace(row("evaluate", BOT, BOT, 1, 0, 0), tally=tally)], seats)
    assert all(outcome == counts(1.5, 1.0, 0.5) for outcome in league.results.values())
    for seat, entrant in zip(seats, entrants, strict=True):
        own = [
            outcome.matches
            for key, outcome in league.results.items()
            if (seat.population, entrant) in key[:2]
        ]
        assert sum(own) == 6.0


def test_a_team_against_itself_is_no_result_but_against_another_it_is() -> None:
    seats = tuple(
        Seat(name=f"{team}/{name}", side="all", population=name, agents=(name,))
        for team in ("home", "away")
        for name in ("p", "q")
    )
    one, two, other = (Entrant(letter * 64) for letter in "bcd")
    for away, expected in (((one, two), 0), ((one, other), 1), ((BOT, BOT), 2)):
        tally = make_tally((one, two, *away), (0, 2, 3, 1, 1), (1, 3, 3, 1, 1))
        league = fold([replace(row("evaluate", BOT, BOT, 1, 0, 0), tally=tally)], seats)
        assert len(league.results) == expected
        assert bool(league.tables.records) == (expected > 0)
        assert all(outcome == counts(3.0, 1.0, 1.0) for outcome in league.results.values())
