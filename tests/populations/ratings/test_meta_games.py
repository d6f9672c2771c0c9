"""Solutions of games between policies: Nash averaging, alpha-Rank and the strategies of PSRO."""

from __future__ import annotations

import sys
from itertools import combinations
from types import ModuleType
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog, minimize

from populations.ratings.alpha_rank import (
    alpha_rank,
    log_fixation,
    stationary,
)
from populations.ratings.meta_strategies import (
    MetaStrategy,
    meta_strategy,
    project_to_simplex,
    projected_replicator_dynamics,
    uniform_biased,
)
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
    # The players are indifferent: 2p - (1 - p) = -p + (1 - p), p = 2/5, value 1/5.
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


def test_the_best_of_a_ranking_has_all_mass() -> None:
    strengths = np.array([1.0, 4.0, 2.5])
    skills, mixture = nash_averaging(strengths[:, None] - strengths[None, :])
    assert mixture.tolist() == [0.0, 1.0, 0.0]
    assert skills.tolist() == [-3.0, 0.0, -1.5]


def test_a_bound_that_holds_with_equality() -> None:
    # Without the last player every mixture of the first two is an equilibrium, and the even one has
    # the highest entropy; the last player beats the first and loses to the second: p_0 <= p_1 / 3.
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


@pytest.fixture
def openspiel(monkeypatch: pytest.MonkeyPatch) -> Any:
    """OpenSpiel's alpha-rank without its pictures, which need absl."""
    name = "open_spiel.python.egt.alpharank_visualizer"
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    return pytest.importorskip("open_spiel.python.egt.alpharank")


def antisymmetric(rng: np.random.Generator, size: int) -> FloatArray:
    upper = np.triu(rng.uniform(-0.5, 0.5, size=(size, size)), 1)
    return np.asarray(upper - upper.T)


def solved(rates: FloatArray) -> FloatArray:
    """Stationary distribution by linear algebra."""
    size = len(rates)
    chain = np.where(np.eye(size, dtype=bool), 0.0, rates)
    balance = (chain - np.diag(chain.sum(axis=1))).T
    balance[-1] = 1.0
    return np.asarray(np.linalg.solve(balance, np.append(np.zeros(size - 1), 1.0)))


def top_cycle(payoff: FloatArray) -> FloatArray:
    """The limit of large alpha without ties: a walk to anyone better, at rates that are equal."""
    beaten_by = (payoff.T > 0.0).astype(np.float64)  # from the row to its betters
    size = len(payoff)
    reaches = np.linalg.matrix_power(np.eye(size) + beaten_by, size) > 0.0
    top = np.flatnonzero(reaches.all(axis=0))  # every player reaches these
    mass = np.zeros(size)
    mass[top] = solved(beaten_by[np.ix_(top, top)])
    return mass


def test_rock_paper_scissors_is_uniform_for_every_alpha() -> None:
    third = np.full(3, 1.0 / 3.0)
    for alpha in (None, 0.0, 0.1, 10.0, 1e6, 1e200):
        assert alpha_rank(RPS, alpha=alpha) == pytest.approx(third, abs=1e-12)


def test_two_strategies_by_hand() -> None:
    # u = alpha (M[r, s] - M[s, r]) = 1; rates (1 - e^-1) / (1 - e^-m) up, and back with -1.
    payoff = np.array([[0.0, 0.5], [-0.5, 0.0]])
    m = 5
    up = (1 - np.exp(-1.0)) / (1 - np.exp(-m))
    down = (1 - np.exp(1.0)) / (1 - np.exp(m))
    expected = [up / (up + down), down / (up + down)]
    assert alpha_rank(payoff, alpha=1.0, num_individuals=m) == pytest.approx(expected, abs=1e-14)
    assert alpha_rank(payoff).tolist() == pytest.approx([1.0, 0.0], abs=1e-12)


def test_a_single_strategy_and_equal_ones() -> None:
    assert alpha_rank([[0.3]]).tolist() == [1.0]
    assert alpha_rank(np.zeros((4, 4))).tolist() == [0.25] * 4


