"""The bend of log-odds: its function, the ratings that are nearest to it, what they do not know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

from populations.ratings.bradley_terry import ELO_PER_UNIT, BradleyTerry, Posterior
from populations.ratings.fitting.bend import bent, bent_by, ratings_by, ratings_of, scatter_of
from populations.ratings.fitting.misfit import PRIOR_BEND, bend_of
from populations.ratings.fitting.newton import make_solver, maximize
from populations.ratings.fitting.posterior import FloatArray, differences, evaluate
from populations.ratings.model import Result
from populations.ratings.results import result_columns

BEND = 0.4
STEP = 1e-5


def test_log_odds_by_hand() -> None:
    # b = 1/2: h(3) = (4^(1/2) - 1) / (1/2) = 2, with slope 4^(-1/2).
    values, slopes = bent(np.array([3.0, -3.0, 0.0]), 0.5)
    assert values.tolist() == [2.0, -2.0, 0.0]
    assert slopes.tolist() == [0.5, 0.5, 1.0]
    straight, slopes = bent(np.array([3.0, -1.0]), 0.0)
    assert straight.tolist() == [3.0, -1.0]
    assert slopes.tolist() == [1.0, 1.0]
    distances = np.linspace(-6.0, 6.0, 13)
    found = (bent(distances, BEND + STEP)[0] - bent(distances, BEND - STEP)[0]) / (2.0 * STEP)
    np.testing.assert_allclose(bent_by(distances, BEND), found, atol=1e-8)


def test_ratings_are_the_nearest_additive_strengths() -> None:
    strengths = np.array([0.0, 3.0, 1.0, -2.0, 6.0, 5.9])
    ahead, _ = bent(strengths[:, None] - strengths, BEND)

    def squares(ratings: FloatArray) -> float:
        given = np.array([0.0, *ratings])
        return float(((ahead - (given[:, None] - given)) ** 2).sum())

    nearest = optimize.minimize(squares, np.zeros(5), tol=1e-12).x
    found, _ = ratings_of(strengths, np.zeros((6, 0)), bend=BEND)
    np.testing.assert_allclose(found, [0.0, *nearest], atol=1e-5)
    assert scatter_of(strengths, bend=BEND) == pytest.approx(squares(found[1:]) / 36.0)


def test_ratings_change_as_finite_differences_say() -> None:
    rng = np.random.default_rng(0)
    strengths = np.append(rng.normal(0.0, 3.0, 20), 0.0)
    directions = rng.normal(0.0, 1.0, (21, 3))
    directions[-1] = 0.0

    def ratings(moved: FloatArray, bend: float) -> FloatArray:
        return ratings_of(moved, directions, bend=bend)[0]

    _, changes = ratings_of(strengths, directions, bend=BEND)
    for column, direction in enumerate(directions.T):
        up = ratings(strengths + STEP * direction, BEND)
        down = ratings(strengths - STEP * direction, BEND)
        np.testing.assert_allclose(changes[:, column], (up - down) / (2.0 * STEP), atol=1e-8)
    by_bend = (ratings(strengths, BEND + STEP) - ratings(strengths, BEND - STEP)) / (2.0 * STEP)
    np.testing.assert_allclose(ratings_by(strengths, bend=BEND), by_bend, atol=1e-8)
    # Anchors stay where they are.
    assert changes[-1].tolist() == [0.0, 0.0, 0.0]


def league() -> Posterior[str]:
    """Return a ladder of eight steps of 150 Elo, and what links say, bent."""
    names = ["anchor", *(f"p{i}" for i in range(8))]

    def result(i: int, j: int, matches: float) -> Result[str]:
        ahead, _ = bent(np.array([150.0 / ELO_PER_UNIT * (i - j)]), BEND)
        wins = float(matches / (1.0 + np.exp(-ahead[0])))
        return Result(
            first=names[i], second=names[j], seats=(0, 0), wins=wins, draws=0, losses=matches - wins
        )

    pairs = [(i, j) for i in range(9) for j in range(i) if (i + j) % 2]
    link = Result(first="p7", second="p0", seats=(0, 0), wins=6.0, draws=0, losses=2.0)
    posterior = BradleyTerry(bends=True).posterior(
        [result(i, j, 300.0) for i, j in pairs], links=result_columns([link]), anchors=["anchor"]
    )
    return replace(posterior, problem=replace(posterior.problem, bend=BEND))


def test_the_gradient_of_a_bent_posterior_is_that_of_finite_differences() -> None:
    problem = league().problem
    at = np.random.default_rng(1).normal(0.0, 2.0, problem.num_parameters)
    _, gradient, _ = evaluate(problem, at)
    found = optimize.approx_fprime(at, lambda x: evaluate(problem, x)[0], 1e-6)
    np.testing.assert_allclose(gradient, found, rtol=1e-4, atol=1e-3)


def test_the_bend_is_found_and_what_is_unknown_of_it_is_in_the_spread() -> None:
    posterior = league()
    problem = posterior.problem
    solver = make_solver(problem)
    parameters = maximize(problem, solver)
    bend, unsure, _ = bend_of(problem, solver, summed=differences(problem, parameters))
    # The scores are exact: only the prior, N(0, 0.25^2), draws it to 0.
    assert bend == pytest.approx(BEND * (1.0 - (unsure / PRIOR_BEND) ** 2), abs=0.1 * unsure)

    def ratings(at: float) -> FloatArray:
        other = replace(posterior, problem=replace(problem, bend=at))
        return other.ratings(maximize(other.problem, make_solver(other.problem)))

    step = 0.01
    by_bend = (ratings(BEND + step) - ratings(BEND - step)) / (2.0 * step)
    fit = posterior.fit(parameters, solver, shrunk=parameters)
    np.testing.assert_allclose(fit.spread[:, -1], unsure * by_bend, rtol=0.05, atol=1.0)
