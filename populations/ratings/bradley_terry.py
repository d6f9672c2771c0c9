"""Bradley-Terry ratings with draws, an advantage for each pair of seats, and priors.

For a match between i in seat a and j in seat b, with d = theta_i - theta_j + g_ab,

    P(win), P(draw), P(loss)  are proportional to  exp(d / 2), exp(eta), exp(-d / 2)

so that 400 Elo points of d are odds of 10:1 between win and loss. The log-likelihood is concave in
(theta, g, eta), and quadratic penalties (normal priors) make it strictly so: every fit has exactly
one finite answer, also where somebody always won or two groups never met.

Sources: Bradley and Terry, "Rank analysis of incomplete block designs" (Biometrika, 1952);
Davidson, "On extending the Bradley-Terry model to accommodate ties in paired comparison
experiments" (Journal of the American Statistical Association, 1970).

Shapes: N entrants; F of them free (no anchor); P parameters, those of the free entrants first, then
one advantage per pair of seats, then eta; M results.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic

import numpy as np
import numpy.typing as npt

from populations.core import E, Result
from populations.ratings.results import merge_results

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ELO_PER_UNIT = 400.0 / math.log(10.0)
"""Elo points of one unit of theta."""

Z95 = 1.959963984540054
"""Half the width of a 95% interval in standard deviations."""

MAX_STEPS = 200
MAX_HALVINGS = 60
SETTLED = 1e-9
"""The step that would gain less in log-likelihood than this is the last one of Newton's method: the
error after it is of the order of its square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit(Generic[E]):
    """Ratings and what is known about them.

    Attributes:
        entrants: Everyone rated, in an order that does not depend on that of the results.
        ratings: Elo. float64 [N].
        covariance: Of the ratings, in Elo squared (Laplace's approximation); rows and columns of
            anchors are 0. float64 [N, N].
        advantages: By pair of seats, lower first: Elo that the first seat is worth.
        draw_log_odds: eta: log of the odds of a draw against a win between equals.
    """

    entrants: tuple[E, ...]
    ratings: FloatArray
    covariance: FloatArray
    advantages: Mapping[tuple[int, int], float]
    draw_log_odds: float

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
        index = self.index(entrant)
        return math.sqrt(max(float(self.covariance[index, index]), 0.0))

    def interval(self, entrant: E) -> tuple[float, float]:
        """Ends of the 95% interval, in Elo."""
        rating, half = self.rating(entrant), Z95 * self.deviation(entrant)
        return rating - half, rating + half

    def difference(self, first: E, second: E) -> tuple[float, float]:
        """Mean and standard deviation of how much better ``first`` is, in Elo."""
        i, j = self.index(first), self.index(second)
        c = self.covariance
        variance = float(c[i, i] + c[j, j] - 2.0 * c[i, j])
        return float(self.ratings[i] - self.ratings[j]), math.sqrt(max(variance, 0.0))

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
    """

    root_deviation: float = 1000.0
    child_deviation: float = 200.0
    advantage_deviation: float = 400.0
    draw_deviation: float = 10.0

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
        merged = merge_results(results)
        lineage = dict(parents or {})
        _check_lineage(lineage)
        names = {r.first: None for r in merged} | {r.second: None for r in merged}
        names |= dict.fromkeys((*entrants, *lineage, *lineage.values(), *anchors))
        ordered = tuple(sorted(names, key=repr))
        problem = _make_problem(self, merged, entrants=ordered, parents=lineage, anchors=anchors)
        parameters, covariance = _maximize(problem)
        return _read_off(
            problem, parameters, covariance, entrants=ordered, is_anchored=bool(anchors)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """The posterior as arrays. An index of -1 stands for an anchor: the constant 0.

    ``precision`` [P, P] and zero means are the priors, in units of theta. ``design`` [M, 3] holds
    the parameter indices of i, j and g_ab; ``counts`` [M, 3] wins, draws and losses.
    """

    free: IntArray
    seats: tuple[tuple[int, int], ...]
    design: IntArray
    counts: FloatArray
    precision: FloatArray


def _check_lineage(parents: Mapping[E, E]) -> None:
    settled: set[E] = set()
    for child in parents:
        line: list[E] = []
        entrant = child
        while entrant in parents and entrant not in settled:
            if entrant in line:
                raise ValueError(f"parents must not go round in a circle, {entrant!r} does")
            line.append(entrant)
            entrant = parents[entrant]
        settled.update(line)


def _make_problem(
    model: BradleyTerry,
    results: tuple[Result[E], ...],
    *,
    entrants: tuple[E, ...],
    parents: Mapping[E, E],
    anchors: Collection[E],
) -> _Problem:
    free = [i for i, entrant in enumerate(entrants) if entrant not in anchors]
    parameter = {entrants[i]: p for p, i in enumerate(free)}
    # Seats with equal numbers have no order, so neither can have an advantage over the other.
    seats = tuple(sorted({r.seats for r in results if r.seats[0] != r.seats[1]}))
    advantage = {pair: len(free) + k for k, pair in enumerate(seats)}
    size = len(free) + len(seats) + 1
    precision = np.zeros((size, size))
    for entrant, p in parameter.items():
        is_root = entrant not in parents
        deviation = model.root_deviation if is_root else model.child_deviation
        weight = (ELO_PER_UNIT / deviation) ** 2
        precision[p, p] += weight
        parent = -1 if is_root else parameter.get(parents[entrant], -1)
        if parent >= 0:
            precision[parent, parent] += weight
            precision[p, parent] -= weight
            precision[parent, p] -= weight
    for p in advantage.values():
        precision[p, p] = (ELO_PER_UNIT / model.advantage_deviation) ** 2
    precision[-1, -1] = model.draw_deviation**-2.0
    design = [
        (parameter.get(r.first, -1), parameter.get(r.second, -1), advantage.get(r.seats, -1))
        for r in results
    ]
    return _Problem(
        free=np.array(free, dtype=np.int64),
        seats=seats,
        design=np.array(design, dtype=np.int64).reshape(-1, 3),
        counts=np.array([(r.wins, r.draws, r.losses) for r in results]).reshape(-1, 3),
        precision=precision,
    )


def _maximize(problem: _Problem) -> tuple[FloatArray, FloatArray]:
    """Newton's method with a line search. Returns parameters [P] and their covariance [P, P]."""
    parameters = np.zeros(len(problem.precision))
    value, gradient, information = _posterior(problem, parameters)
    for _ in range(MAX_STEPS):
        step = np.linalg.solve(information, gradient)
        decrement = float(gradient @ step)
        if decrement < SETTLED:
            parameters = parameters + step
            _, _, information = _posterior(problem, parameters)
            break
        for halvings in range(MAX_HALVINGS):
            scale = 0.5**halvings
            proposal = parameters + scale * step
            proposed = _posterior(problem, proposal)
            if proposed[0] >= value + 1e-4 * scale * decrement:
                break
        parameters = proposal
        value, gradient, information = proposed
    return parameters, np.asarray(np.linalg.inv(information), dtype=np.float64)


