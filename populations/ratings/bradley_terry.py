"""Bradley-Terry ratings with draws, an advantage for each pair of seats, and priors.

For a match between i in seat a and j in seat b, with d = theta_i - theta_j + g_ab,

    P(win), P(draw), P(loss)  are proportional to  exp(d / 2), exp(eta), exp(-d / 2)

so that 400 Elo points of d are odds of 10:1 between win and loss. The log-likelihood is concave in
(theta, g, eta), and quadratic penalties (normal priors) make it strictly so: every fit has exactly
one finite answer, also where somebody always won or two groups never met.

Sources: Bradley and Terry, "Rank analysis of incomplete block designs" (Biometrika, 1952);
Davidson, "On extending the Bradley-Terry model to accommodate ties in paired comparison
experiments" (Journal of the American Statistical Association, 1970).

Few entrants are fitted exactly; many (over `populations.ratings.newton.MAX_EXACT` parameters) by
sparse matrices, with a spread from samples.

Shapes: N entrants; F of them free (no anchor); P parameters, those of the free entrants first, then
one advantage per pair of seats, then eta; M results.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic

import numpy as np

from populations.core import E, Result
from populations.ratings.newton import MAX_EXACT, make_solver, maximize
from populations.ratings.posterior import FloatArray, IntArray, Problem
from populations.ratings.results import ResultColumns, merge_columns, result_columns

ELO_PER_UNIT = 400.0 / math.log(10.0)
"""Elo points of one unit of theta."""

Z95 = 1.959963984540054
"""Half the width of a 95% interval in standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit(Generic[E]):
    """Ratings and what is known about them.

    Attributes:
        entrants: Everyone rated, in an order that does not depend on that of the results.
        ratings: Elo. float64 [N].
        spread: Elo: the ratings' covariance (Laplace's approximation) is spread @ spread.T, so a
            rating's standard deviation is the length of its row, and a difference's that of the
            difference of two rows. Rows of anchors are 0. float64 [N, K].
        advantages: By pair of seats, lower first: Elo that the first seat is worth.
        draw_log_odds: eta: log of the odds of a draw against a win between equals.
    """

    entrants: tuple[E, ...]
    ratings: FloatArray
    spread: FloatArray
    advantages: Mapping[tuple[int, int], float]
    draw_log_odds: float

    @property
    def covariance(self) -> FloatArray:
        """Of the ratings, in Elo squared. float64 [N, N]: for few entrants."""
        return self.spread @ self.spread.T

    @property
    def deviations(self) -> FloatArray:
        """Standard deviations of the ratings, in Elo. float64 [N]."""
        return np.asarray(np.linalg.norm(self.spread, axis=1), dtype=np.float64)

    def index(self, entrant: E) -> int:
        """Position of an entrant.

        Raises:
            ValueError: If it was not rated.
        """
        return self.entrants.index(entrant)

    def rating(self, entrant: E) -> float:
        """Elo."""
        return float(self.ratings[self.index(entrant)])

    def deviation(self, entrant: E) -> float:
        """Standard deviation of the rating, in Elo."""
        return float(np.linalg.norm(self.spread[self.index(entrant)]))

    def interval(self, entrant: E) -> tuple[float, float]:
        """Ends of the 95% interval, in Elo."""
        rating, half = self.rating(entrant), Z95 * self.deviation(entrant)
        return rating - half, rating + half

    def difference(self, first: E, second: E) -> tuple[float, float]:
        """Mean and standard deviation of how much better ``first`` is, in Elo."""
        i, j = self.index(first), self.index(second)
        deviation = float(np.linalg.norm(self.spread[i] - self.spread[j]))
        return float(self.ratings[i] - self.ratings[j]), deviation

    def probability_better(self, first: E, second: E) -> float:
        """Probability that ``first`` is the stronger one."""
        return probability_positive(*self.difference(first, second))


