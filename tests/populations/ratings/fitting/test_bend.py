"""The bend of log-odds: its function, the ratings that are nearest to it, what they do not know."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

from populations.ratings.bradley_terry import ELO_PER_UNIT, BradleyTerry, Posterior, Time
from populations.ratings.fitting.bend import (
    BENDS,
    Meeting,
    Recency,
    against_anchors,
    bent,
    bent_by,
    left_of,
    newer,
    ratings_by,
    ratings_of,
    scatter_of,
    weights_by,
    weights_of,
)
from populations.ratings.fitting.misfit import PRIOR_BEND, bend_of
from populations.ratings.fitting.newton import make_solver, maximize
from populations.ratings.fitting.posterior import FloatArray, differences, evaluate
from populations.ratings.model import Result
from populations.ratings.results import result_columns
from tests.populations.ratings.matches import met

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
    # b = -1: k = 1/2, and h(2 log 2) = sinh(log 2) / k = (2 - 1/2) / 2 * 2, with slope
    # cosh(log 2) = (2 + 1/2) / 2.
    convex, slopes = bent(np.array([2.0, -2.0, 0.0]) * math.log(2.0), -1.0)
    np.testing.assert_allclose(convex, [1.5, -1.5, 0.0])
    np.testing.assert_allclose(slopes, [1.25, 1.25, 1.0])


@pytest.mark.parametrize("bend", [BEND, -BEND])
def test_derivatives_are_those_of_differences(bend: float) -> None:
    # Without 0, where the slope itself has none.
    distances = np.linspace(-6.0, 6.0, 12)
    found = (bent(distances, bend + STEP)[0] - bent(distances, bend - STEP)[0]) / (2.0 * STEP)
    np.testing.assert_allclose(bent_by(distances, bend), found, atol=1e-8)
    found = (bent(distances + STEP, bend)[0] - bent(distances - STEP, bend)[0]) / (2.0 * STEP)
    np.testing.assert_allclose(bent(distances, bend)[1], found, atol=1e-8)


def test_no_distance_overflows() -> None:
    for bend in BENDS:
        for values in (*bent(np.array([-1e6, 1e6]), bend), bent_by(np.array([1e6]), bend)):
            assert np.isfinite(values).all()


def test_who_is_newer_by_hand() -> None:
    # A lead of 0.02 of the longest training counts a half; players of equal age have 0.
    found = newer(np.array([0.5, 0.5, 0.5, 1.0]), np.array([0.48, 0.5, 0.56, 0.0]))
    np.testing.assert_allclose(found, [0.5, 0.0, -0.75, 1.0 / 1.02])


def recency(size: int, worth: float = 0.0, num_columns: int = 0) -> Recency:
    """Return what newer ones are ahead by, and random changes of it; anchors are not trained."""
    rng = np.random.default_rng(3)
    ages, changes = rng.uniform(size=size), rng.normal(size=num_columns)
    return Recency(ages=ages, worth=worth, changes=changes * bool(worth))


def one_scale(
    size: int, num_columns: int = 0, lead: Recency | None = None, anchor: int = 0
) -> list[Meeting]:
    everybody = np.arange(size)
    lead = recency(size, num_columns=num_columns) if lead is None else lead
    lead.ages[anchor] = 0.0
    return [
        Meeting(
            first=everybody,
            second=everybody,
            advantage=0.0,
            changes=np.zeros(num_columns),
            recency=lead,
        )
    ]


def weights(strengths: FloatArray) -> FloatArray:
    """Return half of an equal share each, and half of the points of the range that are nearest."""
    points = np.linspace(strengths.min(), strengths.max(), 200_001)
    nearest = np.abs(points[:, None] - strengths).argmin(axis=1)
    parts = np.bincount(nearest, minlength=len(strengths)) / len(points)
    return np.asarray(0.5 / len(strengths) + 0.5 * parts)


def test_weights_by_hand() -> None:
    # In the range from 0 to 4, 1 lies nearest to the first, 2 to the second, 1 to the third.
    strengths = np.array([0.0, 2.0, 4.0])
    np.testing.assert_allclose(weights_of(strengths), [1 / 6 + 1 / 8, 1 / 6 + 2 / 8, 1 / 6 + 1 / 8])
    # The range grows four times as fast as time, and the first keeps 1 of it: d(1 / 4) = -1 / 4.
    changes = weights_by(strengths, np.array([[0.0], [0.0], [4.0]]))
    np.testing.assert_allclose(changes[:, 0], [-1 / 8, 0.0, 1 / 8])
    assert weights_of(np.ones(4)).tolist() == [0.25] * 4
    assert not weights_by(np.ones(4), np.ones((4, 2))).any()


@pytest.mark.parametrize(("bend", "worth"), [(BEND, 0.0), (BEND, 0.7), (0.0, 0.7)])
def test_ratings_are_the_nearest_additive_strengths(bend: float, worth: float) -> None:
    strengths = np.array([0.0, 3.0, 1.0, -2.0, 6.0, 5.9])
    lead = recency(6, worth)
    met = one_scale(6, lead=lead)
    apart = lead.ages[:, None] - lead.ages
    distances = strengths[:, None] - strengths + worth * apart / (np.abs(apart) + 0.02)
    ahead, _ = bent(distances, bend)

    each = np.outer(weights(strengths), weights(strengths))

    def squares(ratings: FloatArray) -> float:
        given = np.array([0.0, *ratings])
        return float((each * (ahead - (given[:, None] - given)) ** 2).sum())

    nearest = optimize.minimize(squares, np.zeros(5), tol=1e-12).x
    found, _ = ratings_of(strengths, np.zeros((6, 0)), met, bend=bend)
    np.testing.assert_allclose(found, [0.0, *nearest], atol=1e-4)
    scatter = scatter_of(strengths, met, bend=bend)
    assert scatter == pytest.approx(squares(found[1:]), rel=1e-4)
    off = against_anchors(strengths, found, met, bend=bend)
    np.testing.assert_allclose(off, ahead[:, 0] - found, atol=1e-12)


def test_what_is_unknown_of_the_recency_scatters_pairs() -> None:
    strengths = np.array([0.0, 3.0, 1.0, -2.0])
    # g^2 + its variance: 0.3^2 + 0.4^2
    unsure = replace(recency(4, 0.3, 1), changes=np.array([0.4]))
    found = scatter_of(strengths, one_scale(4, 1, unsure), bend=BEND)
    known = scatter_of(strengths, one_scale(4, lead=recency(4, 0.5)), bend=BEND)
    assert found == pytest.approx(known)


def two_scales(worth: float, changes: FloatArray, lead: Recency | None = None) -> list[Meeting]:
    lead = recency(7) if lead is None else lead
    lead.ages[[0, 4]] = 0.0
    return [
        Meeting(
            first=np.arange(4),
            second=np.arange(4, 7),
            advantage=worth,
            changes=changes,
            recency=lead,
        )
    ]


TWO_SCALES = np.array([0.0, 3.0, 1.0, 5.0, 0.0, 2.5, -1.0])
"""Four on one scale and three on another; the first of each is its anchor."""


def test_what_two_sides_leave_of_log_odds_is_what_they_are_worth() -> None:
    """Those of one scale never meet: ratings are nearest to what pairs of both scales say."""
    first, second = TWO_SCALES[:4], TWO_SCALES[4:]
    ahead, _ = bent(first[:, None] - second - 2.0, BEND)

    each = np.outer(weights(first), weights(second))

    def squares(given: FloatArray) -> float:
        own, others = np.array([0.0, *given[:3]]), np.array([0.0, *given[3:5]])
        return float((each * (ahead - (own[:, None] - others + given[5])) ** 2).sum())

    nearest = optimize.minimize(squares, np.zeros(6), tol=1e-12).x
    met = two_scales(-2.0, np.zeros(0))
    found, _ = ratings_of(TWO_SCALES, np.zeros((7, 0)), met, bend=BEND)
    np.testing.assert_allclose(found, [0.0, *nearest[:3], 0.0, *nearest[3:5]], atol=1e-4)
    worth, _ = left_of(TWO_SCALES, found, met[0], bend=BEND)
    assert worth == pytest.approx(nearest[5], abs=1e-4)
    assert scatter_of(TWO_SCALES, met, bend=BEND) == pytest.approx(squares(nearest), rel=1e-4)
    # The expected error is h(3 - 2) for the second player, and rating 2 plus the seat's worth for
    # the other scale.
    off = against_anchors(TWO_SCALES, found, met, bend=BEND)
    h, _ = bent(np.array([1.0]), BEND)
    assert off[1] == pytest.approx(h[0] - nearest[0] - nearest[5], abs=2e-4)


def test_scales_count_by_their_pairs_in_what_scatters() -> None:
    """Sixteen pairs of one scale, beside its twelve with another one."""
    lead = recency(7, 0.5)
    (across,) = two_scales(-2.0, np.zeros(0), lead)
    met = [replace(across, second=across.first, advantage=0.0), across]
    ratings, _ = ratings_of(TWO_SCALES, np.zeros((7, 0)), met, bend=BEND)
    own, other = (left_of(TWO_SCALES, ratings, one, bend=BEND)[1] for one in met)
    found = scatter_of(TWO_SCALES, met, bend=BEND)
    assert found == pytest.approx((16 * own + 12 * other) / 28)


@pytest.mark.parametrize("lead", [0.0, 0.9])
@pytest.mark.parametrize("num_scales", [1, 2])
def test_ratings_change_as_finite_differences_say(num_scales: int, lead: float) -> None:
    rng = np.random.default_rng(0)
    if num_scales == 1:
        strengths = np.append(rng.normal(0.0, 3.0, 20), 0.0)
        anchors = [20]
    else:
        strengths, anchors = TWO_SCALES, [0, 4]
    directions = rng.normal(0.0, 1.0, (len(strengths), 3))
    directions[anchors] = 0.0
    worth_changes = np.array([0.5, -1.0, 0.0])

    def met(step: float = 0.0, column: int = 0) -> list[Meeting]:
        known = recency(len(strengths), lead, 3)
        moved = replace(known, worth=known.worth + step * float(known.changes[column]))
        if num_scales == 1:
            return one_scale(len(strengths), 3, moved, anchor=anchors[0])
        return two_scales(-2.1 + step * worth_changes[column], worth_changes, moved)

    def ratings(moved: FloatArray, bend: float, meetings: list[Meeting]) -> FloatArray:
        return ratings_of(moved, directions, meetings, bend=bend)[0]

    _, changes = ratings_of(strengths, directions, met(), bend=BEND)
    for column, direction in enumerate(directions.T):
        up = ratings(strengths + STEP * direction, BEND, met(STEP, column))
        down = ratings(strengths - STEP * direction, BEND, met(-STEP, column))
        np.testing.assert_allclose(changes[:, column], (up - down) / (2.0 * STEP), atol=1e-8)
    more, less = (ratings(strengths, BEND + sign * STEP, met()) for sign in (1.0, -1.0))
    by_bend = (more - less) / (2.0 * STEP)
    np.testing.assert_allclose(ratings_by(strengths, met(), bend=BEND), by_bend, atol=1e-8)
    # Anchors do not move.
    assert not changes[anchors].any()


def league(*, times: Mapping[str, Time]) -> Posterior[str]:
    """Return a ladder of eight steps of 150 Elo, and what links say, bent."""
    names = ["anchor", *(f"p{i}" for i in range(8))]

    def result(i: int, j: int, matches: float) -> Result[str]:
        ahead, _ = bent(np.array([150.0 / ELO_PER_UNIT * (i - j)]), BEND)
        wins = float(matches / (1.0 + np.exp(-ahead[0])))
        return met(names[i], names[j], wins, matches - wins)

    pairs = [(i, j) for i in range(9) for j in range(i) if (i + j) % 2]
    link = Result(first="p7", second="p0", seats=(0, 0), wins=6.0, draws=0, losses=2.0)
    posterior = BradleyTerry(bends=True).posterior(
        [result(i, j, 300.0) for i, j in pairs],
        links=result_columns([link]),
        anchors=["anchor"],
        times=times,
    )
    return replace(posterior, problem=replace(posterior.problem, bend=BEND))


def test_the_gradient_of_a_bent_posterior_is_that_of_finite_differences() -> None:
    problem = league(times={f"p{i}": ("player", float(i)) for i in range(8)}).problem
    assert problem.newer.any()
    at = np.random.default_rng(1).normal(0.0, 2.0, problem.num_parameters)
    _, gradient, _ = evaluate(problem, at)
    found = optimize.approx_fprime(at, lambda x: evaluate(problem, x)[0], 1e-6)
    np.testing.assert_allclose(gradient, found, rtol=1e-4, atol=1e-3)


def test_the_bend_is_found_and_what_is_unknown_of_it_is_in_the_spread() -> None:
    posterior = league(times={})
    problem = posterior.problem
    solver = make_solver(problem)
    parameters = maximize(problem, solver)
    bend, unsure, _ = bend_of(problem, solver, summed=differences(problem, parameters))
    # The scores are exact, so only the prior, N(0, 0.25^2), pulls the bend to 0.
    assert bend == pytest.approx(BEND * (1.0 - (unsure / PRIOR_BEND) ** 2), abs=0.1 * unsure)

    def ratings(at: float) -> FloatArray:
        other = replace(posterior, problem=replace(problem, bend=at))
        return other.ratings(maximize(other.problem, make_solver(other.problem)))

    step = 0.01
    by_bend = (ratings(BEND + step) - ratings(BEND - step)) / (2.0 * step)
    fit = posterior.fit(parameters, solver, shrunk=parameters)
    np.testing.assert_allclose(fit.spread[:, -1], unsure * by_bend, rtol=0.05, atol=1.0)