def _posterior(problem: _Problem, parameters: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Log density up to a constant, its gradient [P], and its negated Hessian [P, P]."""
    design, counts = problem.design, problem.counts
    padded = np.append(parameters, 0.0)  # index -1: the anchor
    eta = parameters[-1]
    half = 0.5 * (padded[design[:, 0]] - padded[design[:, 1]] + padded[design[:, 2]])
    logits = np.stack([half, np.full_like(half, eta), -half], axis=1)
    log_probabilities = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    win, draw, loss = np.exp(log_probabilities).T
    matches = counts.sum(axis=1)

    # Sufficient statistics: s = wins - losses for d / 2, the number of draws for eta.
    surplus = 0.5 * (counts[:, 0] - counts[:, 2] - matches * (win - loss))
    lift = counts[:, 1] - matches * draw
    pull = problem.precision @ parameters
    value = float((counts * log_probabilities).sum() - 0.5 * parameters @ pull)
    variance = 0.25 * matches * (win + loss - (win - loss) ** 2)
    cross = -0.5 * matches * (win - loss) * draw

    size = len(parameters)
    gradient = np.zeros(size + 1)
    hessian = np.zeros((size + 1, size + 1))
    signs = (1.0, -1.0, 1.0)
    eta_index = np.full(len(design), size - 1)
    for row, row_sign in enumerate(signs):
        np.add.at(gradient, design[:, row], row_sign * surplus)
        np.add.at(hessian, (design[:, row], eta_index), row_sign * cross)
        for column, column_sign in enumerate(signs):
            indices = (design[:, row], design[:, column])
            np.add.at(hessian, indices, row_sign * column_sign * variance)
    hessian[size - 1, :] = hessian[:, size - 1]
    hessian[size - 1, size - 1] = float((matches * draw * (1.0 - draw)).sum())
    gradient[size - 1] = float(lift.sum())
    return value, gradient[:size] - pull, hessian[:size, :size] + problem.precision


def _read_off(
    problem: _Problem,
    parameters: FloatArray,
    covariance: FloatArray,
    *,
    entrants: tuple[E, ...],
    is_anchored: bool,
) -> Fit[E]:
    num_free, size = len(problem.free), len(entrants)
    ratings = np.zeros(size)
    ratings[problem.free] = parameters[:num_free]
    spread = np.zeros((size, size))
    spread[np.ix_(problem.free, problem.free)] = covariance[:num_free, :num_free]
    if not is_anchored and size > 0:
        centre = np.eye(size) - 1.0 / size
        ratings = centre @ ratings
        spread = centre @ spread @ centre
    return Fit(
        entrants=entrants,
        ratings=ELO_PER_UNIT * ratings,
        covariance=ELO_PER_UNIT**2 * spread,
        advantages={
            pair: float(ELO_PER_UNIT * parameters[num_free + k])
            for k, pair in enumerate(problem.seats)
        },
        draw_log_odds=float(parameters[-1]),
    )
