"""PB2, a rule of exploring: a bandit on a Gaussian process that changes with time.

Source: Parker-Holder et al., "Provably efficient online hyperparameter optimization with
population-based bandits" (2020), algorithms 1 and 2. Each finished generation is a row: when it
began, from which rating, with which hyperparameters, and how fast the rating rose. New
hyperparameters are those with the highest upper bound mean + sqrt(beta) * deviation.

Shapes: N rows of data, M points of a query, H hyperparameters in the search space. x is the rating
at the beginning, scaled to [0, 1], and the hyperparameters in the unit cube; t counts generations
of median length. Choices and integers are searched as if they were continuous and then rounded to
the nearest valid value (choices lie at equal distances, in the order given); the paper does not
say how to treat them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from arena.types import Hyperparameters
from populations.core import Exploration, SearchSpace
from populations.pbt.explore import Perturb, PerturbSettings
from populations.pbt.gaussian_process import MIN_NOISE, FloatArray, Posterior, fit_kernel
from populations.pbt.generations import Improvement, finished, running
from populations.pbt.model_based import with_reason
from populations.records.rows import GenerationRow
from populations.rule_kinds import RuleKind
from populations.search_space import Dimension, parse_search_space

MAX_ROWS = 1000
MIN_GENERATIONS = 4
NUM_RANDOM_STARTS = 256
NUM_SEARCHES = 5
BETA = (0.2, 0.4)
"""Constants a, b of beta = a + max(0, log(b N)), as in the authors' experiments."""

