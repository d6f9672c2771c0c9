"""How sure ratings, ranks and differences are: by hand, by resamples, and by planted skills."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from itertools import pairwise, permutations
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.ratings import ranks
from populations.ratings.any_time import any_time_width, squared_width, squared_width_of_windows
from populations.ratings.bootstrap import bootstrap, intervals
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.fitting.components import Components
from populations.ratings.fitting.posterior import FloatArray
from populations.ratings.model import Z95, Fit, Result, probability_positive
from populations.ratings.ranks import measured_cyclicity, open_above, rank_intervals
from populations.ratings.results import result_columns
from tests.populations.ratings.matches import met

ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def test_ranks_of_three_by_hand() -> None:
    # Each player is compared with two others, so each comparison has 0.95^(1/2) = 97.468% and z =
    # 2.2365. The standard deviation of a difference is sqrt(2) * 10 = 14.142, so 31.63 points are
    # sufficient: not for 100 against 69, but for 69 against 37 (32) and 100 against 37.
    ratings = np.array([69.0, 100.0, 37.0])
    assert rank_intervals(ratings, spread=10.0 * np.eye(3)) == [(1, 2), (1, 2), (3, 3)]
    # At a difference of 31 points the last two share their ranks as well.
    ratings = np.array([69.0, 100.0, 38.0])
    assert rank_intervals(ratings, spread=10.0 * np.eye(3)) == [(1, 3), (1, 2), (2, 3)]
    # Between only two players 1.96 * 14.142 = 27.72 points are sufficient.
    assert rank_intervals(ratings[:2], spread=10.0 * np.eye(2)) == [(2, 2), (1, 1)]


def test_shared_errors_do_not_blur_ranks() -> None:
    # Both have an error of 100 against the anchor, and nearly none against each other.
    spread = np.array([[100.0, 1.0, 0.0], [100.0, 0.0, 1.0]])
    assert rank_intervals(np.array([10.0, 0.0]), spread=spread) == [(1, 1), (2, 2)]
    # The errors are independent: the deviation of the difference is sqrt(2) * 100.
    assert rank_intervals(np.array([10.0, 0.0]), spread=100.0 * np.eye(2)) == [(1, 2), (1, 2)]


def test_entrants_without_a_rank_push_nobody_down() -> None:
    ratings = np.array([30.0, 20.0, 10.0, 0.0])
    is_ranked = np.array([False, True, False, True])
    found = rank_intervals(ratings, spread=np.eye(4), is_ranked=is_ranked)
    # The first and the third get the rank that they would have between the second and the fourth.
    assert found == [(1, 1), (1, 1), (2, 2), (2, 2)]
    # With deviations of 14 even the first may rank last of its three.
    found = rank_intervals(ratings, spread=10.0 * np.eye(4), is_ranked=is_ranked)
    assert found == [(1, 3), (1, 2), (1, 3), (1, 2)]


def test_equal_entrants_have_equal_ranks() -> None:
    spread = np.array([[5.0, 1.0], [5.0, 1.0], [0.0, 2.0]])
    assert rank_intervals(np.array([90.0, 90.0, 0.0]), spread=spread) == [(1, 2), (1, 2), (3, 3)]


def test_blocks_of_many_entrants_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    spread = rng.normal(0.0, 10.0, size=(50, 8))
    ratings, is_ranked = rng.normal(0.0, 40.0, size=50), rng.random(50) < 0.7
    whole = rank_intervals(ratings, spread=spread, is_ranked=is_ranked)
    monkeypatch.setattr(ranks, "MAX_ENTRIES", 350)
    assert rank_intervals(ratings, spread=spread, is_ranked=is_ranked) == whole


@pytest.mark.parametrize("gap", [0.5, 2.0, 10.0, 40.0])
@pytest.mark.parametrize("size", [3, 10, 40])
def test_ranks_of_planted_skills_are_held(size: int, gap: float) -> None:
    # The first player is the hardest case if all are near each other: chance may put any other
    # ahead. With pairwise 95% intervals its rank is held in 86% of cases for 40 players 0.5 apart.
    rng = np.random.default_rng(11)
    truth = -gap * np.arange(size)
    place = np.arange(1, size + 1)
    # The error against the anchor is shared by all, and each player has one of its own.
    spread = np.column_stack([np.full(size, 100.0), 20.0 * np.eye(size)])
    held = []
    for _ in range(400):
        found = np.array(rank_intervals(truth + spread @ rng.normal(size=size + 1), spread=spread))
        held.append((found[:, 0] <= place) & (place <= found[:, 1]))
    assert np.mean(held, axis=0).min() >= 0.93


def played(
    advantages: FloatArray, *, matches: int, rng: np.random.Generator, eta: float = -1.0
) -> list[Result[int]]:
    """Everyone meets everyone in both orders of seats; the first seat is worth 0.3."""
    results = []
    for i, j in itertools.permutations(range(len(advantages)), 2):
        half = 0.5 * (advantages[i, j] + 0.3)
        odds = np.exp([half, eta, -half])
        wins, draws, losses = rng.multinomial(matches, odds / odds.sum())
        results.append(met(i, j, wins, losses, draws=draws, seats=(0, 1)))
    return results


def measured(results: list[Result[int]]) -> float:
    return measured_cyclicity(BradleyTerry().fit(results), results)


@pytest.mark.parametrize("size", [3, 8, 20])
@pytest.mark.parametrize("matches", [1, 3, 30])
def test_sampling_noise_is_no_cycle(size: int, matches: int) -> None:
    rng = np.random.default_rng(7)
    transitive, equal = [], []
    for _ in range(10):
        theta = rng.normal(0.0, 1.5, size=size)
        results = played(theta[:, None] - theta[None, :], matches=matches, rng=rng)
        transitive.append(measured(results))
        equal.append(measured(played(np.zeros((size, size)), matches=matches, rng=rng)))
    assert np.mean(transitive) < 0.01
    assert np.mean(equal) < 0.02


def test_measured_rock_paper_scissors_is_nearly_all_cycle() -> None:
    rng = np.random.default_rng(8)
    assert measured(played(3.0 * ROCK_PAPER_SCISSORS, matches=100, rng=rng)) > 0.95
    assert measured(played(ROCK_PAPER_SCISSORS, matches=1000, rng=rng)) > 0.95
    # The game is half cycle, half ratings: cyclicity is the same share of squared scores.
    theta = np.array([1.0, 0.0, -1.0])
    mixture = ROCK_PAPER_SCISSORS + theta[:, None] - theta[None, :]
    assert 0.2 < measured(played(mixture, matches=1000, rng=rng)) < 0.5


def test_measured_cyclicity_by_hand() -> None:
    # Every pair is 100:0 in a circle with equal seats: the fit is 0 for all, so each pair has a
    # surplus of 50 points in 100 matches, 50^2 / 100 = 25, of 75 in all. Noise: 3 pairs with a
    # variance of 1/4 each (no draws): 0.75, times the 95% quantile of chi-squared over 3, 7.815 /
    # 3.
    results = [
        Result(first=i, second=(i + 1) % 3, seats=(0, 0), wins=100, draws=0, losses=0)
        for i in range(3)
    ]
    assert measured(results) == pytest.approx(1.0 - 0.25 * 7.815 / 75.0, abs=2e-4)


def test_a_circle_of_masters_is_not_hidden_by_beginners() -> None:
    # Three masters form a circle, and seventeen beginners are ordered by skill alone.
    theta = np.array([6.0, 6.0, 6.0, *np.linspace(-1.0, 3.0, 17)])
    eta = theta[:, None] - theta[None, :]
    eta[:3, :3] += 2.0 * ROCK_PAPER_SCISSORS
    rng = np.random.default_rng(5)
    results = played(eta, matches=200, rng=rng)
    assert measured(results) > 0.9
    # Each of several scales has a best player; masters of one scale do not hide those of another.
    taller = played(np.array([[0.0, 9.0], [-9.0, 0.0]]), matches=200, rng=rng)
    both = [*results, *(replace(r, first=r.first + 20, second=r.second + 20) for r in taller)]
    fit = BradleyTerry().fit(both, anchors=[19, 21])
    assert measured_cyclicity(fit, results, scale_of=lambda player: player < 20) > 0.9
    assert measured_cyclicity(fit, results) < 0.9


def test_nothing_known_is_no_cycle() -> None:
    nothing: list[Result[int]] = []
    assert measured(nothing) == 0.0
    unplayed = [Result(first=0, second=1, seats=(0, 1), wins=0, draws=0, losses=0)]
    assert measured(unplayed) == 0.0


def test_which_entrant_is_told_first_does_not_matter_to_cyclicity() -> None:
    rng = np.random.default_rng(9)
    results = played(ROCK_PAPER_SCISSORS, matches=50, rng=rng)
    turned = [
        met(r.second, r.first, r.losses, r.wins, draws=r.draws, seats=(r.seats[1], r.seats[0]))
        for r in results
    ]
    fit = BradleyTerry().fit(results)
    assert measured_cyclicity(fit, turned) == pytest.approx(measured_cyclicity(fit, results))
    mixed = [*results[:3], *turned[3:]]
    assert measured_cyclicity(fit, mixed) == pytest.approx(measured_cyclicity(fit, results))


def test_squared_width_by_hand() -> None:
    # u / v = 25: (1 + 1 / 25) (2 log 20 + log 26), and with 8 chances 2 log 160.
    assert squared_width(25.0) == pytest.approx(1.04 * (5.991465 + 3.258097))
    assert squared_width(25.0, chances=8) == pytest.approx(1.04 * (10.150347 + 3.258097))
    # 2 log 160 + 2 log 26
    assert squared_width_of_windows(25.0, chances=8) == pytest.approx(10.150347 + 6.516193)


def test_a_rating_that_is_looked_at_often_is_rarely_above_its_bound() -> None:
    # A player of strength 0 is estimated after each of 400 matches: a bound of 95% is above the
    # truth at some time in a third of all cases.
    rng = np.random.default_rng(0)
    matches = np.arange(16, 416)
    deviations = 347.4 / np.sqrt(matches)
    means = 347.4 * np.cumsum(rng.normal(size=(2000, 415)), axis=1)[:, 15:] / matches
    plain = (means - Z95 * deviations > 0.0).any(axis=1).mean()
    widths = np.array([any_time_width(float(d), scale=200.0) for d in deviations])
    at_any_time = (means - widths > 0.0).any(axis=1).mean()
    assert plain > 0.1
    assert at_any_time <= 0.025


def test_intervals_are_percentiles_and_hold_the_rating() -> None:
    rows = np.stack([np.arange(1001.0), np.zeros(1001), np.full(1001, 7.0)], axis=1)
    found = intervals(np.array([500.0, 0.0, 9.0]), rows)
    assert found.lows == pytest.approx([25.0, 0.0, 7.0])
    assert found.highs == pytest.approx([975.0, 0.0, 9.0])


def test_ranks_count_who_is_ahead_in_nearly_all_resamples() -> None:
    # a is ahead of b in all 40 samples; c is ahead of b in 39 of 40 (97.5%); d of b in 38.
    rows = [np.array([5.0, 0.0, 1.0, 1.0])] * 38
    rows += [np.array([5.0, 0.0, 1.0, -1.0]), np.array([5.0, 0.0, -1.0, -1.0])]
    found = intervals(np.array([5.0, 0.0, 1.0, 1.0]), rows)
    assert found.ranks == ((1, 1), (3, 4), (2, 3), (2, 4))


def test_what_differs_by_a_rounding_error_is_equal() -> None:
    found = intervals(np.zeros(2), [np.array([1e-9, 0.0])] * 3)
    assert found.ranks == ((1, 2), (1, 2))


BOT = "bot:random"
NAMES = (BOT, "a", "b", "c", "d")
ELO = np.array([0.0, 100.0, 130.0, 300.0, 400.0])


def well_played(*, matches: int) -> list[Result[str]]:
    rng = np.random.default_rng(1)
    results = []
    for i, j in itertools.permutations(range(len(NAMES)), 2):
        p = 1.0 / (1.0 + 10.0 ** ((ELO[j] - ELO[i] - 50.0) / 400.0))
        draw = 0.4 * min(p, 1.0 - p)
        shares = [p - 0.5 * draw, draw, 1.0 - p - 0.5 * draw]
        wins, draws, losses = rng.multinomial(matches, shares).tolist()
        results.append(met(NAMES[i], NAMES[j], wins, losses, draws=draws, seats=(0, 1)))
    return results


def ends_of(rows: FloatArray) -> FloatArray:
    return np.asarray(np.percentile(rows, [2.5, 97.5], axis=0))


def test_intervals_agree_with_walds_on_a_well_played_league() -> None:
    results = well_played(matches=100)
    fit = BradleyTerry().fit(results, anchors=[BOT])
    resampled = bootstrap(
        BradleyTerry(), results, anchors=[BOT], num_resamples=600, rng=np.random.default_rng(2)
    )
    widths = 2.0 * Z95 * fit.deviations
    for index, (low, high) in enumerate(ends_of(resampled).T):
        wald = fit.interval(fit.entrants[index])
        assert low == pytest.approx(wald[0], abs=0.15 * widths[index])
        assert high == pytest.approx(wald[1], abs=0.15 * widths[index])
    low, high = ends_of(resampled[:, fit.index("b")] - resampled[:, fit.index("a")])
    mean, deviation = fit.difference("b", "a")
    assert (low + high) / 2 == pytest.approx(mean, abs=0.3 * deviation)
    assert high - low == pytest.approx(2.0 * Z95 * deviation, rel=0.15)
    # A player that surely ranks above another has a rank interval above the other's.
    sure = [best for best, worst in rank_intervals(fit.ratings, spread=fit.spread)]
    found = intervals(fit.ratings, resampled).ranks
    for (best, worst), lowest in zip(found, sure, strict=True):
        assert best <= worst
        assert best >= lowest - 1
    ranks = dict(zip(fit.entrants, found, strict=True))
    assert ranks["d"] == (1, 1)
    assert ranks[BOT] == (5, 5)


def test_both_paths_resample_the_same() -> None:
    results = well_played(matches=20)
    exact, sparse = (
        bootstrap(
            BradleyTerry(max_exact=max_exact, num_rounds=0),
            results,
            anchors=[BOT],
            num_resamples=5,
            rng=np.random.default_rng(3),
        )
        for max_exact in (0, 1000)
    )
    assert exact == pytest.approx(sparse, abs=1e-6)


def test_a_resample_is_fitted_as_if_from_the_beginning() -> None:
    # A single match that was won has only one resample, so every resample equals the fit.
    results = [Result(first="a", second=BOT, seats=(0, 1), wins=3, draws=0, losses=0)]
    fit = BradleyTerry().fit(results, anchors=[BOT])
    resampled = bootstrap(
        BradleyTerry(), results, anchors=[BOT], num_resamples=3, rng=np.random.default_rng(4)
    )
    assert resampled == pytest.approx(np.tile(fit.ratings, (3, 1)), abs=1e-9)


def test_one_match_a_pair_is_not_known_exactly() -> None:
    # Resampling within a pair repeats a single match, which gave intervals of width 0.
    rng = np.random.default_rng(7)
    held = []
    for _ in range(6):
        elo = rng.normal(0.0, 200.0, size=10)
        results = []
        for i, j in itertools.combinations(range(10), 2):
            won = rng.random() < 1.0 / (1.0 + 10.0 ** ((elo[j] - elo[i]) / 400.0))
            results.append(met(i, j, won, 1 - won))
        drawn = bootstrap(BradleyTerry(), results, num_resamples=60, rng=rng)
        low, high = ends_of(drawn)
        truth = elo - elo.mean()
        held += ((low <= truth) & (truth <= high)).tolist()
        assert (high - low > 50.0).all()
    assert np.mean(held) >= 0.75


COUNTS = st.integers(0, 5)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS), min_size=1, max_size=4), st.booleans())
def test_every_resample_is_finite(counts: list[tuple[int, int, int]], has_anchor: bool) -> None:
    results = [
        Result(first=BOT, second=f"p{k}", seats=(0, 1), wins=wins, draws=draws, losses=losses)
        for k, (wins, draws, losses) in enumerate(counts)
    ]
    resampled = bootstrap(
        BradleyTerry(),
        results,
        anchors=[BOT] if has_anchor else [],
        num_resamples=3,
        rng=np.random.default_rng(5),
    )
    assert np.isfinite(resampled).all()


def test_one_resample_is_no_interval() -> None:
    with pytest.raises(ValueError, match="num_resamples must be at least 2, got 1"):
        bootstrap(BradleyTerry(), [], num_resamples=1, rng=np.random.default_rng(6))


def won(first: str, second: str, *, wins: int = 9, draws: int = 0, losses: int = 0) -> Result[str]:
    return Result(first=first, second=second, seats=(0, 1), wins=wins, draws=draws, losses=losses)


def found(*results: Result[str], links: tuple[Result[str], ...] = ()) -> set[str]:
    return set(
        open_above(result_columns(results), links=result_columns(links), anchors=["bot:random"])
    )


def test_who_lost_to_nobody_has_no_upper_bound() -> None:
    results = [won("a", "bot:random", wins=90, losses=10), won("b", "a")]
    assert found(*results) == {"b"}
    # A single draw against a bounded player is enough.
    assert found(*results, won("b", "bot:random", draws=1)) == set()


def test_equals_that_lose_to_each_other_alone_are_all_without_a_bound() -> None:
    results = [won("a", "bot:random", wins=90, losses=10), won("b", "a"), won("c", "a")]
    assert found(*results, won("b", "c", wins=5, losses=5)) == {"b", "c"}
    # One of them lost to the player below, so both are bounded.
    assert found(*results, won("b", "c", wins=5, losses=5), won("a", "c", wins=1)) == set()


def test_what_those_that_are_gone_say_bounds_both_sides() -> None:
    results = [won("a", "bot:random", wins=90, losses=10), won("b", "a")]
    assert found(*results, links=(won("a", "b", wins=3, losses=1),)) == set()


def test_without_an_anchor_nobody_is_high() -> None:
    assert found(won("b", "a")) == set()
    assert found() == set()


@settings(deadline=None, max_examples=100)
@given(
    games=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2), st.integers(0, 2)),
        max_size=12,
    )
)
def test_it_is_what_all_paths_say(games: list[tuple[int, int, int, int]]) -> None:
    names = ["bot:random", "a", "b", "c", "d", "e"]
    results = [
        won(names[one], names[two], wins=wins, losses=losses)
        for one, two, wins, losses in games
        if one != two and wins + losses
    ]
    lost = {(r.second, r.first) for r in results if r.wins}
    lost |= {(r.first, r.second) for r in results if r.losses}
    played = {name for pair in lost for name in pair}
    bounded = {
        path[0]
        for length in range(2, 7)
        for path in permutations(names, length)
        if path[-1] == "bot:random" and all(step in lost for step in pairwise(path))
    }
    expected = played - bounded - {"bot:random"} if "bot:random" in played else set()
    assert found(*results) == expected


FIT = Fit(
    entrants=("anchor", "a", "b", "random"),
    ratings=np.array([0.0, 100.0, 40.0, 0.0]),
    # The deviation is 5 for a and 13 for b; the anchors are certain.
    spread=np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 13.0], [0.0, 0.0]]),
    advantages={(0, 1): 25.0},
    components=Components(child_deviation=200.0),
    shrunk=np.array([0.0, 90.0, 45.0, 0.0]),
    anchor_errors=np.zeros(4),
)


def test_a_difference_counts_common_errors_once() -> None:
    # The difference of the rows (3, 4) and (0, 13) is (3, -9), with the length sqrt(90);
    # independent errors would give sqrt(25 + 169).
    assert FIT.difference("a", "b") == pytest.approx((60.0, math.sqrt(90.0)))
    assert FIT.difference("b", "a") == pytest.approx((-60.0, math.sqrt(90.0)))
    assert FIT.difference("b", "anchor") == (40.0, 13.0)
    assert FIT.difference("a", "a") == (0.0, 0.0)
    variance = FIT.covariance[1, 1] + FIT.covariance[2, 2] - 2.0 * FIT.covariance[1, 2]
    assert FIT.difference("a", "b")[1] == pytest.approx(math.sqrt(variance))


def test_95_percent_are_within_the_interval() -> None:
    assert NormalDist().cdf(Z95) - NormalDist().cdf(-Z95) == pytest.approx(0.95, abs=1e-15)


def test_probability_positive_by_table() -> None:
    assert probability_positive(1.2815515655, 1.0) == pytest.approx(0.9)
    assert probability_positive(-1.2815515655, 1.0) == pytest.approx(0.1)
    assert probability_positive(5.0, 0.0) == 1.0
    assert probability_positive(-5.0, 0.0) == 0.0
    assert probability_positive(0.0, 0.0) == 0.5


@given(st.floats(-1e3, 1e3), st.floats(1e-2, 1e3))
def test_probability_positive_is_a_normal_distributions(mean: float, deviation: float) -> None:
    expected = 1.0 - NormalDist(mean, deviation).cdf(0.0)
    assert probability_positive(mean, deviation) == pytest.approx(expected, abs=1e-12)


def test_probability_positive_keeps_its_digits_far_in_the_tail() -> None:
    # Sources: Abramowitz and Stegun, table 26.1: 1 - Phi(6) = 9.8659e-10; the series of Phi at -20:
    # 2.7536e-89.
    assert probability_positive(-6.0, 1.0) == pytest.approx(9.8659e-10, rel=1e-4, abs=0.0)
    assert probability_positive(-20.0, 1.0) == pytest.approx(2.7536e-89, rel=1e-4, abs=0.0)
