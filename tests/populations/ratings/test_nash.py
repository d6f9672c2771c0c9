from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog, minimize

from populations.ratings.nash import max_entropy_nash, nash_averaging, zero_sum_nash

FloatArray = npt.NDArray[np.float64]

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def random_game(rng: np.random.Generator, *, size: int, kind: str) -> FloatArray:
    """Antisymmetric; ``integers`` often has many equilibria, ``copies`` always has."""
    if kind == "integers":
        game = rng.integers(-2, 3, size=(size, size)).astype(np.float64)
    else:
        game = rng.normal(size=(size, size))
    game = np.triu(game, 1) - np.triu(game, 1).T
    if kind == "copies":
        who = rng.integers(0, size, size=size + 1)
        game = game[np.ix_(who, who)]
    return np.asarray(game)


def extreme_equilibria(game: FloatArray) -> FloatArray:
    """All corners of the set of equilibria, by trying every support and every set of equations."""
    size = len(game)
    found: list[FloatArray] = []
    for count in range(1, size + 1):
        for support in combinations(range(size), count):
            for tight in combinations(range(size), count - 1):
                equations = np.vstack([game[np.ix_(tight, support)], np.ones((1, count))])
                if abs(np.linalg.det(equations)) < 1e-9:
                    continue
                p = np.zeros(size)
                p[list(support)] = np.linalg.solve(equations, np.eye(count)[-1])
                is_new = all(np.abs(p - other).max() > 1e-9 for other in found)
                if is_new and p.min() > -1e-12 and (game @ p).max() < 1e-12:
                    found.append(np.maximum(p, 0.0))
    return np.stack(found)


def max_entropy_of_corners(corners: FloatArray) -> FloatArray:
    """The mixture of corners of highest entropy, by sequential quadratic programming.

    Together with `extreme_equilibria` an oracle for OpenSpiel's nash_averaging (maximize the sum of
    entr(p) with A p <= 0), which itself needs cvxpy.
    """
    is_used = corners.max(axis=0) > 0.0
    used = corners[:, is_used]
    solution = minimize(
        lambda w: float((w @ used * np.log(w @ used + 1e-300)).sum()),
        np.full(len(corners), 1.0 / len(corners)),
        jac=lambda w: used @ (np.log(w @ used + 1e-300) + 1.0),
        bounds=[(0.0, 1.0)] * len(corners),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": np.ones_like},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-16},
    )
    mixture = np.zeros(corners.shape[1])
    mixture[is_used] = solution.x @ used
    return mixture


def entropy_that_is_missed(game: FloatArray, mixture: FloatArray) -> float:
    """Upper bound of what any equilibrium has more: entropy is concave, so a linear program."""
    has_mass = mixture > 0.0
    slope = np.zeros(len(game))
    slope[has_mass] = -np.log(mixture[has_mass])
    best = linprog(
        -slope,
        A_ub=game,
        b_ub=np.full(len(game), 1e-12),
        A_eq=np.ones((1, len(game))),
        b_eq=[1.0],
        bounds=[(0.0, None if mass else 0.0) for mass in has_mass],
        method="highs",
    )
    return float(-best.fun - slope @ mixture)


def mass_that_is_missed(game: FloatArray, mixture: FloatArray) -> float:
    """Most mass that any equilibrium gives to those without."""
    best = linprog(
        -(mixture <= 0.0).astype(np.float64),
        A_ub=game,
        b_ub=np.zeros(len(game)),
        A_eq=np.ones((1, len(game))),
        b_eq=[1.0],
        method="highs",
    )
    return float(-best.fun)


def test_matching_pennies_and_a_game_with_a_saddle_point() -> None:
    row, column, value = zero_sum_nash([[2.0, -1.0], [-1.0, 1.0]])
    # Indifference by hand: 2p - (1 - p) = -p + (1 - p), p = 2/5, value 1/5.
    assert row == pytest.approx([0.4, 0.6], abs=1e-12)
    assert column == pytest.approx([0.4, 0.6], abs=1e-12)
    assert value == pytest.approx(0.2, abs=1e-12)
    row, column, value = zero_sum_nash([[3.0, 5.0, 4.0], [1.0, 9.0, 2.0]])
    assert (row.tolist(), column.tolist(), value) == ([1.0, 0.0], [1.0, 0.0, 0.0], 3.0)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 1), (2, 5), (7, 4), (12, 12)])
def test_nobody_gains_by_leaving_an_optimal_strategy(shape: tuple[int, int]) -> None:
    for seed in range(5):
        payoff = 1000.0 + 10.0 * np.random.default_rng(seed).normal(size=shape)
        row, column, value = zero_sum_nash(payoff)
        assert (row.sum(), column.sum()) == pytest.approx((1.0, 1.0))
        assert (row @ payoff).min() == pytest.approx(value, abs=1e-8)
        assert (payoff @ column).max() == pytest.approx(value, abs=1e-8)


def test_rock_paper_scissors_is_even() -> None:
    skills, mixture = nash_averaging(RPS)
    assert mixture == pytest.approx(np.full(3, 1.0 / 3.0), abs=1e-12)
    assert skills == pytest.approx(np.zeros(3), abs=1e-12)