STEP = 1e-6
"""Step of the difference quotients that approximate gradients, in the unit cube."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pb2:
    """Rule that fits the bandit to all finished generations at each decision. Keeps no state.

    Running generations count as if their result were the mean: they reduce the deviation near
    their points but not the mean, so that consecutive decisions get different points.

    Attributes:
        fallback: Settings of ``perturb``, which is used while finished generations are too few.
        min_generations: Required number of finished generations.
    """

    fallback: PerturbSettings
    min_generations: int = MIN_GENERATIONS

    def explore(
        self,
        hyperparameters: Hyperparameters,
        search_space: SearchSpace,
        *,
        history: Sequence[GenerationRow] = (),
        agent_steps: int = 0,
        rng: np.random.Generator,
    ) -> Exploration:
        """Return the hyperparameters with the highest upper bound."""
        dimensions = parse_search_space(search_space, start=hyperparameters)
        known = finished(history, names=list(dimensions))[-MAX_ROWS:]
        if len(known) < self.min_generations or not dimensions:
            perturbed = Perturb(self.fallback).explore(
                hyperparameters, search_space, history=history, rng=rng
            )
            reason = f"pb2 has {len(known)} of {self.min_generations} generations"
            return with_reason(perturbed, reason)
        # Time and rating are fixed, so the search is over the hyperparameters alone.
        rating = _rating_now(hyperparameters, history, known)
        pending = running(history, names=list(dimensions))
        upper_bound, places = _make_bound(
            known, pending, dimensions, rating=rating, agent_steps=agent_steps
        )
        best = _highest(upper_bound, places, rng=rng)
        new, moves = dict(hyperparameters), dict[str, str]()
        for position, (name, dimension) in zip(best, dimensions.items(), strict=True):
            new[name] = dimension.from_unit(float(position))
            moves[name] = "kept" if new[name] == hyperparameters.get(name) else "pb2"
        return Exploration(old=dict(hyperparameters), new=new, moves=moves)


def _highest(
    upper_bound: Callable[[FloatArray], FloatArray], places: FloatArray, *, rng: np.random.Generator
) -> FloatArray:
    """Search the unit cube for the point with the highest upper bound. Shape [H].

    Args:
        upper_bound: Function from points [M, H] to their upper bounds [M].
        places: Points of the known rows, from which searches start, too. Shape [N, H].
        rng: Generator that draws the other starts.
    """
    from scipy.optimize import minimize

    def loss(point: FloatArray) -> tuple[float, FloatArray]:
        # One call computes all forward differences; at the upper bound steps go inwards.
        steps = np.where(point + STEP > 1.0, -STEP, STEP)
        values = -upper_bound(np.vstack([point, point + np.diag(steps)]))
        return float(values[0]), (values[1:] - values[0]) / steps

    starts = np.vstack([rng.random((NUM_RANDOM_STARTS, places.shape[1])), places])
    # Local searches run only from the best starts; the sort is stable, so results repeat.
    best = starts[np.argsort(-upper_bound(starts), kind="stable")[:NUM_SEARCHES]]
    found = [
        minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * len(start)).x
        for start in best
    ]
    # The starts are candidates, too, because a search can end below its start.
    points = np.clip(np.vstack([best, *found]), 0.0, 1.0)
    return np.asarray(points[int(np.argmax(upper_bound(points)))], dtype=np.float64)


def _make_bound(
    known: Sequence[Improvement],
    pending: Sequence[GenerationRow],
    dimensions: Mapping[str, Dimension],
    *,
    rating: float,
    agent_steps: int,
) -> tuple[Callable[[FloatArray], FloatArray], FloatArray]:
    """Return the upper bound as a function of hyperparameters, and the known rows' points [N, H].

    Args:
        known: Finished generations, which determine the mean.
        pending: Running generations, which with the finished ones determine the variance.
        dimensions: Hyperparameters of the search space.
        rating: Elo with which the new generation begins.
        agent_steps: Agent steps at which the new generation begins.
    """
    interval = float(np.median([one.num_steps for one in known]))
    ratings = np.array([one.rating_begin for one in known])
    # If all ratings are equal, a span of 1 avoids a division by 0.
    lowest, span = float(ratings.min()), float(np.ptp(ratings)) or 1.0

    def x_of(rows: Sequence[GenerationRow], begins: FloatArray) -> FloatArray:
        cube = [
            [dimension.to_unit(row.hyperparameters[name]) for name, dimension in dimensions.items()]
            for row in rows
        ]
        # Ratings of running generations may be outside the range of the finished ones.
        scaled = np.clip((begins - lowest) / span, 0.0, 1.0)
        return np.column_stack([scaled, np.array(cube)])

    def t_of(rows: Sequence[GenerationRow]) -> FloatArray:
        return np.array([row.agent_steps_begin / interval for row in rows])

    rows = [one.row for one in known]
    x, t = x_of(rows, ratings), t_of(rows)
    y, noise = _standardized(known)
    kernel = fit_kernel(x, t, y, noise=noise)
    told = fantasised = Posterior.of(kernel, x, t, y, noise=noise)
    if pending:
        # A generation that began unrated gets the median rating of the others.
        middle = float(np.median(ratings))
        begins = np.array([_finite_or(row.rating_begin, middle) for row in pending])
        all_x = np.vstack([x, x_of(pending, begins)])
        all_t = np.concatenate([t, t_of(pending)])
        # The variance does not depend on y, so zeros serve as values of all rows. The noise of a
        # running generation is unknown before its end, so it gets the median.
        nothing, usual = np.zeros(len(all_t)), np.full(len(pending), np.median(noise))
        all_noise = np.concatenate([noise, usual])
        fantasised = Posterior.of(kernel, all_x, all_t, nothing, noise=all_noise)
    beta = BETA[0] + max(0.0, math.log(BETA[1] * len(known)))
    # The rating is clipped to the known range: the point of a policy that is better than all before
    # would otherwise be far from all data, and no past generation would count for it.
    begin = min(max((rating - lowest) / span, 0.0), 1.0)

    def upper_bound(points: FloatArray) -> FloatArray:
        x = np.column_stack([np.full(len(points), begin), points])
        t = np.full(len(points), agent_steps / interval)
        return told.mean(x, t) + math.sqrt(beta) * np.sqrt(fantasised.variance(x, t))

    return upper_bound, x[:, 1:]


def _standardized(known: Sequence[Improvement]) -> tuple[FloatArray, FloatArray]:
    """Return measured rates with mean 0, and the variances of their noise. Shape [N] each.

    The unit of variance is that of the true rates, tau^2; if it is 0, that of the noise.
    """
    measured = np.array([one.measured for one in known])
    believed = np.array([one.rate for one in known])
    variances = np.array([one.deviation for one in known]) ** 2
    reliability = np.array([one.reliability for one in known])
    # Every row gives the same tau^2 = s^2 k / (1 - k).
    best = int(np.argmax(reliability))
    k = float(reliability[best])
    scale = float(variances[best]) * (k / (1.0 - k) if 0.0 < k < 1.0 else 1.0)
    # Without any noise the unit is the variance of the rates themselves.
    scale = scale or float(np.var(believed)) or 1.0
    return (measured - believed.mean()) / math.sqrt(scale), np.maximum(variances / scale, MIN_NOISE)


def _rating_now(
    hyperparameters: Hyperparameters,
    history: Sequence[GenerationRow],
    known: Sequence[Improvement],
) -> float:
    """Return the rating with which the new generation begins, as far as the history shows it.

    The newest generation with exactly these hyperparameters is the policy's own, or its donor's.
    """
    for row in reversed(history):
        if dict(row.hyperparameters) == dict(hyperparameters):
            rating = row.rating_end if row.rating_end is not None else row.rating_begin
            if rating is not None and math.isfinite(rating):
                return rating
    newest = known[-1].row.rating_end
    assert newest is not None
    return newest


def _finite_or(number: float | None, otherwise: float) -> float:
    return number if number is not None and math.isfinite(number) else otherwise


KIND = RuleKind(
    name="pb2",
    settings=PerturbSettings,
    make=lambda settings: Pb2(fallback=settings),
)
