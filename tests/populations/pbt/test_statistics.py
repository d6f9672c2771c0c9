from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from arena.types import PolicyId
from populations.core import Member, Score
from populations.pbt.ranking import MAX_MOVED, Ranking
from populations.pbt.statistics import (
    on_common_opponents,
    standard_quantile,
    two_proportion_test,
    welch_test,
)

RIVAL = PolicyId("p1")
SIZES = st.integers(2, 10_000)
MEANS = st.floats(-1e6, 1e6)
VARIANCES = st.one_of(st.just(0.0), st.floats(1e-12, 1e9))


def _member(size: int, mean: float, variance: float) -> Member:
    return Member(
        policy=RIVAL,
        index=0,
        rating=None,
        num_matches=size,
        is_reference=False,
        num_returns=size,
        return_mean=mean,
        return_variance=variance,
    )


def test_welch_by_hand() -> None:
    # v = 4 / 10 and 9 / 20: t = (12 - 10) / sqrt(0.85) = 2.16930
    # freedom = 0.85^2 / (0.4^2 / 9 + 0.45^2 / 19) = 0.7225 / 0.028436 = 25.408
    result = welch_test(_member(10, 12.0, 4.0), _member(20, 10.0, 9.0))
    assert result.difference == 2.0
    assert result.deviation == pytest.approx(0.921954)
    assert result.statistic == pytest.approx(2.16930, abs=1e-5)
    assert result.degrees_of_freedom == pytest.approx(25.4078, abs=1e-3)
    assert result.p_value == pytest.approx(0.0396, abs=1e-4)


@settings(deadline=None)
@given(SIZES, MEANS, VARIANCES, SIZES, MEANS, VARIANCES)
def test_welch_is_scipys(
    n1: int, mean1: float, variance1: float, n2: int, mean2: float, variance2: float
) -> None:
    ours = welch_test(
        _member(n1, mean1, variance1),
        _member(n2, mean2, variance2),
    )
    assert ours.p_value is not None
    assert 0.0 <= ours.p_value <= 1.0
    if variance1 == variance2 == 0.0:
        assert ours.p_value == float(mean1 == mean2)
        assert ours.statistic is None
        return
    theirs = stats.ttest_ind_from_stats(
        mean1, math.sqrt(variance1), n1, mean2, math.sqrt(variance2), n2, equal_var=False
    )
    assert ours.statistic == pytest.approx(theirs.statistic, rel=1e-9)
    assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-300)


def test_two_proportions_by_hand() -> None:
    # p = 110 / 200: z = (0.6 - 0.5) / sqrt(0.55 * 0.45 * 0.02) = 0.1 / 0.0703562 = 1.42134
    result = two_proportion_test(
        RIVAL, Score(points=60, matches=100), Score(points=50, matches=100)
    )
    assert result.difference == pytest.approx(0.1)
    assert result.deviation == pytest.approx(0.0703562)
    assert result.statistic == pytest.approx(1.42134, abs=1e-5)
    assert result.p_value == pytest.approx(0.15522, abs=1e-4)
    assert result.degrees_of_freedom is None


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(1, 500), st.integers(0, 500), st.integers(0, 500))
def test_two_proportions_are_the_chi_square_of_the_table(
    n1: int, n2: int, x1: int, x2: int
) -> None:
    x1, x2 = min(x1, n1), min(x2, n2)
    ours = two_proportion_test(RIVAL, Score(points=x1, matches=n1), Score(points=x2, matches=n2))
    if x1 + x2 in (0, n1 + n2):
        assert (ours.statistic, ours.p_value) == (None, 1.0)
        return
    theirs = stats.chi2_contingency([[x1, n1 - x1], [x2, n2 - x2]], correction=False)
    assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert ours.statistic is not None
    assert ours.statistic**2 == pytest.approx(theirs.statistic, rel=1e-9, abs=1e-12)


