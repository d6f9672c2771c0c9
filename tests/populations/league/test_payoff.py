from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.types import Entrant, PairScore, PolicyId, Tally
from populations.core import PRIOR_MATCHES
from populations.league.payoff import Payoff
from populations.league.scores import (
    SIDE_DEVIATION,
    filled_scores,
    filled_scores_among,
    rating_by_results,
)
from tests.populations.payoffs import Record, met, record, records
from tests.populations.rows import make_tally

A, B, C = Entrant("player/p001#0"), Entrant("b" * 64), Entrant("bot:random")


def two(first: Entrant, second: Entrant, wins: int, draws: int, losses: int) -> Tally:
    return make_tally((first, second), (0, 1, wins, draws, losses))


def test_old_results_are_decayed_by_the_new_matches_of_their_pair() -> None:
    payoff = Payoff(half_life_matches=10.0)
    payoff.add(two(A, B, 8, 0, 0))
    payoff.add(two(A, C, 0, 0, 50))  # matches of another pair change nothing
    payoff.add(two(A, B, 0, 4, 6))  # 10 matches: one half-life
    assert record(payoff, A, B) == Record(wins=4.0, draws=4.0, losses=6.0)
    assert record(payoff, B, A) == Record(wins=6.0, draws=4.0, losses=4.0)


def test_both_orders_of_seats_are_one_pair() -> None:
    payoff = Payoff(half_life_matches=4.0)
    payoff.add(two(A, B, 4, 0, 0))
    payoff.add(two(B, A, 0, 0, 4))
    assert len(records(payoff)) == 1
    assert record(payoff, A, B) == Record(wins=6.0)


def test_each_pair_of_seats_on_different_sides_counts_in_one_batch() -> None:
    # Three seats, one of them against two copies of the same ghost: 2 x 5 matches are one batch.
    payoff = Payoff(half_life_matches=10.0)
    payoff.add(two(A, B, 2, 0, 0))
    payoff.add(make_tally((A, B, B), (0, 1, 5, 0, 0), (0, 2, 3, 1, 1), (1, 2, 5, 0, 0)))
    assert record(payoff, A, B) == Record(wins=9.0, draws=1.0, losses=1.0)


def test_a_view_of_two_seats_fades_with_the_matches_in_all_seats() -> None:
    payoff = Payoff(half_life_matches=10.0)
    payoff.add(two(A, B, 8, 0, 0))
    payoff.add(two(B, A, 6, 4, 0))  # 10 matches in the other seats: one half-life
    assert record(payoff, A, B, seats=(0, 1)) == Record(wins=4.0)
    assert record(payoff, A, B, seats=(1, 0)) == Record(draws=4.0, losses=6.0)
    assert record(payoff, B, A, seats=(0, 1)) == Record(wins=6.0, draws=4.0)
    assert record(payoff, B, A, seats=(1, 0)) == Record(losses=4.0)
    assert record(payoff, A, B) == Record(wins=4.0, draws=4.0, losses=6.0)
    assert record(payoff, A, B, seats=(0, 2)) == Record()


def test_returns_fade_as_results_do() -> None:
    payoff = Payoff(half_life_matches=10.0)
    payoff.add(replace(two(A, B, 10, 0, 0), return_sum=(30.0, -30.0)))
    payoff.add(replace(two(B, A, 0, 10, 0), return_sum=(5.0, 20.0)))
    seen = record(payoff, A, B)
    assert (seen.return_sum, seen.opponent_return_sum) == (15.0 + 20.0, -15.0 + 5.0)
    assert record(payoff, B, A).return_sum == -10.0


def test_what_an_entrant_does_against_itself_says_nothing() -> None:
    payoff = Payoff(half_life_matches=10.0)
    payoff.add(two(A, A, 5, 0, 3))
    assert records(payoff) == {}


def test_statistics_start_anew_with_a_generation() -> None:
    payoff = Payoff(half_life_matches=100.0)
    payoff.add(two(A, B, 0, 0, 50))
    assert record(payoff, Entrant("player/p001#1"), B) == Record()