def test_the_best_of_a_ranking_has_all_mass() -> None:
    strengths = np.array([1.0, 4.0, 2.5])
    skills, mixture = nash_averaging(strengths[:, None] - strengths[None, :])
    assert mixture.tolist() == [0.0, 1.0, 0.0]
    assert skills.tolist() == [-3.0, 0.0, -1.5]


def test_among_equals_everyone_has_the_same_mass() -> None:
    assert max_entropy_nash(np.zeros((5, 5))) == pytest.approx(np.full(5, 0.2), abs=1e-14)


def test_a_bound_that_holds_with_equality() -> None:
    # Without the last player every mixture of the first two is an equilibrium, the even one of
    # highest entropy; the last one beats the first and loses to the second: p_0 <= p_1 / 3.
    game = np.array([[0.0, 0.0, -3.0], [0.0, 0.0, 1.0], [3.0, -1.0, 0.0]])
    assert max_entropy_nash(game) == pytest.approx([0.25, 0.75, 0.0], abs=1e-8)


@pytest.mark.parametrize("seed", range(50))
def test_nash_averaging_is_that_of_another_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = ("normal", "integers", "copies")[seed % 3]
    game = random_game(rng, size=int(rng.integers(2, 6)), kind=kind)
    skills, mixture = nash_averaging(game)
    expected = max_entropy_of_corners(extreme_equilibria(game))
    assert mixture == pytest.approx(expected, abs=1e-6)
    assert skills == pytest.approx(game @ expected, abs=1e-6)


@pytest.mark.parametrize("kind", ["normal", "integers", "copies"])
@pytest.mark.slow
def test_no_equilibrium_has_more_entropy_or_more_support(kind: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(8):
        game = random_game(rng, size=int(rng.integers(1, 14)), kind=kind)
        mixture = max_entropy_nash(game)
        assert mixture.sum() == pytest.approx(1.0, abs=1e-14)
        assert (game @ mixture).max() <= 1e-12
        assert entropy_that_is_missed(game, mixture) <= 1e-8
        assert mass_that_is_missed(game, mixture) <= 1e-8


@pytest.mark.parametrize("seed", range(6))
def test_copies_share_the_mass_and_change_no_skill(seed: int) -> None:
    game = random_game(np.random.default_rng(seed), size=6, kind="normal")
    skills, mixture = nash_averaging(game)
    best = int(np.argmax(mixture))
    who = [0, 1, 2, 3, 4, 5, best, best, int(np.argmin(skills))]
    more_skills, more_mixture = nash_averaging(game[np.ix_(who, who)])
    assert more_skills == pytest.approx(skills[who], abs=1e-9)
    counts = np.bincount(who)
    assert more_mixture == pytest.approx((mixture / counts)[who], abs=1e-9)


def test_a_clone_splits_the_mass_of_a_unique_equilibrium() -> None:
    biased = np.array([[0.0, -1.0, 2.0], [1.0, 0.0, -1.0], [-2.0, 1.0, 0.0]])
    skills, mixture = nash_averaging(biased)
    assert mixture == pytest.approx([0.25, 0.5, 0.25], abs=1e-12)
    who = [0, 1, 2, 1]
    more_skills, more = nash_averaging(biased[np.ix_(who, who)])
    assert more == pytest.approx([0.25, 0.25, 0.25, 0.25], abs=1e-10)
    assert more_skills == pytest.approx(skills[who], abs=1e-10)


@settings(deadline=None, max_examples=30)
@given(st.data())
@pytest.mark.slow
def test_a_distribution_comes_out_whatever_goes_in(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 6))
    entries = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0, -1.0, 1e-9]))
    drawn = data.draw(arrays(np.float64, (size, size), elements=entries))
    game = np.triu(drawn, 1) - np.triu(drawn, 1).T
    skills, mixture = nash_averaging(game)
    scale = max(float(np.abs(game).max()), 1e-300)
    assert mixture.sum() == pytest.approx(1.0)
    assert mixture.min() >= 0.0
    assert skills.max() <= 1e-6 * scale
    order = np.arange(size)[::-1]
    assert max_entropy_nash(game[np.ix_(order, order)])[order].sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "game", [[[0.0, 1.0], [1.0, 0.0]], [[1.0]], [[0.0, 1.0, 2.0]], [], [[0.0, np.nan], [0.0, 0.0]]]
)
def test_what_is_no_symmetric_zero_sum_game_is_refused(game: list[list[float]]) -> None:
    with pytest.raises(ValueError):
        max_entropy_nash(game)


@pytest.mark.parametrize("sharpness", [1.0, 10.0, 40.0])
def test_policies_that_are_almost_pure_have_an_equilibrium(sharpness: float) -> None:
    """Rock, paper, scissors between a hundred policies, many of them pure but for 1e-15."""
    logits = np.random.default_rng(3).normal(0.0, sharpness, (100, 3))
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    beats = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    mixture = max_entropy_nash(chances @ beats @ chances.T)
    assert mixture.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(mixture @ chances, 1.0 / 3.0, atol=1e-6)