def test_fixation_probabilities_hold_where_they_overflow() -> None:
    m = 50
    u = np.array([0.0, 1e-15, 1e-6, 0.5, 3.0, -0.5, -1e-6])
    with np.errstate(all="ignore"):
        direct = np.where(np.abs(u) < 1e-14, 1.0 / m, (1 - np.exp(-u)) / (1 - np.exp(-m * u)))
    assert np.exp(log_fixation(u, num_individuals=m)) == pytest.approx(direct, rel=1e-9)
    assert log_fixation(np.array([1e4, -1e4]), num_individuals=m).tolist() == [0.0, -49e4]


def test_stationary_distributions_are_those_of_linear_algebra() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 8, 30):
        rates = rng.uniform(0.01, 1.0, size=(size, size))
        assert stationary(np.log(rates)) == pytest.approx(solved(rates), rel=1e-10)


def test_rates_far_below_the_smallest_float_still_count() -> None:
    # Two states are left at e^-5000 and e^-5001: the second holds e times the mass of the first.
    rates = np.array([[0.0, -5000.0], [-5001.0, 0.0]])
    assert stationary(rates)[1] / stationary(rates)[0] == pytest.approx(np.e, rel=1e-9)


@pytest.mark.parametrize("seed", range(50))
def test_fifty_games_are_ranked_as_openspiel_does(seed: int, openspiel: Any) -> None:
    rng = np.random.default_rng(seed)
    payoff = antisymmetric(rng, int(rng.integers(2, 8)))
    for alpha, m in ((0.3, 50), (3.0, 10)):
        expected = openspiel.compute([payoff], m=m, alpha=alpha)[2]
        found = alpha_rank(payoff, alpha=alpha, num_individuals=m)
        assert found == pytest.approx(expected, abs=1e-6)


def test_selection_against_the_whole_population_is_another_alpha(openspiel: Any) -> None:
    payoff = antisymmetric(np.random.default_rng(7), 5)
    m = 20
    expected = openspiel.compute([payoff], m=m, alpha=2.0, use_local_selection_model=False)[2]
    alpha = 2.0 * m / (2.0 * (m - 1))
    assert alpha_rank(payoff, alpha=alpha, num_individuals=m) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_the_sweep_ends_at_the_limit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    payoff = antisymmetric(rng, int(rng.integers(2, 9)))
    expected = top_cycle(payoff)
    assert alpha_rank(payoff) == pytest.approx(expected, abs=1e-9)
    # A plateau at small alpha must not end the search: tiny payoffs rank as large ones do.
    assert alpha_rank(1e-7 * payoff) == pytest.approx(expected, abs=1e-9)
    assert alpha_rank(1e-305 * payoff) == pytest.approx(expected, abs=1e-9)


def test_the_sweep_of_openspiel_ends_there_too(openspiel: Any) -> None:
    payoff = np.array(
        [[0.0, -0.4, 0.3, 0.2], [0.4, 0.0, -0.3, 0.4], [-0.3, 0.3, 0.0, 0.1], [0.0] * 4]
    )
    payoff[3, :3] = -payoff[:3, 3]
    with np.errstate(over="ignore"):
        expected = openspiel.sweep_pi_vs_alpha([payoff])
    assert alpha_rank(payoff) == pytest.approx(expected, abs=1e-5)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 6).flatmap(lambda n: arrays(np.float64, (n, n), elements=st.floats(-1e3, 1e3))),
    st.one_of(st.none(), st.floats(0.0, 1e6)),
)
def test_alpha_rank_is_a_distribution_whatever_goes_in(
    payoff: FloatArray, alpha: float | None
) -> None:
    mass = alpha_rank(payoff, alpha=alpha)
    assert mass.sum() == pytest.approx(1.0)
    assert mass.min() >= 0.0


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="must be square"):
        alpha_rank([[0.0, 1.0]])
    with pytest.raises(ValueError, match="finite"):
        alpha_rank([[0.0, np.nan], [0.0, 0.0]])
    with pytest.raises(ValueError, match="alpha must be finite and at least 0, got -1"):
        alpha_rank(RPS, alpha=-1.0)
    with pytest.raises(ValueError, match="num_individuals must be at least 2"):
        alpha_rank(RPS, num_individuals=1)


