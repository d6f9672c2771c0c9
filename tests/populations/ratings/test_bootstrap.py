from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.ratings.bootstrap import bootstrap, intervals
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.fitting.posterior import FloatArray
from populations.ratings.model import Z95, Result
from populations.ratings.ranks import rank_intervals

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
        results.append(
            Result(
                first=NAMES[i], second=NAMES[j], seats=(0, 1), wins=wins, draws=draws, losses=losses
            )
        )
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
    # An order that is sure of one is sure of the other.
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
    # One match that was always won cannot be drawn otherwise: every resample is the fit itself.
    results = [Result(first="a", second=BOT, seats=(0, 1), wins=3, draws=0, losses=0)]
    fit = BradleyTerry().fit(results, anchors=[BOT])
    resampled = bootstrap(
        BradleyTerry(), results, anchors=[BOT], num_resamples=3, rng=np.random.default_rng(4)
    )
    assert resampled == pytest.approx(np.tile(fit.ratings, (3, 1)), abs=1e-9)


def test_one_match_a_pair_is_not_known_exactly() -> None:
    # Within a pair a single match could only be drawn as it was, which gave intervals of width 0.
    rng = np.random.default_rng(7)
    held = []
    for _ in range(6):
        elo = rng.normal(0.0, 200.0, size=10)
        results = []
        for i, j in itertools.combinations(range(10), 2):
            won = rng.random() < 1.0 / (1.0 + 10.0 ** ((elo[j] - elo[i]) / 400.0))
            results.append(
                Result(first=i, second=j, seats=(0, 0), wins=won, draws=0, losses=1 - won)
            )
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
