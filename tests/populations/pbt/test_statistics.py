from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from arena.types import PolicyId
from populations.core import Member, Score
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


def test_welch_is_scipys_on_samples() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(1.0, 2.0, 30), rng.normal(0.0, 1.0, 12)
    ours = welch_test(
        _member(30, float(a.mean()), float(a.var(ddof=1))),
        _member(12, float(b.mean()), float(b.var(ddof=1))),
    )
    theirs = stats.ttest_ind(a, b, equal_var=False)
    assert ours.p_value == pytest.approx(theirs.pvalue)
    assert ours.degrees_of_freedom == pytest.approx(theirs.df)


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
    # Both win 90% against the bot and 40% against the strong one; the first met the bot often.
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
