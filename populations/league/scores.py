"""What players are expected to score against each other: results, filled by what ratings predict.

The score of row i against column j is

    (points + k p) / (matches + k),    k = PRIOR_MATCHES,

over all matches of the pair, points the sum of the row's scores and p the score that their ratings
promise. So it is the prediction for who never met, and the results for who met often. Shapes: N
rows, M columns.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from populations.core import FloatArray
from populations.matchmaking.rating_proximate import expected_scores

PRIOR_MATCHES = 8.0
"""Matches that the rating model's prediction of a score is worth."""

Outcome = tuple[int, int, float, float]
"""Row, column; points of the row, matches."""


def filled_scores(predicted: FloatArray, outcomes: Iterable[Outcome]) -> FloatArray:
    """The formula above.

    Args:
        predicted: p. float64 [N, M].
        outcomes: In any order; those of a pair add up.

    Returns:
        float64 [N, M].
    """
    points, matches = counted(outcomes, shape=predicted.shape)
    return np.asarray((points + PRIOR_MATCHES * predicted) / (matches + PRIOR_MATCHES))


def filled_scores_among(ratings: FloatArray, outcomes: Iterable[Outcome]) -> FloatArray:
    """Scores of some players among themselves, over all seats.

    Args:
        ratings: Elo; NaN if unrated, which counts as even. float64 [N].
        outcomes: Of each meeting once, seen from either player.

    Returns:
        float64 [N, N]; with its transpose it adds up to 1.
    """
    predicted = expected_scores(ratings[:, np.newaxis], ratings[np.newaxis, :])
    both = (
        seen for i, j, won, met in outcomes for seen in ((i, j, won, met), (j, i, met - won, met))
    )
    return filled_scores(predicted, both)


def counted(
    outcomes: Iterable[Outcome], *, shape: tuple[int, ...]
) -> tuple[FloatArray, FloatArray]:
    """Points of the row and matches of each pair. float64 [N, M] each."""
    points, matches = np.zeros(shape), np.zeros(shape)
    for i, j, won, met in outcomes:
        points[i, j] += won
        matches[i, j] += met
    return points, matches
