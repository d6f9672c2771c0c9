"""Intervals by resampling matches, for ratings whose uncertainty has no formula.

Source: Efron, "Bootstrap methods: another look at the jackknife" (Annals of Statistics, 1979); the
percentile method.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

TAIL = 0.025
"""Share of the resamples on each side of a 95% interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Percentile and rank intervals from resamples.

    Attributes:
        lows: Lower ends of the 95% intervals [N].
        highs: Upper ends [N].
        ranks: Best and worst rank of each player; 1 is the best.
    """

    lows: FloatArray
    highs: FloatArray
    ranks: tuple[tuple[int, int], ...]


def intervals(
    ratings: FloatArray, resampled: Iterable[FloatArray], *, tie: float = 1e-6
) -> Intervals:
    """Read intervals off ratings of resampled matches.

    A pair is ordered where one of the two is ahead in at least 97.5% of the resamples.

    Args:
        ratings: Ratings of the original matches; every interval holds its rating. Shape [N].
        resampled: Ratings of resamples, each [N]; at least one.
        tie: Difference below which two ratings are equal.
    """
    rows = []
    is_ahead = np.zeros((len(ratings), len(ratings)), dtype=np.int64)
    for row in resampled:
        rows.append(row)
        # Counted within each resample, so that errors common to both ratings cancel.
        is_ahead += row[:, None] - row[None, :] > tie
    low, high = np.quantile(np.stack(rows), [TAIL, 1.0 - TAIL], axis=0)
    is_better = is_ahead >= (1.0 - TAIL) * len(rows)
    return Intervals(
        # Percentiles of biased resamples can miss the rating itself.
        lows=np.minimum(low, ratings),
        highs=np.maximum(high, ratings),
        ranks=tuple(
            (1 + int(better), len(ratings) - int(worse))
            for better, worse in zip(is_better.sum(axis=0), is_better.sum(axis=1), strict=True)
        ),
    )