def test_a_former_generation_fades_with_the_matches_of_the_next_one() -> None:
    payoff = Payoff(half_life_matches=10.0)
    old, new, other = Entrant("player/p001#3"), Entrant("player/p001#4"), Entrant("player/p002#0")
    payoff.add(two(old, B, 6, 2, 0))
    payoff.add(two(new, B, 1, 0, 9))
    # Only one of the two has played it; p002 sorts after both, as the first in the other seat.
    payoff.add(two(other, old, 3, 0, 1))
    gone, kept = payoff.fold(old, new)
    # B sorts lower. After ten later matches eight count as four: 3 won, 1 drawn.
    found = record(payoff, new, B)
    assert (found.wins, found.draws, found.losses) == (4.0, 1.0, 9.0)
    assert record(payoff, new, other).losses == 3.0
    assert record(payoff, new, other).wins == 1.0
    assert record(payoff, old, B).matches == record(payoff, old, other).matches == 0.0
    assert len(gone) == len(kept) == 2
    assert all(old in (row.first, row.second) for row in gone)
    assert all(row.first < row.second and new in (row.first, row.second) for row in kept)
    assert payoff.generations(PolicyId("player/p001")) == [4]
    # The table equals the rows that are reported as changed.
    anew = Payoff(half_life_matches=10.0)
    for row in kept:
        anew.put(row)
    assert records(anew) == records(payoff)
    assert anew.generations(PolicyId("player/p001")) == [4]


def test_who_is_followed_has_what_all_rows_say() -> None:
    payoff = Payoff(half_life_matches=10.0)
    others = [Entrant(f"{number:064d}") for number in range(40)]
    payoff.add(two(A, others[0], 3, 1, 0))
    followed, turned = payoff.follow(A), payoff.follow(others[0])
    for number, other in enumerate(others):
        payoff.add(two(A, other, number, 2, 1))
        payoff.add(two(other, A, 1, 0, 4))
    for entrant, kept in ((A, followed), (others[0], turned)):
        opponents = list(met(payoff, entrant))
        assert kept.others == [other for other, _, _ in opponents]
        results = [result for _, wins, losses in opponents for result in (wins, losses)]
        assert kept.results.T.ravel().tolist() == pytest.approx(results)
    # A rebuilt table is the same to the bit.
    before = followed.results.tolist()
    del followed, kept
    assert payoff.follow(A).results.tolist() == before


def test_columns_that_drop_opponents_have_them_again_once_they_are_met() -> None:
    payoff = Payoff(half_life_matches=math.inf)
    others = [Entrant(f"{number:064d}") for number in range(40)]
    for number, other in enumerate(others):
        payoff.add(two(A, other, number, 0, 1))
    whole, some = payoff.follow(A), payoff.follow(A)
    some.keep(np.array([3, 5, 39]))
    assert some.others == [others[3], others[5], others[39]]
    assert some.results.tolist() == [[3.0, 5.0, 39.0], [1.0, 1.0, 1.0]]
    payoff.add(two(A, others[5], 2, 0, 0))
    payoff.add(two(A, others[7], 0, 0, 3))
    # Dropped opponents that return count in full and come last.
    assert some.others == [others[3], others[5], others[39], others[7]]
    assert some.results.tolist() == [[3.0, 7.0, 39.0, 7.0], [1.0, 1.0, 1.0, 4.0]]
    some.keep(np.zeros(0, dtype=np.int64))
    payoff.add(two(A, others[0], 1, 0, 0))
    assert (some.others, some.results.tolist()) == ([others[0]], [[1.0], [1.0]])
    # Columns of other opponents are independent.
    assert whole.others == others
    assert whole.results[:, 7].tolist() == [7.0, 4.0]


def test_margins_that_are_followed_are_scores_and_not_wins() -> None:
    payoff = Payoff(half_life_matches=1e12)
    followed, turned = payoff.follow(A), payoff.follow(B)
    # A wins four times narrowly, with a score of .6 each.
    pair = PairScore(first=0, second=1, wins=4, draws=0, losses=0, score_sum=2.4, square_sum=1.44)
    payoff.add(replace(two(A, B, 4, 0, 0), pairs=(pair,)))
    ((other, won, lost),) = met(payoff, A)
    assert other == B
    assert [won, lost] == pytest.approx([2.4, 1.6])
    assert followed.results.ravel().tolist() == pytest.approx([2.4, 1.6])
    assert turned.results.ravel().tolist() == pytest.approx([1.6, 2.4])


@pytest.mark.parametrize("half_life", [0.0, -1.0, float("nan")])
def test_half_life_must_be_positive(half_life: float) -> None:
    with pytest.raises(ValueError, match="half_life_matches must be above 0"):
        Payoff(half_life_matches=half_life)


ENTRANTS = st.sampled_from([A, B, C, Entrant("c" * 64)])
COUNTS = st.integers(0, 10_000)
TALLIES = st.lists(st.builds(two, ENTRANTS, ENTRANTS, COUNTS, COUNTS, COUNTS), max_size=20)


