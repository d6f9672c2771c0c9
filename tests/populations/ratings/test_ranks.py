from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from populations.ratings import ranks
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.fitting.posterior import FloatArray
from populations.ratings.model import Result
from populations.ratings.ranks import measured_cyclicity, rank_intervals

ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def test_sure_differences_give_sure_ranks() -> None:
    assert rank_intervals(np.array([0.0, 100.0, 50.0]), spread=np.eye(3)) == [
        (3, 3),
        (1, 1),
        (2, 2),
    ]


def test_ranks_of_three_by_hand() -> None:
    # Each is compared with two others, so each comparison has 0.95^(1/2) = 97.468% and z = 2.2365.
    # The standard deviation of a difference is sqrt(2) * 10 = 14.142: 31.63 points are enough.
    # 100 against 69 is not, 69 against 37 is (32), 100 against 37 is.
    ratings = np.array([69.0, 100.0, 37.0])
    assert rank_intervals(ratings, spread=10.0 * np.eye(3)) == [(1, 2), (1, 2), (3, 3)]
    # 31 points apart, the last two share their ranks as well.
    ratings = np.array([69.0, 100.0, 38.0])
    assert rank_intervals(ratings, spread=10.0 * np.eye(3)) == [(1, 3), (1, 2), (2, 3)]
    # Of two alone 1.96 * 14.142 = 27.72 points are enough.
    assert rank_intervals(ratings[:2], spread=10.0 * np.eye(2)) == [(2, 2), (1, 1)]


def test_shared_errors_do_not_blur_ranks() -> None:
    # Both are unsure against the anchor by 100, and by next to nothing against each other.
    spread = np.array([[100.0, 1.0, 0.0], [100.0, 0.0, 1.0]])
    assert rank_intervals(np.array([10.0, 0.0]), spread=spread) == [(1, 1), (2, 2)]
    # Each error its own: sqrt(2) * 100 of deviation.
    assert rank_intervals(np.array([10.0, 0.0]), spread=100.0 * np.eye(2)) == [(1, 2), (1, 2)]


def test_entrants_without_a_rank_push_nobody_down() -> None:
    ratings = np.array([30.0, 20.0, 10.0, 0.0])
    is_ranked = np.array([False, True, False, True])
    found = rank_intervals(ratings, spread=np.eye(4), is_ranked=is_ranked)
    # The first and the third take the rank that they would have between the second and the fourth.
    assert found == [(1, 1), (1, 1), (2, 2), (2, 2)]
    # With deviations of 14 even the first may be the last of the three that it is one of.
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
    # The first player is the hardest where all are near each other: chance may put any of the
    # others ahead. Pair by pair at 95% its rank is held in 86% of 40 players 0.5 apart.
    rng = np.random.default_rng(11)
    truth = -gap * np.arange(size)
    place = np.arange(1, size + 1)
    # An error against the anchor that all share, and each player's own.
    spread = np.column_stack([np.full(size, 100.0), 20.0 * np.eye(size)])
    held = []
    for _ in range(400):
        found = np.array(rank_intervals(truth + spread @ rng.normal(size=size + 1), spread=spread))
        held.append((found[:, 0] <= place) & (place <= found[:, 1]))
    assert np.mean(held, axis=0).min() >= 0.93


def test_ranks_of_played_matches_are_held() -> None:
    rng = np.random.default_rng(12)
    held, widths = [], []
    for _ in range(120):
        theta = rng.normal(0.0, 0.6, size=8)
        results = played(theta[:, None] - theta[None, :], matches=30, rng=rng)
        fit = BradleyTerry().fit(results)
        found = np.array(rank_intervals(fit.ratings, spread=fit.spread))
        place = 1 + (theta[None, :] > theta[:, None]).sum(axis=1)[list(fit.entrants)]
        held += ((found[:, 0] <= place) & (place <= found[:, 1])).tolist()
        widths += (found[:, 1] - found[:, 0] + 1).tolist()
    assert np.mean(held) >= 0.93
    # They say something: of 8 ranks less than 4 are left.
    assert np.mean(widths) < 4.0


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


def test_a_circle_of_masters_is_not_hidden_by_beginners() -> None:
    # Three masters in a circle, and seventeen beginners whom skill alone orders.
    theta = np.array([6.0, 6.0, 6.0, *np.linspace(-1.0, 3.0, 17)])
    eta = theta[:, None] - theta[None, :]
    eta[:3, :3] += 2.0 * ROCK_PAPER_SCISSORS
    rng = np.random.default_rng(5)
    results = played(eta, matches=200, rng=rng)
    assert measured(results) > 0.9
    # Of several scales each has a best player: masters of another one hide nobody.
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
