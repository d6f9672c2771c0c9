from __future__ import annotations

import itertools

import numpy as np
import pytest

from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.fitting.posterior import FloatArray
from populations.ratings.model import Result
from populations.ratings.ranks import measured_cyclicity, rank_intervals

ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def test_sure_differences_give_sure_ranks() -> None:
    covariance = np.diag([1.0, 1.0, 1.0])
    assert rank_intervals(np.array([0.0, 100.0, 50.0]), covariance=covariance) == [
        (3, 3),
        (1, 1),
        (2, 2),
    ]


def test_unsure_differences_share_ranks() -> None:
    # The standard deviation of each difference is sqrt(2) * 10: 28 points are 95%.
    ratings = np.array([100.0, 80.0, 0.0])
    assert rank_intervals(ratings, covariance=np.diag([100.0] * 3)) == [(1, 2), (1, 2), (3, 3)]


def test_shared_errors_do_not_blur_ranks() -> None:
    # Both are unsure against the anchor by 100, and by next to nothing against each other.
    covariance = np.array([[10_000.0, 9_999.0], [9_999.0, 10_000.0]])
    assert rank_intervals(np.array([10.0, 0.0]), covariance=covariance) == [(1, 1), (2, 2)]


def played(
    advantages: FloatArray, *, matches: int, rng: np.random.Generator, eta: float = -1.0
) -> list[Result[int]]:
    """Everyone meets everyone in both orders of seats; the first seat is worth 0.3."""
    results = []
    for i, j in itertools.permutations(range(len(advantages)), 2):
        half = 0.5 * (advantages[i, j] + 0.3)
        odds = np.exp([half, eta, -half])
        wins, draws, losses = rng.multinomial(matches, odds / odds.sum())
        results.append(
            Result(first=i, second=j, seats=(0, 1), wins=wins, draws=draws, losses=losses)
        )
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
    # Half cycle, half ratings: in between, as the same share of squared scores.
    theta = np.array([1.0, 0.0, -1.0])
    mixture = ROCK_PAPER_SCISSORS + theta[:, None] - theta[None, :]
    assert 0.2 < measured(played(mixture, matches=1000, rng=rng)) < 0.5


def test_measured_cyclicity_by_hand() -> None:
    # Every pair 100:0 in a circle, seats alike: the fit is 0 for all, so each pair has a surplus
    # of 50 points in 100 matches, 50^2 / 100 = 25, of 75 in all. Noise: 3 pairs with a variance of
    # 1/4 each (no draws): 0.75, times the 95% quantile of chi-squared over 3, 7.815 / 3.
    results = [
        Result(first=i, second=(i + 1) % 3, seats=(0, 0), wins=100, draws=0, losses=0)
        for i in range(3)
    ]
    assert measured(results) == pytest.approx(1.0 - 0.25 * 7.815 / 75.0, abs=2e-4)


def test_nothing_known_is_no_cycle() -> None:
    nothing: list[Result[int]] = []
    assert measured(nothing) == 0.0
    unplayed = [Result(first=0, second=1, seats=(0, 1), wins=0, draws=0, losses=0)]
    assert measured(unplayed) == 0.0


def test_which_entrant_is_told_first_does_not_matter_to_cyclicity() -> None:
    rng = np.random.default_rng(9)
    results = played(ROCK_PAPER_SCISSORS, matches=50, rng=rng)
    turned = [
        Result(
            first=r.second,
            second=r.first,
            seats=r.seats[::-1],
            wins=r.losses,
            draws=r.draws,
            losses=r.wins,
        )
        for r in results
    ]
    fit = BradleyTerry().fit(results)
    assert measured_cyclicity(fit, turned) == pytest.approx(measured_cyclicity(fit, results))
    mixed = [*results[:3], *turned[3:]]
    assert measured_cyclicity(fit, mixed) == pytest.approx(measured_cyclicity(fit, results))