@settings(deadline=None)
@given(TALLIES, st.floats(0.1, 1e9))
def test_folding_again_gives_the_same_bits(tallies: list[Tally], half_life: float) -> None:
    first, second = (Payoff(half_life_matches=half_life) for _ in range(2))
    for item in tallies:
        first.add(item)
        second.add(item)
    assert records(first) == records(second)


@settings(deadline=None)
@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS), min_size=1, max_size=8), st.floats(1.0, 1e6))
def test_decay_equals_weighting_each_batch_by_its_age(
    batches: list[tuple[int, int, int]], half_life: float
) -> None:
    payoff = Payoff(half_life_matches=half_life)
    for batch in batches:
        payoff.add(two(A, B, *batch))
    wins = 0.0
    for index, batch in enumerate(batches):
        age = sum(sum(later) for later in batches[index + 1 :])
        wins += batch[0] * 0.5 ** (age / half_life)
    assert record(payoff, A, B).wins == pytest.approx(wins, rel=1e-9, abs=1e-300)


def test_results_outweigh_the_prediction_as_they_add_up() -> None:
    # Equal ratings predict 1/2: (3 + 4 + 8 / 2) / (8 + 8) = 11 / 16.
    scores = filled_scores_among(np.zeros(3), [(0, 1, 3, 4), (1, 0, 0, 4)])
    assert PRIOR_MATCHES == 8.0
    assert scores[0, 1] == pytest.approx(11 / 16)
    assert scores[1, 0] == pytest.approx(5 / 16)
    assert scores[0, 2] == scores[2, 1] == scores[1, 1] == 0.5


def test_who_never_met_scores_what_ratings_promise() -> None:
    scores = filled_scores_among(np.array([400.0, 0.0, np.nan]), [])
    # 400 points are odds of 10 to 1.
    assert scores[0, 1] == pytest.approx(10 / 11)
    assert scores[0, 2] == scores[2, 0] == 0.5


def test_rows_and_columns_may_be_of_different_populations() -> None:
    predicted = np.array([[0.25, 0.5, 0.75]])
    scores = filled_scores(predicted, [(0, 2, 8.0, 8.0)])
    assert scores.tolist() == [[0.25, 0.5, (8 + 6) / 16]]


@given(
    ratings=st.lists(st.floats(-2000, 2000) | st.just(float("nan")), min_size=2, max_size=5),
    outcomes=st.lists(st.tuples(*[st.integers(0, 1)] * 2, st.floats(0, 1), st.integers(0, 50))),
)
def test_scores_of_both_players_add_up_to_one(
    ratings: list[float], outcomes: list[tuple[int, int, float, int]]
) -> None:
    met = [(i, j, share * number, number) for i, j, share, number in outcomes if i != j]
    scores = filled_scores_among(np.array(ratings), met)
    assert np.isfinite(scores).all()
    assert scores + scores.T == pytest.approx(np.ones_like(scores))
    assert ((scores >= 0.0) & (scores <= 1.0)).all()


def test_a_rating_goes_to_where_results_say_that_it_is() -> None:
    # Against many players at 0 it wins 10 of 11: 400 Elo, if results outweigh the prior.
    opponents, matches = np.zeros(5), np.full(5, 1e9)
    found = rating_by_results(1e3, opponents, wins=matches * 10 / 11, losses=matches / 11)
    assert found == pytest.approx(400.0, abs=0.01)


def test_without_results_a_rating_stays() -> None:
    nobody = np.zeros(0)
    assert rating_by_results(321.0, nobody, wins=nobody, losses=nobody) == 321.0
    assert np.isnan(rating_by_results(np.nan, np.zeros(1), wins=np.ones(1), losses=np.ones(1)))


@settings(deadline=None, max_examples=40)
@given(
    rating=st.floats(-4e3, 4e3),
    data=st.lists(
        st.tuples(st.floats(-4e3, 4e3), st.floats(0.0, 1e4), st.floats(0.0, 1e4)), max_size=6
    ),
)
def test_a_moved_rating_is_the_highest_point_of_its_posterior(
    rating: float, data: list[tuple[float, float, float]]
) -> None:
    opponents, wins, losses = np.array(data).reshape(len(data), 3).T

    def slope(elo: float) -> float:
        """Of the log posterior, per Elo: falls everywhere."""
        expected = 1.0 / (1.0 + np.exp(np.clip((opponents - elo) * np.log(10) / 400.0, -700, 700)))
        return float(
            np.log(10) / 400.0 * (wins - (wins + losses) * expected).sum()
            - (elo - rating) / SIDE_DEVIATION**2
        )

    found = rating_by_results(rating, opponents, wins=wins, losses=losses)
    assert slope(found - 1.0) > 0.0 > slope(found + 1.0)