def probability_positive(mean: float, deviation: float) -> float:
    """Probability that a normal variable is above 0; 0.5 if it is 0 for certain."""
    if deviation <= 0.0:
        return 0.5 if mean == 0.0 else float(mean > 0.0)
    return 0.5 * math.erfc(-mean / (deviation * math.sqrt(2.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BradleyTerry:
    """The model with its priors; each is a normal distribution.

    Attributes:
        root_deviation: Elo, around the anchor, of an entrant without a rated parent.
        child_deviation: Elo, around its parent, of an entrant with one.
        advantage_deviation: Elo, around 0, of each advantage; weaker than one match.
        draw_deviation: Around 0, of eta; wide, because where nobody ever drew it goes far below 0.
        max_exact: Parameters up to which the fit is exact.
    """

    root_deviation: float = 1000.0
    child_deviation: float = 200.0
    advantage_deviation: float = 400.0
    draw_deviation: float = 10.0
    max_exact: int = MAX_EXACT

    def fit(
        self,
        results: Iterable[Result[E]],
        *,
        entrants: Iterable[E] = (),
        parents: Mapping[E, E] | None = None,
        anchors: Collection[E] = (),
    ) -> Fit[E]:
        """Find the ratings of highest posterior density; see `populations.core.RatingModel`.

        Entrants whose scales are apart (predators and prey) go into one fit under different names,
        each scale with its own anchor; what the game gives to one side is in the advantages.

        Raises:
            ValueError: If counts are negative or not finite, an entrant plays itself, or parents
                go round in a circle.
        """
        posterior = self.posterior(results, entrants=entrants, parents=parents, anchors=anchors)
        solver = make_solver(posterior.problem, max_exact=self.max_exact)
        parameters = maximize(posterior.problem, solver)
        return posterior.fit(parameters, solver.spread())

    def posterior(
        self,
        results: Iterable[Result[E]],
        *,
        entrants: Iterable[E] = (),
        parents: Mapping[E, E] | None = None,
        anchors: Collection[E] = (),
    ) -> Posterior[E]:
        """What `fit` maximizes."""
        columns = result_columns(results)
        lineage = dict(parents or {})
        _check_lineage(lineage)
        names = dict.fromkeys((*columns.entrants, *entrants, *lineage, *lineage.values(), *anchors))
        # repr, because entrants need not be comparable; it is the same in every process.
        ordered = tuple(sorted(names, key=repr))
        merged = merge_columns(columns, entrants=ordered)
        return _make_posterior(self, merged, parents=lineage, anchors=frozenset(anchors))


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior(Generic[E]):
    """A problem, and what its parameters stand for.

    Attributes:
        problem: Arrays only.
        entrants: All, sorted.
        free: Positions of those that are no anchors. int64 [F].
        seats: Pairs that have an advantage.
    """

    problem: Problem
    entrants: tuple[E, ...]
    free: IntArray
    seats: tuple[tuple[int, int], ...]

    def elo(self, values: FloatArray) -> FloatArray:
        """Values [P, ...] of the parameters in Elo, of every entrant [N, ...].

        Without anchors the mean over the entrants is 0.
        """
        rows = np.zeros((len(self.entrants), *values.shape[1:]))
        rows[self.free] = ELO_PER_UNIT * values[: len(self.free)]
        if 0 < len(self.free) == len(self.entrants):
            rows -= rows.mean(axis=0)
        return rows

    def fit(self, parameters: FloatArray, spread: FloatArray) -> Fit[E]:
        """What parameters [P] and their spread [P, K] say."""
        return Fit(
            entrants=self.entrants,
            ratings=self.elo(parameters),
            spread=self.elo(spread),
            advantages={
                pair: float(ELO_PER_UNIT * parameters[len(self.free) + k])
                for k, pair in enumerate(self.seats)
            },
            draw_log_odds=float(parameters[-1]),
        )


def _check_lineage(parents: Mapping[E, E]) -> None:
    settled: set[E] = set()
    for child in parents:
        line: dict[E, None] = {}
        entrant = child
        while entrant in parents and entrant not in settled:
            if entrant in line:
                raise ValueError(f"parents must not go round in a circle, {entrant!r} does")
            line[entrant] = None
            entrant = parents[entrant]
        settled.update(line)


def _make_posterior(
    model: BradleyTerry,
    results: ResultColumns[E],
    *,
    parents: Mapping[E, E],
    anchors: Collection[E],
) -> Posterior[E]:
    entrants = results.entrants
    free = np.array([i for i, entrant in enumerate(entrants) if entrant not in anchors], np.int64)
    # Seats with equal numbers have no order, so neither can have an advantage over the other.
    num_seats = 1 + int(results.seats.max(initial=0))
    codes, pair = np.unique(results.seats @ np.array([num_seats, 1]), return_inverse=True)
    pairs = np.stack(np.divmod(codes, num_seats), axis=1)
    has_order = pairs[:, 0] != pairs[:, 1]
    num_advantages = int(has_order.sum())
    size = len(free) + num_advantages + 1
    parameter = np.full(len(entrants), size)
    parameter[free] = np.arange(len(free))
    advantage = np.full(len(pairs), size)
    advantage[has_order] = len(free) + np.arange(num_advantages)

    eta = np.full(len(results), size - 1)
    rows = (parameter[results.first], parameter[results.second], advantage[pair], eta)
    mean = np.full(size, size)
    deviation = np.full(size, model.root_deviation)
    position = {entrant: i for i, entrant in enumerate(entrants)}
    for child, parent in parents.items():
        p = parameter[position[child]]
        if p < size:
            mean[p] = parameter[position[parent]]
            deviation[p] = model.child_deviation
    deviation[len(free) : -1] = model.advantage_deviation
    deviation[-1] = model.draw_deviation * ELO_PER_UNIT
    nothing = np.full(size, size)
    priors = (np.arange(size), mean, nothing, nothing)
    problem = Problem(
        num_parameters=size,
        index=np.concatenate([np.stack(rows, axis=1), np.stack(priors, axis=1)]),
        counts=results.outcomes,
        precisions=(ELO_PER_UNIT / deviation) ** 2,
    )
    seats = tuple((int(a), int(b)) for a, b in pairs[has_order])
    return Posterior(problem=problem, entrants=entrants, free=free, seats=seats)
