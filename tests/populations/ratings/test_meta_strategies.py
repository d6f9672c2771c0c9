from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from populations.ratings.alpha_rank import alpha_rank
from populations.ratings.meta_strategies import (
    MetaStrategy,
    meta_strategy,
    project_to_simplex,
    projected_replicator_dynamics,
    uniform_biased,
)

RPS = 0.5 * np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
KINDS: tuple[MetaStrategy, ...] = get_args(MetaStrategy)


def test_each_kind_on_rock_paper_scissors() -> None:
    third = np.full(3, 1.0 / 3.0)
    for kind in ("uniform", "nash", "prd", "alpha_rank"):
        assert meta_strategy(kind, RPS) == pytest.approx(third, abs=1e-9)
    assert meta_strategy("latest", RPS).tolist() == [0.0, 0.0, 1.0]
    e = np.e
    biased = np.array([1.0, e, e * e]) / (1.0 + e + e * e)
    assert meta_strategy("uniform_biased", RPS) == pytest.approx(biased)


def test_each_kind_where_the_second_of_three_beats_the_others() -> None:
    payoff = np.array([[0.0, -0.3, 0.1], [0.3, 0.0, 0.2], [-0.1, -0.2, 0.0]])
    assert meta_strategy("nash", payoff).tolist() == [0.0, 1.0, 0.0]
    assert meta_strategy("alpha_rank", payoff) == pytest.approx([0.0, 1.0, 0.0], abs=1e-9)
    assert meta_strategy("prd", payoff)[1] > 0.8  # the mean over the whole evolution


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
        if kind == "prd":  # thousands of steps: a few are enough here
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
        meta_strategy("minimax", RPS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="antisymmetric"):
        meta_strategy("uniform", RPS + 0.5)


def test_projections_by_hand_and_by_their_definition() -> None:
    # The example of OpenSpiel: lambda = 0.25.
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
            # No other point of the set is nearer: (values - nearest) points out of it.
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
        projected_replicator_dynamics(RPS, floor=0.4)


def test_replicator_dynamics_come_near_an_equilibrium() -> None:
    biased = 0.2 * np.array([[0.0, -1.0, 2.0], [1.0, 0.0, -1.0], [-2.0, 1.0, 0.0]])
    weights = meta_strategy("prd", biased)
    assert weights == pytest.approx([0.25, 0.5, 0.25], abs=0.05)
    assert meta_strategy("alpha_rank", biased) == pytest.approx(alpha_rank(biased))
