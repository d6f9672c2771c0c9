"""Results against an anchor that are off the ratings: found, and told from chance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.fitting.misfit import MISFIT, anchor_errors, anchor_variance
from populations.ratings.fitting.pair_errors import PairFit
from populations.ratings.fitting.posterior import FloatArray
from populations.ratings.model import Z95, Fit, Result

ANCHOR = "anchor"
BEST = "p00"
NUM_PLAYERS = 40
NUM_MATCHES = 2000


def test_anchor_variance_by_hand() -> None:
    # Even odds and certain ratings: e^2 is 100 and 4 where 25 and 25 are expected, of 100 matches
    # each. The third pair has no anchor.
    fit = PairFit(
        error=np.array([10.0, 2.0, 50.0]),
        information=np.array([25.0, 25.0, 25.0]),
        dispersion=np.ones(3),
        played=np.array([100.0, 100.0, 100.0]),
        won=np.array([60.0, 52.0, 100.0]),
    )
    is_anchored = np.array([True, True, False])
    found, deviations = anchor_variance(fit, is_anchored=is_anchored, variances=np.zeros(3))
    # (100 + 4 - 50) / (2 * 25^2)
    assert found == pytest.approx(54.0 / 1250.0)
    # chi^2 / k = 104 / 50 with k = 50^2 / (2 * 25^2) = 2; spread 2 / 18
    assert deviations == pytest.approx((2.08 ** (1 / 3) - 8 / 9) / (1 / 3))
    # Ratings that took over half of what a pair says leave half of its chance: h = v I / (1 + v I).
    found, _ = anchor_variance(fit, is_anchored=is_anchored, variances=np.full(3, 1.0 / 25.0))
    assert found == pytest.approx((104.0 - 25.0) / 625.0)
    none = np.zeros(3, dtype=bool)
    assert anchor_variance(fit, is_anchored=none, variances=np.zeros(3)) == (0.0, 0.0)


def test_errors_against_the_anchor_by_hand() -> None:
    # The first has met it: precision 1 / 0.04 + 75 / 1, mean 10 / 100. The second has not, so the
    # prior alone holds. The other pair has no anchor.
    fit = PairFit(
        error=np.array([10.0, 8.0]),
        information=np.array([75.0, 40.0]),
        dispersion=np.ones(2),
        played=np.array([300.0, 200.0]),
        won=np.array([160.0, 108.0]),
    )
    # The entrant of the first pair is its second player.

    def errors_at(variance: float) -> FloatArray:
        return anchor_errors(
            fit,
            entrants=np.array([0, 7]),
            signs=np.array([-1.0, 1.0]),
            num_entrants=2,
            variance=variance,
        )

    errors = errors_at(0.04)
    assert errors == pytest.approx(np.array([[-0.1, 0.0], [0.1, 0.2]]))
    assert not errors_at(0.0).any()


def league(*, style: float, seed: int) -> tuple[Fit[str], float]:
    """Fit forty players within 100 Elo, each of whom meets six others and the anchor.

    Args:
        style: Elo by which the best one, which meets the anchor most, is better against it.
        seed: Of skills and results.

    Returns:
        The fit, and the best one's rating by any number of matches against the anchor.
    """
    rng = np.random.default_rng(seed)
    skills = np.sort(rng.uniform(0.0, 100.0, NUM_PLAYERS))[::-1]
    names = [f"p{i:02}" for i in range(NUM_PLAYERS)]

    def met(first: str, second: str, ahead: float, matches: int) -> Result[str]:
        wins = int(rng.binomial(matches, 1.0 / (1.0 + math.pow(10.0, -ahead / 400.0))))
        return Result(
            first=first, second=second, seats=(0, 1), wins=wins, draws=0, losses=matches - wins
        )

    results = [
        met(names[i], names[j], float(skills[i] - skills[j]), NUM_MATCHES)
        for i in range(NUM_PLAYERS)
        for j in rng.permutation(NUM_PLAYERS)[:6]
        if i != j
    ]
    against = [
        float(skill) + (style if name == BEST else 0.0)
        for name, skill in zip(names, skills, strict=True)
    ]
    results += [
        met(name, ANCHOR, ahead, 900 if name == BEST else 60)
        for name, ahead in zip(names, against, strict=True)
    ]
    return BradleyTerry(reduces_bias=True).fit(results, anchors=[ANCHOR]), against[0]


def test_a_style_against_the_anchor_is_warned_of_and_widens_its_distance() -> None:
    warned = held = 0
    for seed in range(12):
        fit, direct = league(style=60.0, seed=seed)
        warned += fit.components.misfit >= MISFIT
        off = fit.anchor_errors[fit.index(BEST)]
        half = Z95 * math.hypot(fit.deviation(BEST), off)
        held += abs(fit.rating(BEST) - direct) <= half
        # The test of all pairs alone sees next to nothing of it.
        assert fit.components.pair_deviation < 16.0
        assert fit.anchor_errors[fit.index(ANCHOR)] == 0.0
    assert warned >= 7
    assert held >= 11


def test_leagues_without_a_style_are_rarely_in_doubt() -> None:
    fits = [league(style=0.0, seed=seed)[0] for seed in range(100, 160)]
    doubted = [fit for fit in fits if fit.components.anchor_deviation > 0.0]
    # Chance has 1 in 44 above 2 standard deviations: 5 or more of 60 once in 50 times.
    assert len(doubted) <= 4
    assert max(fit.components.misfit for fit in fits) < 4.0
    # Three tests of each, each above 3 once in 700 times.
    assert sum(fit.components.misfit >= MISFIT for fit in fits) <= 1
