"""What ratings do not say by themselves: how sure the ranks are, and how cyclic the game is.

Source of the split: Jiang, Lim, Yao and Ye, "Statistical ranking and combinatorial Hodge theory"
(Mathematical Programming, 2011); used on agents by Balduzzi et al., "Re-evaluating evaluation"
(NeurIPS, 2018).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.fitting.posterior import FloatArray, IntArray, logistic
from populations.ratings.model import Z95, E, Fit, Result
from populations.ratings.results import ResultColumns, result_columns

Z95_ONE_SIDED = 1.6448536269514722


def rank_intervals(ratings: FloatArray, *, covariance: FloatArray) -> list[tuple[int, int]]:
    """Best and worst rank that each entrant may have; 1 is the best.

    A pair is ordered where the 95% interval of its difference leaves out 0. Two intervals against
    the anchor would overlap more often than they should, because their errors go together.

    Args:
        ratings: Elo. Shape [N].
        covariance: Elo squared. Shape [N, N].
    """
    variance = np.diag(covariance)
    deviation = np.sqrt(np.maximum(variance[:, None] + variance[None, :] - 2.0 * covariance, 0.0))
    is_better = ratings[:, None] - ratings[None, :] > Z95 * deviation
    num_better = is_better.sum(axis=0)
    num_worse = is_better.sum(axis=1)
    return [
        (1 + int(better), len(ratings) - int(worse))
        for better, worse in zip(num_better, num_worse, strict=True)
    ]


def measured_cyclicity(fit: Fit[E], results: Iterable[Result[E]]) -> float:
    """Share of what was seen between players that no rating can express, beyond sampling noise.

    For a pair p with n_p matches, let R_p be the score that the first one won minus the score that
    the fit promises, Z_p the same against equal ratings, and V_p the variance that the fit gives to
    R_p. Then ``rest`` is the sum of R_p^2 / n_p, ``total`` that of Z_p^2 / n_p, and the answer is

        max(0, rest - noise) / total,

    where ``noise`` is what sampling alone stays below in 95 of 100 leagues: the 95% quantile of a
    sum of V_p / n_p times independent chi-squared variables, by Satterthwaite's and Wilson and
    Hilferty's approximations. So it reads low where little is known, never high. Scores, not
    log-odds, because a pair in which one always won has no log-odds to speak of.

    Args:
        fit: Has rated everybody in ``results``.
        results: Those that the figure is about.

    Returns:
        In [0, 1]; 0 where nothing is known.
    """
    columns = result_columns(results)
    first, second, ahead, advantage = log_odds(fit, columns)
    matches, score = columns.matches, columns.scores
    expected, information = logistic(ahead)
    even, _ = logistic(advantage)

    sign = np.where(first < second, 1.0, -1.0)
    key = np.minimum(first, second) * len(fit.entrants) + np.maximum(first, second)
    _, pair = np.unique(key, return_inverse=True)

    def by_pair(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(pair, values), dtype=np.float64)

    met = by_pair(matches)
    known = met > 0.0
    if not known.any():
        return 0.0
    met = met[known]
    rest = by_pair(sign * (score - matches * expected))[known] ** 2 / met
    total = by_pair(sign * (score - matches * even))[known] ** 2 / met
    chance = np.maximum(matches * information - (score - columns.squares), 0.0)
    noise = _noise_quantile(by_pair(chance)[known] / met)
    if total.sum() <= 0.0:
        return 0.0
    return float(np.clip((rest.sum() - noise) / total.sum(), 0.0, 1.0))


def log_odds(
    fit: Fit[E], columns: ResultColumns[E]
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Positions of first and second [M]; log-odds by the fit [M], and of the seats alone [M]."""
    position = {entrant: i for i, entrant in enumerate(fit.entrants)}
    renamed = np.array([position[entrant] for entrant in columns.entrants], dtype=np.int64)
    first, second = renamed[columns.first], renamed[columns.second]
    theta = fit.ratings / ELO_PER_UNIT
    num_seats = 1 + int(columns.seats.max(initial=0))
    advantages = advantage_table(fit, num_seats=num_seats) / ELO_PER_UNIT
    advantage = advantages[columns.seats[:, 0], columns.seats[:, 1]]
    return first, second, theta[first] - theta[second] + advantage, advantage


def advantage_table(fit: Fit[E], *, num_seats: int) -> FloatArray:
    """Elo that each seat is worth against each other one. float64 [seats, seats]."""
    advantages = np.zeros((num_seats, num_seats))
    for (a, b), value in fit.advantages.items():
        if max(a, b) < num_seats:
            advantages[a, b], advantages[b, a] = value, -value
    return advantages


def _noise_quantile(scales: FloatArray) -> float:
    """95% quantile of a sum of chi-squared variables of one degree of freedom, times ``scales``."""
    mean, square = float(scales.sum()), float((scales**2).sum())
    if mean <= 0.0 or square <= 0.0:
        return 0.0
    freedom = mean**2 / square
    spread = 2.0 / (9.0 * freedom)
    return float(mean * (1.0 - spread + Z95_ONE_SIDED * np.sqrt(spread)) ** 3)
