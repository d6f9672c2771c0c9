"""Expected scores between players: results, completed by predictions of the ratings.

The score of row i against column j is

(points + k p) / (matches + k),    k = PRIOR_MATCHES,

over all matches of the pair, with points the sum of the row's scores and p the score that the
ratings predict. It is the prediction without matches, and the results after many. Shapes: N rows, M
columns.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from populations.core import PRIOR_MATCHES, FloatArray
from populations.matchmaking.rating_proximate import ELO_SCALE, expected_scores

SIDE_DEVIATION = 400.0
"""Prior deviation of a side's advantage in Elo, as in the rating model."""

MAX_NEWTON_STEPS = 60
MAX_NEWTON_STEP = 200.0
MIN_NEWTON_STEP = 0.01
"""Length of a step, in Elo, below which the iteration ends."""

Outcome = tuple[int, int, float, float]
"""Indices of row and column, points of the row's player, number of matches."""


def filled_scores(predicted: FloatArray, outcomes: Iterable[Outcome]) -> FloatArray:
    """Return expected scores from predictions and results, by the formula of the module.

    Args:
        predicted: Predicted scores p. float64 [N, M].
        outcomes: Results in any order; several results of a pair are added up.

    Returns:
        Scores float64 [N, M].
    """
    points, matches = counted(outcomes, shape=predicted.shape)
    return np.asarray((points + PRIOR_MATCHES * predicted) / (matches + PRIOR_MATCHES))


def filled_scores_among(ratings: FloatArray, outcomes: Iterable[Outcome]) -> FloatArray:
    """Return the scores of players among themselves, over all seats.

    Args:
        ratings: Ratings in Elo; NaN if unrated, which counts as even. float64 [N].
        outcomes: Results of each pair, once and with either player first.

    Returns:
        Scores float64 [N, N]; with the transpose they add up to 1.
    """
    predicted = expected_scores(ratings[:, np.newaxis], ratings[np.newaxis, :])
    # A result counts in both cells, so that scores and their transpose add up to 1.
    both = (
        seen for i, j, won, met in outcomes for seen in ((i, j, won, met), (j, i, met - won, met))
    )
    return filled_scores(predicted, both)


def counted(
    outcomes: Iterable[Outcome], *, shape: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Sum the row's points and the matches of each pair. float64 [N, M] each."""
    points, matches = np.zeros(shape), np.zeros(shape)
    for i, j, won, met in outcomes:
        # A loop is needed: adding by an index array would count repeated pairs once.
        points[i, j] += won
        matches[i, j] += met
    return points, matches


def rating_by_results(
    rating: float, opponents: FloatArray, *, wins: FloatArray, losses: FloatArray
) -> float:
    """Move a rating to the scale of another population, by results against its players.

    The answer is the mode of the posterior of a logistic score (Bradley and Terry, "Rank analysis
    of incomplete block designs", 1952): ratings of opponents are fixed, the prior has the rating as
    mean and ``SIDE_DEVIATION`` as deviation, because scales differ by the advantage of a side.

    Args:
        rating: Rating in Elo; NaN is returned as NaN.
        opponents: Ratings in Elo, finite. float64 [N].
        wins: Wins, draws half. float64 [N].
        losses: Losses, draws half. float64 [N].

    Returns:
        The moved rating in Elo.
    """
    if np.isnan(rating) or not len(opponents):
        return rating
    per_elo = np.log(10.0) / ELO_SCALE
    precision = SIDE_DEVIATION**-2
    matches = wins + losses
    moved = 0.0
    for _ in range(MAX_NEWTON_STEPS):
        expected = expected_scores(rating + moved, opponents)
        # d log posterior / dx = c sum (w - n p) - x / s^2, with c = ln 10 / 400
        slope = per_elo * float((wins - matches * expected).sum()) - precision * moved
        information = float((matches * expected * (1.0 - expected)).sum())
        # Newton: the curvature is c^2 sum n p (1 - p) + 1 / s^2, never 0.
        step = slope / (per_elo**2 * information + precision)
        # Far from the mode the logistic curve is flat, and a full step would overshoot.
        moved += min(max(step, -MAX_NEWTON_STEP), MAX_NEWTON_STEP)
        # ``not >`` also ends the loop at NaN.
        if not abs(step) > MIN_NEWTON_STEP:
            break
    return rating + moved
