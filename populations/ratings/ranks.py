"""Intervals of ranks, ratings without an upper bound, and cyclicity.

Source of the split: Jiang, Lim, Yao and Ye, "Statistical ranking and combinatorial Hodge theory"
(Mathematical Programming, 2011); used on agents by Balduzzi et al., "Re-evaluating evaluation"
(NeurIPS, 2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from statistics import NormalDist

import numpy as np

from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.fitting.posterior import BoolArray, FloatArray, IntArray, logistic
from populations.ratings.model import E, Fit, Result
from populations.ratings.results import ResultColumns, result_columns

Z95_ONE_SIDED = 1.6448536269514722
MAX_ENTRIES = 1_000_000
"""Maximum number of differences of entrants in memory at once."""

CONTENDING = 400.0
"""Distance from the best, in Elo, within which players count in the cyclicity: 1 win of 11."""


def rank_intervals(
    ratings: FloatArray, *, spread: FloatArray, is_ranked: BoolArray | None = None
) -> list[tuple[int, int]]:
    """Return the best and worst rank that each entrant may have; 1 is the best.

    An entrant's interval contains its rank with a confidence of 95%. Another entrant counts as
    better or worse if their difference exceeds a bound within which all errors of the entrant's
    differences stay at once in 95% of cases. Intervals of two ratings overlap more often than that,
    because entrants share errors against the anchor. The answer is conservative, because Sidak's
    bound holds for any correlation of the differences.

    Source: Mogstad, Romano, Shaikh and Wilhelm, "Inference for ranks" (Review of Economic Studies,
    2024), the marginal confidence set; Sidak, "Rectangular confidence regions" (JASA, 1967).

    Args:
        ratings: Ratings in Elo. Shape [N].
        spread: Spread in Elo, with covariance S @ S.T. Shape [N, K].
        is_ranked: Whether an entrant takes a rank; one that does not gets the ranks that it would
            have. Shape [N]. None: all entrants take a rank.
    """
    size = len(ratings)
    takes_rank = np.ones(size, dtype=bool) if is_ranked is None else is_ranked
    num_rivals = takes_rank.sum() - takes_rank.astype(np.int64)
    z = np.array([_z95_of_all(int(number)) for number in num_rivals])
    variance = np.einsum("nk,nk->n", spread, spread)
    found: list[tuple[int, int]] = []
    step = max(MAX_ENTRIES // max(size, 1), 1)
    for begin in range(0, size, step):
        rows = slice(begin, begin + step)
        # Var(i - j) = V_ii + V_jj - 2 V_ij, in which errors common to both cancel.
        shared = spread[rows] @ spread.T
        squares = variance[rows, None] + variance[None, :] - 2.0 * shared
        bound = z[rows, None] * np.sqrt(np.maximum(squares, 0.0))
        ahead = ratings[None, :] - ratings[rows, None]
        num_better = (ahead > bound)[:, takes_rank].sum(axis=1)
        num_worse = (-ahead > bound)[:, takes_rank].sum(axis=1)
        lowest = 1 + num_better
        highest = 1 + num_rivals[rows] - num_worse
        found += zip(lowest.tolist(), highest.tolist(), strict=True)
    return found


def _z95_of_all(number: int) -> float:
    """Return z such that ``number`` normal variables all stay within z in 95% of cases (Sidak)."""
    # P(all |T_k| <= z) >= prod P(|T_k| <= z) = 0.95
    each = 0.95 ** (1.0 / max(number, 1))
    return NormalDist().inv_cdf(0.5 + 0.5 * each)


def measured_cyclicity(
    fit: Fit[E], results: Iterable[Result[E]], *, scale_of: Callable[[E], object] = lambda _: None
) -> float:
    """Return the share of the results of strong players that no rating can express, beyond noise.

    Strong players are less than `CONTENDING` behind the best one. Against weak players skill
    decides, which would hide a cycle among the strong. For a pair p with n_p matches, R_p is the
    first player's score minus the score that the fit expects, Z_p its score minus the score of
    equal ratings, and V_p the variance of R_p by the fit. With ``rest`` the sum of R_p^2 / n_p and
    ``total`` that of Z_p^2 / n_p, the answer is

        max(0, rest - noise) / total,

    where ``noise`` is what sampling alone stays below in 95 of 100 leagues: the 95% quantile of a
    sum of V_p / n_p times independent chi-squared variables, by Satterthwaite's and Wilson and
    Hilferty's approximations. So the answer is low, never high, if little is known. It is
    computed from scores, because log-odds of a pair in which one always won are meaningless.

    Args:
        fit: Ratings of all entrants in ``results``.
        results: Results in which cyclicity is measured.
        scale_of: Function from an entrant to its scale; each scale has its own best player.

    Returns:
        Share in [0, 1]; 0 if nothing is known.
    """
    columns = result_columns(results)
    first, second, ahead, advantage = log_odds(fit, columns)
    is_strong = _are_strong(fit, scale_of)
    counts = is_strong[first] & is_strong[second]
    columns, first, second = columns.where(counts), first[counts], second[counts]
    ahead, advantage = ahead[counts], advantage[counts]
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
    # V = n p (1 - p) - sum s (1 - s), as draws and margins scatter less than wins and losses.
    chance = np.maximum(matches * information - (score - columns.squares), 0.0)
    noise = _noise_quantile(by_pair(chance)[known] / met)
    if total.sum() <= 0.0:
        return 0.0
    return float(np.clip((rest.sum() - noise) / total.sum(), 0.0, 1.0))


def _are_strong(fit: Fit[E], scale_of: Callable[[E], object]) -> BoolArray:
    """Return whether each entrant is less than `CONTENDING` behind the best of its scale. [N]."""
    scales = [scale_of(entrant) for entrant in fit.entrants]
    best: dict[object, float] = {}
    for scale, rating in zip(scales, fit.ratings.tolist(), strict=True):
        best[scale] = max(rating, best.get(scale, -math.inf))
    return fit.ratings > np.array([best[scale] for scale in scales]) - CONTENDING


def log_odds(
    fit: Fit[E], columns: ResultColumns[E]
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Return both players' positions, their log-odds, and log-odds of seats alone [M] each."""
    position = {entrant: i for i, entrant in enumerate(fit.entrants)}
    renamed = np.array([position[entrant] for entrant in columns.entrants], dtype=np.int64)
    first, second = renamed[columns.first], renamed[columns.second]
    theta = fit.ratings / ELO_PER_UNIT
    num_seats = 1 + int(columns.seats.max(initial=0))
    advantages = advantage_table(fit, num_seats=num_seats) / ELO_PER_UNIT
    advantage = advantages[columns.seats[:, 0], columns.seats[:, 1]]
    return first, second, theta[first] - theta[second] + advantage, advantage


