from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from populations.ratings.alpha_rank import (
    alpha_rank,
    log_fixation,
    stationary,
)

FloatArray = npt.NDArray[np.float64]

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


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
    top = np.flatnonzero(reaches.all(axis=0))  # everyone gets there
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
    # Two states, left at e^-5000 and e^-5001: the second holds e times the mass of the first.
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
    # A plateau at small alpha is not the end: tiny payoffs rank as large ones do.
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
def test_a_distribution_comes_out_whatever_goes_in(payoff: FloatArray, alpha: float | None) -> None:
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
