"""Intervals without a normal approximation: the percentile bootstrap over all matches.

As many matches as were played are drawn anew from all of them, whoever played, and everything is
fitted again. So who met whom how often is drawn, too; within a pair alone, one match a pair would
always be drawn as it was. What was seen without exception is drawn without exception: with few
matches these intervals are too narrow (README.md says by how much) and Wald's are to be trusted.

Source: Efron and Tibshirani, "An introduction to the bootstrap" (1993), chapter 13.

Shapes: N entrants; B resamples; M results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np

from populations.ratings.bradley_terry import BradleyTerry, Time
from populations.ratings.fitting.newton import maximize
from populations.ratings.fitting.posterior import FloatArray
from populations.ratings.model import E, Result
from populations.ratings.results import POINTS

NUM_RESAMPLES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap(Generic[E]):
    """Ratings of resampled leagues.

    Attributes:
        entrants: In the order of `populations.ratings.bradley_terry.Fit`.
        ratings: Elo. float64 [B, N].
    """

    entrants: tuple[E, ...]
    ratings: FloatArray

    def intervals(self, *, confidence: float = 0.95) -> FloatArray:
        """Ends of each rating's interval, in Elo. float64 [N, 2]."""
        return _percentiles(self.ratings, confidence=confidence).T

    def difference(self, first: E, second: E, *, confidence: float = 0.95) -> tuple[float, float]:
        """Ends of the interval of how much better ``first`` is, in Elo."""
        i, j = self.entrants.index(first), self.entrants.index(second)
        gap = self.ratings[:, i] - self.ratings[:, j]
        low, high = _percentiles(gap, confidence=confidence).tolist()
        return low, high

    def ranks(self, *, confidence: float = 0.95) -> FloatArray:
        """Ends of each rank's interval; 1 is the best, equals share. float64 [N, 2]."""
        from scipy.stats import rankdata

        ranks = rankdata(-self.ratings, axis=1)
        return _percentiles(ranks, confidence=confidence).T


def bootstrap(
    model: BradleyTerry,
    results: Iterable[Result[E]],
    *,
    entrants: Iterable[E] = (),
    parents: Mapping[E, E] | None = None,
    times: Mapping[E, Time] | None = None,
    anchors: Collection[E] = (),
    num_resamples: int = NUM_RESAMPLES,
    rng: np.random.Generator,
) -> Bootstrap[E]:
    """Fit resampled results, each time from the ratings of all results.

    Args:
        model: With its priors.
        results: As for `populations.ratings.model.RatingModel.fit`, and so are the next four. As
            many matches are drawn as the nearest whole number to their sum.
        entrants: To be rated even if they have no result.
        parents: Whose rating is the prior mean.
        times: When those who learn came to be.
        anchors: At exactly 0.
        num_resamples: B; 200 for a look, 1000 for the record.
        rng: Draws the resamples.

    Raises:
        ValueError: As `RatingModel.fit`, and if ``num_resamples`` is below 2.
    """
    if num_resamples < 2:
        raise ValueError(f"num_resamples must be at least 2, got {num_resamples!r}")
    posterior = model.posterior(
        results, entrants=entrants, parents=parents, times=times, anchors=anchors
    )
    settled = model.settle(posterior)
    posterior = settled.posterior
    counts = posterior.counts
    total = round(float(counts.sum()))
    # Without matches none is drawn; any distribution will do.
    seen = counts.ravel() if total else np.ones(counts.size)
    shares = seen / seen.sum()
    ratings = np.empty((num_resamples, len(posterior.entrants)))
    for b in range(num_resamples):
        drawn = rng.multinomial(total, shares).reshape(counts.shape) if total else counts
        resampled = replace(
            posterior.problem, matches=drawn.sum(axis=1).astype(np.float64), scores=drawn @ POINTS
        )
        ratings[b] = posterior.elo(maximize(resampled, settled.solver, start=settled.parameters))
    return Bootstrap(entrants=posterior.entrants, ratings=ratings)


def _percentiles(values: FloatArray, *, confidence: float) -> FloatArray:
    tail = 50.0 * (1.0 - confidence)
    return np.asarray(np.percentile(values, [tail, 100.0 - tail], axis=0), dtype=np.float64)
