"""Distances added up along chains: where better players err as often as not, sums are too long."""

from __future__ import annotations

import math

import numpy as np
import pytest

from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.fitting.misfit import MISFIT
from populations.ratings.model import Fit, Result

STEP = 100.0
ANCHOR = "anchor"


def ladder(*, lapses: float, seed: int, num_direct: int) -> tuple[Fit[str], str, float]:
    """Fit a line of twelve, each 100 Elo above the last, whoever errs in a share of all matches.

    Neighbours meet each other, and the best one meets the anchor itself.

    Args:
        lapses: Share of matches that are won by either player, whatever their strength, halved.
        seed: Of all results.
        num_direct: Matches of the best one and the anchor.

    Returns:
        The fit, the best one, and its rating by any number of matches against the anchor.
    """
    rng = np.random.default_rng(seed)
    names = [ANCHOR, *(f"step{i:02}" for i in range(1, 13))]

    def score(i: int, j: int) -> float:
        return lapses + (1.0 - 2.0 * lapses) / (1.0 + math.pow(10.0, STEP * (j - i) / 400.0))

    def met(i: int, j: int, matches: int) -> Result[str]:
        wins = int(rng.binomial(matches, score(i, j)))
        return Result(
            first=names[i], second=names[j], seats=(0, 1), wins=wins, draws=0, losses=matches - wins
        )

    last = len(names) - 1
    results = [met(i, j, 200) for i in range(1, last + 1) for j in range(max(i - 4, 0), i)]
    results.append(met(last, 0, num_direct))
    fit = BradleyTerry(reduces_bias=True).fit(
        results,
        parents={names[i]: names[i - 1] for i in range(2, last + 1)},
        times={names[i]: ("population", float(i)) for i in range(1, last + 1)},
        anchors=[ANCHOR],
    )
    promised = score(last, 0)
    return fit, names[last], 400.0 * math.log10(promised / (1.0 - promised))


@pytest.mark.parametrize("lapses", [0.02, 0.03, 0.05])
def test_direct_matches_show_that_a_sum_is_too_long_and_the_interval_holds_both(
    lapses: float,
) -> None:
    held = warned = 0
    for seed in range(10):
        fit, best, direct = ladder(lapses=lapses, seed=seed, num_direct=384)
        warned += fit.components.misfit >= MISFIT
        low, high = fit.interval(best)
        held += low <= direct <= high
    assert held >= 8
    # Of few lapses a part is taken for the scatter of pairs far apart.
    assert warned >= (5 if lapses < 0.03 else 7)


def test_a_ladder_that_fits_is_no_wider_for_the_test() -> None:
    for seed in range(10):
        fit, best, direct = ladder(lapses=0.0, seed=seed, num_direct=384)
        assert fit.components.misfit < MISFIT
        assert fit.components.scale_deviation == 0.0
        low, high = fit.interval(best)
        assert high - low < 500.0
        assert low - 100.0 <= direct <= high + 100.0


def test_an_unknown_scale_leaves_neighbours_as_sure_as_they_were() -> None:
    fit, best, _ = ladder(lapses=0.05, seed=0, num_direct=384)
    scale = fit.components.scale_deviation
    assert scale > 0.0
    rating, before = fit.rating(best), fit.rating("step11")
    # What the scale adds is in proportion to ratings, and to differences of ratings.
    assert fit.spread[fit.index(best), -1] == pytest.approx(scale * rating)
    gap = fit.spread[fit.index(best), -1] - fit.spread[fit.index("step11"), -1]
    assert gap == pytest.approx(scale * (rating - before))
    assert fit.spread[fit.index(ANCHOR), -1] == 0.0
