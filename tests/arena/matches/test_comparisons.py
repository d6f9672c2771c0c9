"""What tallies sum, against the formulas by pairs of seats and numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.envs.batched.scoring import score_against
from arena.matches.comparisons import (
    comparisons,
    counted,
    counting_seats,
    is_by_seats,
    is_repeating,
    numbers_of,
    result_weights,
    rival_populations,
    rival_seats,
)
from arena.matches.pair_scores import kept_sums, num_scored, points, squares
from arena.matches.seating import make_seats
from arena.matches.tally_sums import TallySums
from arena.types import Entrant, PairScore, PolicyId, Seat, Tally, trainee_entrant
from tests.arena.matches.test_teammates import squads


def sides(num_sides: int, *, populations: int = 1) -> tuple[Seat, ...]:
    """Each agent is a side; populations take turns."""
    agents = tuple(f"agent_{index}" for index in range(num_sides))
    return make_seats(
        agents=agents,
        sides={agent: (agent,) for agent in agents},
        populations={f"p{k}": agents[k::populations] for k in range(populations)},
    )


@pytest.mark.parametrize(
    ("trainee", "counting"), [(0, (0, 2, 4)), (2, (0, 2, 4)), (3, (1, 3, 5)), (6, (0, 2, 6))]
)
def test_a_side_counts_for_the_trainee_or_for_who_faces_it(
    trainee: int, counting: tuple[int, ...]
) -> None:
    """The third of a side faces the first of a side of two."""
    entrants = [Entrant("a" * 64)] * 7
    entrants[trainee] = trainee_entrant(PolicyId("player/p000"), generation=0)
    assert counting_seats(entrants, ((0, 1), (2, 3), (4, 5, 6))) == counting


def tally_of(
    seats: tuple[Seat, ...], entrants: Sequence[str], points_of_seats: Sequence[Sequence[float]]
) -> Tally:
    names = tuple(map(Entrant, entrants))
    sums = TallySums([names], seats=seats, compare=True)
    # Matches are added one at a time, as environments end one after the other.
    for row in points_of_seats:
        scores = torch.tensor([row], dtype=torch.float32)
        sums.add(
            torch.tensor([0]),
            seat_return=scores.double(),
            seat_score=scores,
            length=torch.tensor([5]),
        )
    (tally,) = sums.tallies()
    return tally


def by_seats(
    seats: tuple[Seat, ...], points_of_seats: Sequence[Sequence[float]]
) -> tuple[PairScore, ...]:
    """The formulas of releases that had a result for each pair of seats, whatever their number."""
    scores = torch.tensor(points_of_seats, dtype=torch.float32)
    found = []
    for i, j in rival_seats(seats):
        wins = draws = losses = 0
        total = square = 0.0
        for score in score_against(scores[:, i], scores[:, j]).tolist():
            wins, draws, losses = (
                wins + (score > 0.5),
                draws + (score == 0.5),
                losses + (score < 0.5),
            )
            total, square = total + score, square + score * score
        pair = PairScore(first=i, second=j, wins=wins, draws=draws, losses=losses)
        score_sum, square_sum = kept_sums(pair, score_sum=total, square_sum=square)
        found.append(
            PairScore(
                first=i,
                second=j,
                wins=wins,
                draws=draws,
                losses=losses,
                score_sum=score_sum,
                square_sum=square_sum,
            )
        )
    return tuple(found)


# Thirds are not binary fractions, so sums of margins depend on their order.
SCORES = st.sampled_from([0.0, 0.5, 1.0, 1 / 3, 2 / 3])


@settings(max_examples=40, deadline=None)
@given(data=st.data(), num_sides=st.sampled_from([2, 3, 9]))
def test_few_sides_have_the_results_of_each_pair_of_seats_to_the_bit(
    data: st.DataObject, num_sides: int
) -> None:
    seats = sides(num_sides)
    assert is_by_seats(seats)
    rows = data.draw(st.lists(st.tuples(*[SCORES] * num_sides), min_size=1, max_size=6))
    entrants = data.draw(st.tuples(*[st.sampled_from("AB")] * num_sides))
    tally = tally_of(seats, entrants, rows)
    assert tally.pairs == by_seats(seats, rows)
    # [N, Q] summed over the matches
    assert tally.return_sum == pytest.approx(torch.tensor(rows).double().sum(dim=0).tolist())


@settings(max_examples=40, deadline=None)
@given(data=st.data(), num_sides=st.integers(10, 14), populations=st.integers(1, 3))
def test_many_sides_have_one_result_for_each_two_players(
    data: st.DataObject, num_sides: int, populations: int
) -> None:
    seats = sides(num_sides, populations=populations)
    assert not is_by_seats(seats)
    rows = data.draw(st.lists(st.tuples(*[SCORES] * num_sides), min_size=1, max_size=4))
    entrants = data.draw(st.tuples(*[st.sampled_from("AB")] * num_sides))
    tally = tally_of(seats, entrants, rows)
    names = [(seat.population, entrant) for seat, entrant in zip(seats, entrants, strict=True)]
    assert len(tally.pairs) == len(list(combinations(set(names), 2)))
    for pair in tally.pairs:
        both = {names[pair.first], names[pair.second]}
        # Each pair of the two players' seats is listed, seen from the first player.
        own = [
            (one, names[one.first] == names[pair.first])
            for one in by_seats(seats, rows)
            if {names[one.first], names[one.second]} == both
            and names[one.first] != names[one.second]
        ]
        wins = sum(one.wins if is_first else one.losses for one, is_first in own)
        losses = sum(one.losses if is_first else one.wins for one, is_first in own)
        assert (pair.wins, pair.losses) == (wins, losses)
        assert num_scored(pair) == len(own) * len(rows)
        total = sum(points(one) if is_first else len(rows) - points(one) for one, is_first in own)
        assert points(pair) == pytest.approx(total)
        assert squares(pair) <= points(pair) + 1e-9


def test_a_player_alone_among_21_others_has_21_results_of_a_match() -> None:
    # Agent 3 beats agents 0 to 2, draws with 4 and loses to 17 more; one player has all other
    # seats.
    seats = sides(22)
    entrants = ["crowd"] * 3 + ["me"] + ["crowd"] * 18
    beaten = [0.0] * 3 + [3.5] + [3.5] + [21.0] * 17
    tally = tally_of(seats, entrants, [beaten, beaten])
    (pair,) = tally.pairs
    assert (pair.first, pair.second) == (0, 3)
    assert (pair.wins, pair.draws, pair.losses) == (34, 2, 6)
    # A seat has the mean over its player's seats: (3 * 0 + 3.5 + 17 * 21) / 21, twice.
    assert tally.return_sum[3] == 7.0
    assert tally.return_sum[0] == tally.return_sum[21] == pytest.approx(2 * 360.5 / 21)
    assert numbers_of(tally) == {(0, 3): 21}
    # Together the comparisons weigh one match, however many seats a player has.
    assert result_weights(numbers_of(tally), entrants=entrants) == {(0, 3): 1 / 21}


def test_teams_of_mixed_players_count_for_the_trainee_and_its_rival() -> None:
    teams = {f"team_{k}": (f"a{k}", f"b{k}") for k in range(10)}
    agents = tuple(agent for members in teams.values() for agent in members)
    populations = {"player": agents}
    whole = make_seats(agents=agents, sides=teams, populations=populations)
    seats = tuple(
        Seat(name=agent, side=seat.side, population="player", agents=(agent,))
        for seat in whole
        for agent in seat.agents
    )
    # The trainee sits second in team 4, so its rivals are those who sit second.
    entrants = ["x", "rival"] * 4 + ["mate", "player/p000#1"] + ["y", "rival"] * 5
    (one,) = comparisons(seats, entrants=[Entrant(name) for name in entrants])
    assert one.names == (0, 8)
    assert one.second == (8,)
    assert one.number == 9


def test_populations_that_meet() -> None:
    assert rival_populations(sides(12)) == {frozenset({"p0"})}
    assert rival_populations(sides(2, populations=2)) == {frozenset({"p0", "p1"})}
    for seats in (sides(12, populations=3), sides(3, populations=3), squads()):
        assert rival_populations(seats) == {
            frozenset((seats[i].population, seats[j].population)) for i, j in rival_seats(seats)
        }


@pytest.mark.parametrize(
    ("distinct", "repeating", "expected"),
    [(1, {"a", "b"}, 1), (3, {"a", "b"}, 3), (1, {"a"}, 9), (1, set(), 9), (None, {"a", "b"}, 9)],
)
def test_equal_games_count_once_where_nobody_draws(
    distinct: int | None, repeating: set[str], expected: int
) -> None:
    tally = Tally(
        entrants=(Entrant("a"), Entrant("b")),
        matches=9,
        pairs=(),
        return_sum=(0.0, 0.0),
        return_sum_of_squares=(0.0, 0.0),
        length_sum=9,
        distinct=distinct,
    )
    assert counted(tally, repeating) == expected
    assert is_repeating(tally, repeating) == (distinct is not None and repeating == {"a", "b"})
