"""Intervals without a normal approximation: the percentile bootstrap over all matches.

The bootstrap draws as many matches as were played, from all matches of all pairs, and fits
everything again. So the number of matches of each pair is random, too. A pair with only one outcome
has only this outcome in all resamples, so with few matches these intervals are too narrow and
Wald's are better.

Sources: Efron, "Bootstrap methods: another look at the jackknife" (Annals of Statistics, 1979);
Efron and Tibshirani, "An introduction to the bootstrap" (1993), chapter 13.

Shapes: N entrants; B resamples; M results.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from populations.ratings.bradley_terry import BradleyTerry, Time
from populations.ratings.fitting.newton import maximize
from populations.ratings.fitting.posterior import FloatArray
from populations.ratings.model import E, Result
from populations.ratings.results import POINTS

NUM_RESAMPLES = 500


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
) -> FloatArray:
    """Fit a model to resampled results; each fit starts from the ratings of all results.

    Args:
        model: Model with its priors.
        results: Results, as for `BradleyTerry.fit`, like the next four arguments. A resample has as
            many matches as they have, rounded.
        entrants: Entrants to rate even if they have no result.
        parents: Entrant whose rating is the prior mean, by child.
        times: Population and age of the entrants that learn.
        anchors: Entrants fixed at exactly 0.
        num_resamples: Number B of resamples; 200 suffice for a first look, 1000 for publication.
        rng: Generator of the resamples.

    Returns:
        Ratings in Elo, of the entrants in the order of `BradleyTerry.fit`. float64 [B, N].

    Raises:
        ValueError: As for `BradleyTerry.fit`, and if ``num_resamples`` is below 2.
    """
    if num_resamples < 2:
        raise ValueError(f"num_resamples must be at least 2, got {num_resamples!r}")
    posterior = model.posterior(
        results, entrants=entrants, parents=parents, times=times, anchors=anchors
    )
    estimated = model.estimate(posterior)
    posterior = estimated.posterior
    counts = posterior.counts
    total = round(float(counts.sum()))
    # From an empty table no match is drawn, so any distribution serves.
    seen = counts.ravel() if total else np.ones(counts.size)
    shares = seen / seen.sum()
    ratings = np.empty((num_resamples, len(posterior.entrants)))
    for b in range(num_resamples):
        # Draws are from all matches at once: within a pair with a single match, each draw would
        # repeat that match, and its interval would have width 0.
        drawn = rng.multinomial(total, shares).reshape(counts.shape) if total else counts
        # Components of variance are not estimated again, because few resampled matches would change
        # them more than chance does.
        resampled = replace(
            posterior.problem, matches=drawn.sum(axis=1).astype(np.float64), scores=drawn @ POINTS
        )
        ratings[b] = posterior.ratings(
            maximize(resampled, estimated.solver, start=estimated.parameters)
        )
    return ratings


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
    """Return intervals from ratings of resampled matches.

    One player ranks above another if it is ahead in at least 97.5% of the resamples.

    Args:
        ratings: Ratings of the original matches; each interval contains its rating. Shape [N].
        resampled: Ratings of resamples, each [N]; at least one.
        tie: Difference below which two ratings are equal.
    """
    rows = []
    is_ahead = np.zeros((len(ratings), len(ratings)), dtype=np.int64)
    for row in resampled:
        rows.append(row)
        # Comparisons are counted within each resample, so that errors common to both ratings
        # cancel.
        is_ahead += row[:, None] - row[None, :] > tie
    low, high = np.quantile(np.stack(rows), [TAIL, 1.0 - TAIL], axis=0)
    is_better = is_ahead >= (1.0 - TAIL) * len(rows)
    return Intervals(
        # If resamples are biased, their percentiles may exclude the rating itself.
        lows=np.minimum(low, ratings),
        highs=np.maximum(high, ratings),
        ranks=tuple(
            (1 + int(better), len(ratings) - int(worse))
            for better, worse in zip(is_better.sum(axis=0), is_better.sum(axis=1), strict=True)
        ),
    )