RPS_SCORES = 0.5 * np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
KINDS: tuple[MetaStrategy, ...] = get_args(MetaStrategy)


def test_each_kind_on_rock_paper_scissors() -> None:
    third = np.full(3, 1.0 / 3.0)
    for kind in ("uniform", "nash", "prd", "alpha_rank"):
        assert meta_strategy(kind, RPS_SCORES) == pytest.approx(third, abs=1e-9)
    assert meta_strategy("latest", RPS_SCORES).tolist() == [0.0, 0.0, 1.0]
    e = np.e
    biased = np.array([1.0, e, e * e]) / (1.0 + e + e * e)
    assert meta_strategy("uniform_biased", RPS_SCORES) == pytest.approx(biased)


@settings(deadline=None, max_examples=20)
@given(
    st.integers(1, 6).flatmap(lambda n: arrays(np.float64, (n, n), elements=st.floats(-0.5, 0.5)))
)
@pytest.mark.slow
def test_every_kind_gives_probabilities(
    drawn: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> None:
    payoff = np.triu(drawn, 1) - np.triu(drawn, 1).T
    for kind in KINDS:
        if kind == "prd":  # thousands of steps are slow, so a few examples are used
            weights, _ = projected_replicator_dynamics(payoff, num_iterations=20)
        else:
            weights = meta_strategy(kind, payoff)
        assert weights.shape == (len(payoff),)
        assert weights.sum() == pytest.approx(1.0)
        assert weights.min() >= 0.0


def test_a_thousand_players_do_not_overflow_the_biased_weights() -> None:
    weights = uniform_biased(1000)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[-1] / weights[-2] == pytest.approx(np.e)


def test_what_is_no_meta_strategy_or_no_payoff_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of uniform, uniform_biased, nash"):
        meta_strategy("minimax", RPS_SCORES)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="antisymmetric"):
        meta_strategy("uniform", RPS_SCORES + 0.5)


def test_projections_by_hand_and_by_their_definition() -> None:
    # This is OpenSpiel's example: lambda = 0.25.
    assert project_to_simplex(np.array([0.4, 0.7, 0.6]), floor=0.2) == pytest.approx(
        [0.2, 0.45, 0.35]
    )
    rng = np.random.default_rng(0)
    for floor in (0.0, 0.01, 0.2):
        for _ in range(20):
            values = rng.normal(size=5)
            nearest = project_to_simplex(values, floor=floor)
            assert nearest.sum() == pytest.approx(1.0)
            assert nearest.min() >= floor - 1e-15
            # No other point of the set is nearer, because (values - nearest) points out of it.
            others = floor + (1.0 - 5 * floor) * rng.dirichlet(np.ones(5), size=200)
            assert ((others - nearest) @ (values - nearest)).max() <= 1e-12


def test_replicator_dynamics_are_those_of_openspiel() -> None:
    openspiel = pytest.importorskip("open_spiel.python.algorithms.projected_replicator_dynamics")
    rng = np.random.default_rng(3)
    for shape in ((3, 3), (5, 2), (1, 4)):
        payoff = rng.normal(size=shape)
        for floor, step in ((1e-6, 0.01), (0.05, 0.3)):
            rows, columns = projected_replicator_dynamics(
                payoff, num_iterations=150, step=step, floor=floor
            )
            expected = openspiel.projected_replicator_dynamics(
                [payoff, -payoff], prd_iterations=150, prd_dt=step, prd_gamma=floor
            )
            assert rows == pytest.approx(expected[0], abs=1e-12)
            assert columns == pytest.approx(expected[1], abs=1e-12)
    with pytest.raises(ValueError, match="floor must be in"):
        projected_replicator_dynamics(RPS_SCORES, floor=0.4)


def test_replicator_dynamics_come_near_an_equilibrium() -> None:
    biased = 0.2 * np.array([[0.0, -1.0, 2.0], [1.0, 0.0, -1.0], [-2.0, 1.0, 0.0]])
    weights = meta_strategy("prd", biased)
    assert weights == pytest.approx([0.25, 0.5, 0.25], abs=0.05)
    assert meta_strategy("alpha_rank", biased) == pytest.approx(alpha_rank(biased))
