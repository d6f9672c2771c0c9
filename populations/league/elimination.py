"""Elimination of one player from what results say of many, by a normal approximation.

Near the ratings of a fit the likelihood of a pair's results is that of a normal distribution of the
difference of two strengths (Laplace's approximation): with n matches, s points, the expected score
p and the difference x there,

    w = n p (1 - p),    d = x + (s - n p) / w

So results of players far apart say next to nothing, whoever won. Taking one player out of the fit
leaves a normal distribution of the others: the star of its pairs becomes a mesh (the Schur
complement of one row of the information matrix). For neighbours i and j at w_i and w_j, with
differences d_i and d_j to the player that goes:

    w_ij = w_i w_j / sum_k w_k,    d_ij = d_j - d_i

That is kept as a result of i against j, with as many parts of matches won and lost as have this
information and this slope at the difference x_ij of their ratings: n = w_ij / (p (1 - p)) and
s = n p + w_ij (d_ij - x_ij). Only the best known neighbours are tied, so that no pair becomes too
many; the rest is forgotten, which makes ratings less sure, not wrong.

Sources: the star-mesh transform of resistor networks (Rosen, "A new network theorem", 1924), which
is Gaussian elimination of one variable; Laplace's approximation as in McCullagh and Nelder,
"Generalized Linear Models" (1989), section 2.5: d is the working response.

Tests: `tests/populations/league/test_elimination.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.results import Counts, Rated

MAX_NEIGHBOURS = 8
"""Players that one who goes ties together; each is tied to each."""

MIN_WEIGHT = 1e-3
"""Least information of a pair, a deviation of 5,500 Elo: what says less is forgotten. What is
passed on from merge to merge says ever less, and players far apart say nothing of each other."""

LINE_WEIGHT = 2.0
"""Information of a player's line about its strength: a deviation of 120 Elo."""

NEWTON_STEPS = 4


class Link(NamedTuple):
    """Knowledge of the difference of two strengths, in natural units.

    Attributes:
        weight: Information, the inverse of its variance.
        difference: Strength of the player that goes minus that of the other.
    """

    weight: float
    difference: float


class Seen(NamedTuple):
    """Results of the player that goes against another, in one pair of seats.

    Attributes:
        counts: As the player that goes sees them.
        advantage: Worth of its seat, in natural units.
    """

    counts: Counts
    advantage: float


def link_of(seen: Sequence[Seen], *, point: float, pair_deviation: float) -> Link | None:
    """Return what results say of the difference of two strengths, near where it is taken to be.

    Args:
        seen: Results of the pair.
        point: Difference by the last fit, in natural units.
        pair_deviation: Elo by which pairs deviate from their ratings.

    Returns:
        Knowledge of the difference; None: next to none.
    """
    slope, information = _slope(seen, point=point)
    if information < MIN_WEIGHT:
        return None
    variance = 1.0 / information + (pair_deviation / ELO_PER_UNIT) ** 2
    return Link(1.0 / variance, point + slope / information)


def _slope(seen: Iterable[Seen], *, point: float) -> tuple[float, float]:
    """Return slope and curvature of the log likelihood of results at a difference."""
    slope = information = 0.0
    for counts, advantage in seen:
        share = expected(point + advantage)
        slope += counts.points - counts.matches * share
        information += counts.matches * share * (1.0 - share)
    return slope, information


def expected(ahead: float) -> float:
    """Return the expected score of a player that is ahead, in natural units."""
    # Beyond it nothing changes, and nothing overflows.
    return 1.0 / (1.0 + math.exp(-min(max(ahead, -30.0), 30.0)))


def together(links: Sequence[Link]) -> Link:
    """Return what several say of one difference."""
    weight = sum(link.weight for link in links)
    return Link(weight, sum(link.weight * link.difference for link in links) / weight)


def mesh(
    star: Mapping[Rated, Link], point: Callable[[Rated], float]
) -> Iterator[tuple[Rated, Rated, float, float]]:
    """Yield the pairs of neighbours that a player ties together, with parts of matches won and
    lost.

    Args:
        star: Knowledge of the player that goes against each neighbour.
        point: Strengths of the neighbours by the last fit, in natural units.
    """
    groups: defaultdict[str, list[tuple[Rated, Link]]] = defaultdict(list)
    for rated, link in star.items():
        # Populations have scales of their own, which only matches between them tie.
        groups[rated[0]].append((rated, link))
    for known in groups.values():
        # The best known ones; of equals the first by name, whatever the order of the results.
        known.sort(key=lambda entry: (-entry[1].weight, entry[0]))
        chosen = sorted(known[:MAX_NEIGHBOURS])
        total = sum(link.weight for _, link in chosen)
        for (first, a), (second, b) in combinations(chosen, 2):
            tied = Link(a.weight * b.weight / total, b.difference - a.difference)
            if tied.weight >= MIN_WEIGHT:
                yield first, second, *parts_of(tied, point=point(first) - point(second))


def parts_of(link: Link, *, point: float) -> tuple[float, float]:
    """Return parts of matches won and lost that say what a link says, near a difference."""
    share = expected(point)
    slope = link.weight * (link.difference - point)
    # n p (1 - p) = w. Where the slope is steeper than that of n matches all won, or all lost, there
    # are as many as have it.
    matches = max(link.weight / (share * (1.0 - share)), slope / (1.0 - share), -slope / share)
    won = min(max(matches * share + slope, 0.0), matches)
    return won, matches - won


def strength_of(line: float, met: Sequence[tuple[float, Sequence[Seen]]]) -> float:
    """Return the strength of a player that goes by its results and its line, in natural units.

    Args:
        line: Strength of its line by the last fit: a fit may never have rated itself.
        met: Strength of each other player, and the results.
    """
    strength = line
    for _ in range(NEWTON_STEPS):
        slope, information = LINE_WEIGHT * (line - strength), LINE_WEIGHT
        for other, seen in met:
            more = _slope(seen, point=strength - other)
            slope, information = slope + more[0], information + more[1]
        # Far from the mode a step may be too long.
        strength += min(max(slope / information, -1.0), 1.0)
    return strength