def test_only_common_opponents_count_with_the_same_mix() -> None:
    # Both win 90% against the bot and 40% against the strong one; the first played the bot often.
    first = {
        "bot": Score(points=90, matches=100),
        "strong": Score(points=4, matches=10),
        "only": Score(points=50, matches=50),
    }
    second = {"bot": Score(points=9, matches=10), "strong": Score(points=40, matches=100)}
    scores = on_common_opponents(first, second)
    assert scores is not None
    assert (scores[0].matches, scores[1].matches) == (20, 20)
    assert scores[0].points == pytest.approx(13)  # 9 + 4
    assert scores[1].points == pytest.approx(13)
    assert on_common_opponents(first, {"other": Score(points=1, matches=2)}) is None
    assert (
        on_common_opponents({"a": Score(points=0, matches=0)}, {"a": Score(points=0, matches=0)})
        is None
    )


def test_quantiles() -> None:
    assert standard_quantile(0.9) == pytest.approx(1.2815516)
    assert standard_quantile(0.975) == pytest.approx(1.9599640)
    assert standard_quantile(0.5) == standard_quantile(0.0) == 0.0
    assert math.isfinite(standard_quantile(1.0))


def test_errors_name_the_rule_and_the_value() -> None:
    one = _member(1, 0.0, 0.0)
    with pytest.raises(ValueError, match="at least 2 returns, got 1 and 1"):
        welch_test(one, one)
    with pytest.raises(ValueError, match="need matches, got 0 and 1"):
        two_proportion_test(RIVAL, Score(points=0, matches=0), Score(points=0, matches=1))


NUM_MEMBERS = 12
MIN_MATCHES = 10
RATINGS = st.sampled_from([None, math.nan, -30.0, 0.0, 10.0, 10.5])
DEVIATIONS = st.sampled_from([0.0, 7.0, 40.0, math.inf])


def member(
    index: int, rating: float | None = 0.0, deviation: float = 0.0, num_matches: int = 10
) -> Member:
    return Member(
        policy=PolicyId(f"player/p{index:03d}"),
        index=index,
        rating=rating,
        deviation=deviation,
        num_matches=num_matches,
        is_reference=False,
        num_returns=0,
        return_mean=0.0,
        return_variance=0.0,
    )


def sorted_anew(members: list[Member], num_deviations: float) -> list[Member]:
    """By bound, highest first; of equals the better rated, then the lower index."""

    def bound(known: Member) -> float:
        assert known.rating is not None
        if math.isinf(known.deviation):
            sign = (num_deviations > 0.0) - (num_deviations < 0.0)
            return sign * math.inf if sign else known.rating
        return known.rating + num_deviations * known.deviation

    ranked = [
        known
        for known in members
        if known.rating is not None
        and not math.isnan(known.rating)
        and known.num_matches >= MIN_MATCHES
    ]
    by_rating = sorted(ranked, key=lambda known: (-(known.rating or 0.0), known.index))
    return sorted(by_rating, key=lambda known: -bound(known))


CHANGES = st.lists(
    st.tuples(
        st.integers(0, NUM_MEMBERS - 1), RATINGS, DEVIATIONS, st.sampled_from([0, 9, 10, 11])
    ),
    max_size=5,
)


@given(steps=st.lists(CHANGES, max_size=8), num_deviations=st.sampled_from([0.0, 1.5]))
def test_orders_follow_what_changes(
    steps: list[list[tuple[int, float | None, float, int]]], num_deviations: float
) -> None:
    ranking = Ranking(min_matches=MIN_MATCHES)
    members = [member(index, float(index % 4)) for index in range(NUM_MEMBERS)]
    for changes in [[], *steps]:
        for index, rating, deviation, num_matches in changes:
            members[index] = member(index, rating, deviation, num_matches)
        ranking.update(members)
        for bounds in (-num_deviations, 0.0, num_deviations):
            expected = sorted_anew(members, bounds)
            assert ranking.order(bounds) == tuple(expected)
            assert ranking.order(bounds, within=slice(3)) == tuple(expected[:3])
            assert ranking.order(bounds, within=slice(-3, None)) == tuple(expected[-3:])


def test_many_changes_and_another_number_of_members_sort_anew() -> None:
    ranking = Ranking(min_matches=MIN_MATCHES)
    members = [member(index, float(index)) for index in range(3 * MAX_MOVED)]
    ranking.update(members)
    assert ranking.order() == tuple(reversed(members))
    turned = [replace(known, rating=-float(known.index)) for known in members]
    ranking.update(turned)
    assert ranking.order() == tuple(turned)
    ranking.update(turned[1:])
    assert ranking.order() == tuple(turned[1:])
