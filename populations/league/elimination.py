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

Each player that goes has few results, and maximum likelihood puts strengths too far from those of
its opponents then; a fit takes that back by Firth's correction, which therefore is part of d_i, for
the share of the player that goes: half a match more on each side for each w_i / sum_k w_k. Where
there are two populations, each is tied by itself, as if the player that goes were another one for
it, and the sum is over that population's players.

That is kept as it is, a normal distribution of a difference, and the next fit takes it so
(`populations.ratings.bradley_terry`): made results of matches again, it would change with the
ratings, and be approximated anew when one of the two goes, which adds up from merge to merge.

Only the bots and the best known of the other neighbours are tied, so that no pair becomes too
many; the rest is forgotten, which makes ratings less sure, not wrong. Bots are never forgotten,
however little is known of them: they are the zero of the scale, and its distance is known through
all who are gone. Without that nothing is left but that they always lose.

Sources: the star-mesh transform of resistor networks (Rosen, "A new network theorem", 1924), which
is Gaussian elimination of one variable; Laplace's approximation as in McCullagh and Nelder,
"Generalized Linear Models" (1989), section 2.5: d is the working response.
Firth, "Bias reduction of maximum likelihood estimates" (Biometrika, 1993); Neyman and Scott,
"Consistent estimates based on partially consistent observations" (Econometrica, 1948).

Tests: `tests/populations/league/test_mixture.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from arena.types import is_external
from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.results import Counts, Rated

MAX_NEIGHBOURS = 8
"""Players beside the bots that one who goes ties together; each is tied to each."""

MIN_WEIGHT = 1e-3
"""Least information of a pair, a deviation of 5,500 Elo: what says less is forgotten. What is
passed on from merge to merge says ever less, and players far apart say nothing of each other."""

LINE_WEIGHT = 2.0
"""Information of a player's line about its strength: a deviation of 120 Elo."""

NEWTON_STEPS = 4


class Link(NamedTuple):
    """Knowledge of the difference of two strengths, in natural units: a normal distribution.

    Attributes:
        weight: Information, the inverse of its variance; above 0.
        difference: Strength of the player that goes minus that of the other.
    """

    weight: float
    difference: float

    @classmethod
    def from_counts(cls, counts: Counts) -> Link:
        """Return the link that matches between equals stand for."""
        weight = 0.25 * counts.matches
        return cls(weight, (counts.points - 0.5 * counts.matches) / weight)

    def counts(self) -> Counts:
        """Return as many matches between equals as have its information; links add up by them.

        Points may be fewer than 0 or more than the matches, for no match is meant.
        """
        # n p (1 - p) = w at p = 1/2, and s = n p + w d
        half = 2.0 * self.weight
        points = half + self.weight * self.difference
        return Counts(half, 0.0, half, points=points, squares=points)

    def turned(self) -> Link:
        """Return the same, seen from the other one."""
        return Link(self.weight, -self.difference)


Seen = tuple[Counts, float]
"""Results of the player that goes against another, in one pair of seats: as it sees them, and what
its seat is worth, in natural units."""


def link_of(
    seen: Sequence[Seen], *, point: float, pair_deviation: float, known: float
) -> Link | None:
    """Return what results say of the difference of two strengths, near where it is taken to be.

    Args:
        seen: Results of the pair.
        point: Difference by the last fit, in natural units.
        pair_deviation: Elo by which pairs deviate from their ratings.
        known: Information of all results and links of the player that goes.

    Returns:
        Knowledge of the difference; None: next to none.
    """
    slope, information = _slope(seen, point=point, known=known)
    if information < MIN_WEIGHT:
        return None
    variance = 1.0 / information + (pair_deviation / ELO_PER_UNIT) ** 2
    return Link(1.0 / variance, point + slope / information)


def _slope(seen: Iterable[Seen], *, point: float, known: float = math.inf) -> tuple[float, float]:
    """Return slope and curvature of the log likelihood of results at a difference.

    Args:
        seen: Results of the pair.
        point: The difference, in natural units.
        known: Information that Firth's correction is by; infinite: none.
    """
    slope = information = 0.0
    for counts, advantage in seen:
        share = expected(point + advantage)
        told = counts.matches * share * (1.0 - share)
        # h matches more, half of them won, for the leverage h = n p (1 - p) / sum of all
        slope += counts.points - counts.matches * share + told / known * (0.5 - share)
        information += told
    return slope, information


def known_of(
    strength: float,
    met: Iterable[tuple[float, Iterable[Seen]]],
    tied: Iterable[tuple[float, Link]] = (),
) -> float:
    """Return the information of all results and links of a player.

    Args:
        strength: Its strength, in natural units.
        met: Strength of each other player, and the results.
        tied: Strength of others, and what else is known of the difference.
    """
    played = sum(_slope(seen, point=strength - other)[1] for other, seen in met)
    return played + sum(link.weight for _, link in tied)


def expected(ahead: float) -> float:
    """Return the expected score of a player that is ahead, in natural units."""
    # Nothing changes beyond this distance, and nothing overflows.
    return 1.0 / (1.0 + math.exp(-min(max(ahead, -30.0), 30.0)))


def together(links: Sequence[Link]) -> Link:
    """Return what several say of one difference."""
    weight = sum(link.weight for link in links)
    return Link(weight, sum(link.weight * link.difference for link in links) / weight)


def mesh(star: Mapping[Rated, Link]) -> Iterator[tuple[Rated, Rated, Link]]:
    """Yield the pairs of neighbours that a player ties together.

    Args:
        star: Knowledge of the player that goes against each neighbour.
    """
    groups: defaultdict[str, list[tuple[Rated, Link]]] = defaultdict(list)
    for rated, link in star.items():
        # Populations have scales of their own, which only matches between them tie.
        groups[rated[0]].append((rated, link))
    for known in groups.values():
        # The best known ones; of equals the first by name, whatever the order of the results.
        known.sort(key=lambda entry: (-entry[1].weight, entry[0]))
        external = [entry for entry in known if is_external(entry[0][1])]
        others = [entry for entry in known if not is_external(entry[0][1])]
        chosen = sorted(external + others[:MAX_NEIGHBOURS])
        total = sum(link.weight for _, link in chosen)
        for (first, a), (second, b) in combinations(chosen, 2):
            tied = Link(a.weight * b.weight / total, b.difference - a.difference)
            if tied.weight >= MIN_WEIGHT or is_external(first[1]) or is_external(second[1]):
                yield first, second, tied


def strength_of(
    line: float,
    met: Sequence[tuple[float, Sequence[Seen]]],
    tied: Sequence[tuple[float, Link]] = (),
    *,
    line_weight: float = LINE_WEIGHT,
) -> float:
    """Return the strength of a player that goes by its results and its line, in natural units.

    Args:
        line: Strength of its line by the last fit: a fit may never have rated itself.
        met: Strength of each other player, and the results.
        tied: Strength of others, and what else is known of the difference.
        line_weight: Information of its line about it.
    """
    strength = line
    for _ in range(NEWTON_STEPS):
        slope, information = line_weight * (line - strength), line_weight
        for other, seen in met:
            more = _slope(seen, point=strength - other)
            slope, information = slope + more[0], information + more[1]
        for other, link in tied:
            slope += link.weight * (link.difference + other - strength)
            information += link.weight
        # Far from the mode a step may be too long.
        strength += min(max(slope / information, -1.0), 1.0)
    return strength