def advantage_table(fit: Fit[E], *, num_seats: int) -> FloatArray:
    """Return the Elo that each seat is worth against each other one. float64 [seats, seats]."""
    advantages = np.zeros((num_seats, num_seats))
    for (a, b), value in fit.advantages.items():
        if max(a, b) < num_seats:
            advantages[a, b], advantages[b, a] = value, -value
    return advantages


def _noise_quantile(scales: FloatArray) -> float:
    """Return the 95% quantile of a sum of ``scales`` times chi-squared variables of one degree."""
    mean, square = float(scales.sum()), float((scales**2).sum())
    if mean <= 0.0 or square <= 0.0:
        return 0.0
    # Satterthwaite replaces the sum by a scaled chi-squared variable of equal mean and variance.
    freedom = mean**2 / square
    # Wilson and Hilferty: (X / k)^(1/3) is nearly normal with mean 1 - 2 / 9k and variance 2 / 9k.
    spread = 2.0 / (9.0 * freedom)
    return float(mean * (1.0 - spread + Z95_ONE_SIDED * np.sqrt(spread)) ** 3)


def open_above(
    results: ResultColumns[E], *, links: ResultColumns[E], anchors: Collection[E]
) -> frozenset[E]:
    """Return the entrants whose results have no upper bound.

    An entrant has an upper bound if a path of lost points leads to an anchor: it lost points to a
    second player, that player lost points to a third, and so on. An entrant without such a path can
    be any distance above the others; only priors keep its rating finite. If no anchor has played,
    the answer is empty, because there is no scale.

    Args:
        results: Results of matches.
        links: Links between entrants (`populations.league.merging`), which bound both of them.
        anchors: Entrants whose rating is fixed at 0.

    Source: Ford, "Solution of a ranking problem from binary comparisons" (American Mathematical
    Monthly, 1957).
    """
    names = tuple(dict.fromkeys((*results.entrants, *links.entrants)))
    position = {name: i for i, name in enumerate(names)}
    is_bound = np.array([name in anchors for name in names], dtype=bool)
    own, tied = _places(results, position), _places(links, position)
    lost, won = results.matches - results.scores > 0.0, results.scores > 0.0
    # An edge leads from the loser of points to their winner; a link counts in both directions.
    loser = np.concatenate([own[lost, 0], own[won, 1], tied[:, 0], tied[:, 1]])
    winner = np.concatenate([own[lost, 1], own[won, 0], tied[:, 1], tied[:, 0]])
    played = np.unique(np.concatenate([loser, winner]))
    if not is_bound[played].any():
        return frozenset()
    num_before = 0
    # Each round extends the paths by one match, away from the anchors.
    while (num_bound := int(is_bound.sum())) > num_before:
        num_before = num_bound
        is_bound[loser[is_bound[winner]]] = True
    return frozenset(names[i] for i in played.tolist() if not is_bound[i])


def _places(columns: ResultColumns[E], position: dict[E, int]) -> IntArray:
    """Return the positions of first and second player of each row. int64 [M, 2]."""
    of = np.array([position[name] for name in columns.entrants], dtype=np.int64)
    return np.stack([of[columns.first], of[columns.second]], axis=1)
