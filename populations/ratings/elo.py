"""Sequential Elo ratings: for comparison, and where only the order of games is known.

Source: Elo, "The rating of chessplayers, past and present" (1978).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

INITIAL = 1200.0
K_FACTOR = 32.0


def expected_score(rating: float, opponent: float) -> float:
    """Return the expected score of a rating against another, in (0, 1)."""
    # The limit prevents an overflow; beyond it the score is 0 or 1 in float64.
    exponent = min(max((opponent - rating) / 400.0, -300.0), 300.0)
    # A difference of 400 points means odds of 10:1.
    return float(1.0 / (1.0 + 10.0**exponent))


def elo_of_many(
    homes: IntArray,
    aways: IntArray,
    scores: FloatArray,
    *,
    orders: npt.NDArray[np.integer],
    num_players: int,
    k_factor: float = K_FACTOR,
    initial: float = INITIAL,
) -> FloatArray:
    """Compute ratings for many sequences of two-player games at once, each in the order given.

    Args:
        homes: Indices of the first players. Shape [M], M games.
        aways: Indices of the second players. Shape [M].
        scores: Scores of the first players. Shape [M].
        orders: Indices of the L games that sequence b plays, in order. Shape [B, L].
        num_players: Number N of players.
        k_factor: Points that a win against expectation gains at most.
        initial: Rating of a player before its first game.

    Returns:
        Ratings [B, N].
    """
    ratings = np.full((len(orders), num_players), initial)
    # Step l plays one game of every sequence, so contiguous rows [L, B] are the fastest to read.
    sequence = np.arange(len(orders))
    for game in np.ascontiguousarray(orders.T):
        home, away = homes[game], aways[game]
        gap = np.clip((ratings[sequence, away] - ratings[sequence, home]) / 400.0, -300.0, 300.0)
        # R' = R + K (s - 1 / (1 + 10^((R_opponent - R) / 400)))
        change = k_factor * (scores[game] - 1.0 / (1.0 + 10.0**gap))
        # Each sequence occurs once in the index, so += loses no change.
        ratings[sequence, home] += change
        ratings[sequence, away] -= change
    return ratings
