"""Distances added up along chains: where better players err as often as not, sums are too long."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from populations.ratings.bradley_terry import ELO_PER_UNIT, BradleyTerry
from populations.ratings.fitting.bend import FloatArray, bent
from populations.ratings.fitting.misfit import MISFIT
from populations.ratings.model import Z95, Fit, Result
from tests.populations.ratings.matches import drawn

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
        return drawn(names[i], names[j], score(i, j), matches, rng=rng, seats=(0, 1))

    last = len(names) - 1
    results = [met(i, j, 200) for i in range(1, last + 1) for j in range(max(i - 4, 0), i)]
    results.append(met(last, 0, num_direct))
    fit = BradleyTerry(reduces_bias=True, bends=True).fit(
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
        # The rating is about all distances; the error against the anchor is added.
        half = Z95 * math.hypot(fit.deviation(best), fit.anchor_errors[fit.index(best)])
        held += abs(fit.rating(best) - direct) <= half
    assert held >= (7 if lapses < 0.03 else 8)
    # With few lapses a part of them counts as scatter of distant pairs.
    assert warned >= (5 if lapses < 0.03 else 7)


def test_a_ladder_that_fits_is_no_wider_for_the_test() -> None:
    for seed in range(10):
        fit, best, direct = ladder(lapses=0.0, seed=seed, num_direct=384)
        assert fit.components.misfit < MISFIT
        assert fit.components.bend < 0.2
        low, high = fit.interval(best)
        assert high - low < 500.0
        assert low - 100.0 <= direct <= high + 100.0


def bent_league(*, bend: float, seed: int) -> tuple[Fit[str], FloatArray]:
    """Fit thirty players at 0 to 1,450 Elo.

    Returns:
        The fit, and the additive strengths nearest to the log-odds of all pairs.
    """
    strengths = 50.0 / ELO_PER_UNIT * np.arange(30)
    ahead, _ = bent(strengths[:, None] - strengths, bend)
    return fitted(ahead, seed=seed), nearest(ahead)


def many_gains(*, seed: int) -> tuple[Fit[str], FloatArray]:
    """Fit thirty players, each ahead of the last by .12 of a match's deviation.

    Returns:
        The fit, and the log-odds of all pairs.
    """
    ahead = 0.12 * np.subtract.outer(np.arange(30), np.arange(30))
    log_odds = stats.norm.logcdf(ahead) - stats.norm.logcdf(-ahead)
    return fitted(log_odds, seed=seed, num_far=400), log_odds


def fitted(ahead: FloatArray, *, seed: int, num_far: int = 100) -> Fit[str]:
    """Fit players of some log-odds, of whom the first is the anchor.

    Neighbours meet 400 times, 80 further pairs ``num_far`` times each.
    """
    rng, size = np.random.default_rng(seed), len(ahead)
    names = [ANCHOR, *(f"p{i:02}" for i in range(1, size))]

    def met(i: int, j: int, matches: int) -> Result[str]:
        return drawn(names[i], names[j], 1.0 / (1.0 + math.exp(-ahead[i, j])), matches, rng=rng)

    pairs = [(i, j) for i in range(size) for j in range(i)]
    results = [met(i, j, 400) for i, j in pairs if i - j <= 3]
    results += [
        met(i, j, num_far) for i, j in (pairs[place] for place in rng.permutation(len(pairs))[:80])
    ]
    return BradleyTerry(reduces_bias=True, bends=True).fit(results, anchors=[ANCHOR])


def nearest(ahead: FloatArray) -> FloatArray:
    """Solve for strengths with the least squares over all pairs, the first one at 0, in Elo."""
    size = len(ahead)
    pairs = [(i, j) for i in range(size) for j in range(i)]
    design = np.zeros((len(pairs), size))
    for row, (i, j) in enumerate(pairs):
        design[row, [i, j]] = 1.0, -1.0
    told = np.array([ahead[pair] for pair in pairs])
    found = np.linalg.lstsq(design[:, 1:], told, rcond=None)[0]
    return ELO_PER_UNIT * np.array([0.0, *found])


def test_ratings_of_a_bent_league_are_those_of_all_pairs_alike() -> None:
    for seed in range(4):
        fit, truth = bent_league(bend=0.5, seed=seed)
        assert fit.components.bend == pytest.approx(0.5, abs=0.15)
        off = fit.ratings - truth
        assert np.abs(off).max() < 60.0
        assert (np.abs(off) <= Z95 * fit.deviations + 1e-9).mean() >= 0.9
        # Without a bend the sum of neighbours' distances puts the best 400 Elo too high.
        assert truth[-1] < 950.0
        # The fit reports that pairs deviate from any ratings.
        assert 25.0 < fit.components.pair_deviation < 110.0


def test_where_log_odds_grow_faster_than_distances_the_best_are_not_rated_too_low() -> None:
    """Log-odds of a normal distribution: a match adds up many small gains."""
    for seed in range(4):
        fit, ahead = many_gains(seed=seed)
        truth = nearest(ahead)
        # Sums of neighbours' distances put the best at 965, by direct matches it is at 1,440.
        assert np.diag(ahead, -1).sum() * ELO_PER_UNIT == pytest.approx(965.0, abs=1.0)
        assert ahead[-1, 0] * ELO_PER_UNIT == pytest.approx(1440.0, abs=1.0)
        assert fit.components.bend < -0.15
        off = fit.ratings - truth
        assert (np.abs(off) <= Z95 * fit.deviations + 1e-9).mean() >= 0.9
        half = Z95 * math.hypot(fit.deviations[-1], fit.anchor_errors[-1])
        assert abs(fit.ratings[-1] - ELO_PER_UNIT * ahead[-1, 0]) <= half
        assert fit.components.misfit >= MISFIT
        left = ELO_PER_UNIT * ahead - np.subtract.outer(truth, truth)
        scatter = math.sqrt((left**2).mean())
        assert fit.components.pair_deviation == pytest.approx(scatter, rel=0.25)


def test_a_straight_league_keeps_the_sums_of_its_distances() -> None:
    held = []
    for seed in range(8):
        fit, truth = bent_league(bend=0.0, seed=seed)
        assert truth[-1] == pytest.approx(1450.0)
        assert fit.components.bend < 0.1
        held += (np.abs(fit.ratings - truth) <= Z95 * fit.deviations + 1e-9).tolist()
    assert np.mean(held) >= 0.85


def recent_league(*, lead: float, seed: int) -> tuple[Fit[str], FloatArray]:
    """Fit forty players, each 20 Elo above the last, who beat all older ones by a lead beside that.

    Most matches are those of neighbours; every fourth pair of the others meets a little.

    Returns:
        The fit, and the additive strengths nearest to the log-odds of all pairs.
    """
    rng = np.random.default_rng(seed)
    size = 41
    places = np.arange(size)
    apart = places[:, None] - places
    steps = 20.0 * apart + lead * apart / (np.abs(apart) + 0.02 * (size - 1))
    ahead = steps / ELO_PER_UNIT
    names = [ANCHOR, *(f"p{i:02}" for i in range(1, size))]

    def met(i: int, j: int, matches: int) -> Result[str]:
        return drawn(names[i], names[j], 1.0 / (1.0 + math.exp(-ahead[i, j])), matches, rng=rng)

    pairs = [(i, j) for i in range(size) for j in range(i)]
    results = [
        met(i, j, 400 if i - j <= 3 else 60) for i, j in pairs if i - j <= 3 or not i * j % 4
    ]
    fit = BradleyTerry(reduces_bias=True, bends=True).fit(
        results,
        parents={names[i]: names[i - 1] for i in range(2, size)},
        times={names[i]: ("population", float(i)) for i in range(1, size)},
        anchors=[ANCHOR],
    )
    return fit, nearest(ahead)


def test_what_newer_players_are_ahead_by_is_not_added_up_along_a_ladder() -> None:
    for seed in range(3):
        fit, truth = recent_league(lead=120.0, seed=seed)
        off = fit.ratings - truth
        assert np.abs(off).max() < 45.0
        assert (np.abs(off) <= Z95 * fit.deviations + 1e-9).mean() >= 0.9
        assert fit.components.misfit >= MISFIT
        assert fit.components.bend < 0.2


def test_without_such_a_lead_ratings_stay() -> None:
    for seed in range(3):
        fit, truth = recent_league(lead=0.0, seed=seed)
        assert np.abs(fit.ratings - truth).max() < 45.0
        assert fit.components.misfit < MISFIT


def test_ratings_and_worth_of_two_bent_sides_say_what_happens_between_them() -> None:
    """Six steps on each side, where the second is far ahead among beginners."""
    steps, worth = np.arange(6) * 250.0 / ELO_PER_UNIT, -400.0 / ELO_PER_UNIT
    ahead, _ = bent(steps[:, None] - steps + worth, 0.6)
    scores = 1.0 / (1.0 + np.exp(-ahead))

    def result(i: int, j: int) -> Result[tuple[str, int]]:
        # Neighbours play most; scores are exact.
        matches = 600.0 if abs(i - j) <= 1 else 60.0
        won = matches * scores[i, j]
        one, two = ("tag", i), ("prey", j)
        return Result(first=one, second=two, seats=(0, 1), wins=won, draws=0, losses=matches - won)

    fit = BradleyTerry(reduces_bias=True, bends=True).fit(
        [result(i, j) for i in range(6) for j in range(6)],
        anchors=[("tag", 0), ("prey", 0)],
        scale_of=lambda player: player[0],
    )
    ratings = {side: [fit.rating((side, i)) for i in range(6)] for side in ("tag", "prey")}
    said = np.subtract.outer(ratings["tag"], ratings["prey"]) + fit.advantages[0, 1]
    off = said - ELO_PER_UNIT * ahead
    # The bend's prior leaves a small error; the worth of distances as log-odds is 170 Elo off.
    assert abs(off.mean()) < 10.0
    assert np.sqrt((off**2).mean()) < 1.03 * left_by_any(ahead)
    assert fit.components.bend == pytest.approx(0.6, abs=0.15)


def left_by_any(ahead: FloatArray) -> float:
    """Return the root mean square that any strengths of two sides leave, in Elo."""
    rows, columns = ahead.mean(axis=1, keepdims=True), ahead.mean(axis=0)
    return float(ELO_PER_UNIT * np.sqrt(((ahead - rows - columns + ahead.mean()) ** 2).mean()))
