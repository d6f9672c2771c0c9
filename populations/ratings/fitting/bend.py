"""The bend and the recency: why the log-odds of long distances are no sums of short ones.

Where strong players err now and then, too, each step of a ladder is won by more than its ends say
when they meet: log-odds are a concave function of distance. Where a match adds up many small gains,
or is often drawn, luck decides among equals and nothing between far players: log-odds are convex,
as those of a normal distribution are. So

h(d) = sign(d) ((1 + |d|)^(1 - b) - 1) / (1 - b)    for b >= 0,
h(d) = sinh(k d) / k,    k = sqrt(-b) / 2,          for b < 0,

with h = d for b = 0. b is estimated where results speak for it. Players are trained against those
of just before, too, and beat these by more than others as strong. So a newer player is ahead of an
older one by the *recency* g beside their strengths, whatever lies between the two:

d_ij = theta_i - theta_j + g x_ij,    x = a / (|a| + `SOON`), a the difference of their ages,

where a chain of neighbours would add it up with each step. *Ratings* r are the additive
strengths nearest to h: the least sum of squares of h(d_ij) - (r_i - r_j) over all pairs of players,
however often they met, each weighed by w_i w_j, has

r_i = sum over j of w_j h(d_ij),

less the same of the anchors, which stay at 0. Half of a player's weight is one share of the number
of players, the other half its part of the range of strengths, up to half the way to its neighbours.
So all distances are weighed alike, although most matches are those of neighbours, and most players
of a long run are among its strongest. Where the seats of a pair are worth something, d_ij has it, j
are those that i meets there, and what is left of h is the worth beside ratings.

Sources: Box and Cox, "An analysis of transformations" (Journal of the Royal Statistical Society B,
1964), for the family; Rao, "Large sample tests of statistical hypotheses concerning several
parameters" (Proceedings of the Cambridge Philosophical Society, 1948), for the test.

Shapes: N entrants; K columns of their spread.

Tests: `tests/populations/ratings/fitting/test_bend.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

BENDS = (-2.0, 0.8)
"""Limits of b: above, far players are all at one distance; below, 500 Elo count as 920."""

MAX_GROWN = 30.0
"""Limit of |k d|, so that no step of a search overflows."""

SOON = 0.02
"""Share of the longest training in which a player gets half of the recency over those before it."""

MAX_PLAYERS = 300
"""Players, evenly drawn by strength, that stand for all as opponents."""


def bent(distances: FloatArray, bend: float) -> tuple[FloatArray, FloatArray]:
    """Return h of distances in units of theta, and its slopes; in the shape of the distances."""
    if bend < 0.0:
        growth, grown = _grown(distances, bend)
        return np.asarray(np.sinh(grown) / growth), np.asarray(np.cosh(grown))
    base, power = 1.0 + np.abs(distances), 1.0 - bend
    found = np.sign(distances) * (base**power - 1.0) / power
    return np.asarray(found), np.asarray(base**-bend)


def bent_by(distances: FloatArray, bend: float) -> FloatArray:
    """Return the derivative of h by b, at 0 that from above; in the shape of the distances."""
    if bend < 0.0:
        growth, grown = _grown(distances, bend)
        # d/dk (sinh(k d) / k) = (k d cosh(k d) - sinh(k d)) / k^2, and dk/db = -1 / (8 k)
        return np.asarray((np.sinh(grown) - grown * np.cosh(grown)) / (8.0 * growth**3))
    base, power = 1.0 + np.abs(distances), 1.0 - bend
    raised = base**power
    # d/dk ((u^k - 1) / k) = u^k log(u) / k - (u^k - 1) / k^2, and k = 1 - b
    by_power = raised * np.log(base) / power - (raised - 1.0) / power**2
    return np.asarray(-np.sign(distances) * by_power)


def _grown(distances: FloatArray, bend: float) -> tuple[float, FloatArray]:
    """Return k of a bend below 0, and k d."""
    growth = 0.5 * math.sqrt(-bend)
    return growth, np.clip(growth * distances, -MAX_GROWN, MAX_GROWN)


def newer(ages: FloatArray, others: FloatArray) -> FloatArray:
    """Return x: by how much those of some ages, at most 1 each, are newer than others."""
    apart = ages - others
    return np.asarray(apart / (np.abs(apart) + SOON))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recency:
    """Lead of newer entrants over older ones, beside strengths.

    Attributes:
        ages: Training of each entrant as a share of the longest one. float64 [N].
        worth: g.
        changes: Changes of it with the strengths. float64 [K].
    """

    ages: FloatArray
    worth: float
    changes: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Entrants of one scale that meet those of one scale, in one order of seats.

    Attributes:
        first: The former. int64 [F].
        second: The latter; as those of ``first`` where the order does not matter. int64 [S].
        advantage: Worth of the seats of ``first`` in distances.
        changes: Changes of it with the strengths. float64 [K].
        recency: Lead of the newer one of two.
    """

    first: IntArray
    second: IntArray
    advantage: float
    changes: FloatArray
    recency: Recency

    @property
    def is_ordered(self) -> bool:
        """Return whether it matters who is in ``first``."""
        return bool(self.advantage) or self.first is not self.second

    def turned(self) -> Meeting:
        """Return the same, seen from ``second``."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            advantage=-self.advantage,
            changes=-self.changes,
        )

    def apart(
        self, strengths: FloatArray, own: IntArray | None, against: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return d of entrants, or of the anchors [1] where ``own`` is None, to others, and x.

        float64 [F, S] each.
        """
        nothing = np.zeros(1)
        own_strengths = nothing if own is None else strengths[own]
        own_ages = nothing if own is None else self.recency.ages[own]
        x = newer(own_ages[:, None], self.recency.ages[against])
        ahead = own_strengths[:, None] - strengths[against] + self.advantage
        return ahead + self.recency.worth * x, x

    def drawn(self, strengths: FloatArray) -> IntArray:
        """Return those of ``second`` that stand for all of them as opponents, by strength."""
        ordered = self.second[np.argsort(strengths[self.second], kind="stable")]
        return np.asarray(ordered[:: 1 + len(ordered) // MAX_PLAYERS])


def weights_of(strengths: FloatArray) -> FloatArray:
    """Return the weights w of opponents of rising strengths; their sum is 1. float64 [S]."""
    even, width = 1.0 / len(strengths), strengths[-1] - strengths[0]
    # Equals have no range to divide.
    parts = _parts(strengths) / width if width > 0.0 else even
    return np.full(len(strengths), (even + parts) / 2.0)


def weights_by(strengths: FloatArray, directions: FloatArray) -> FloatArray:
    """Return how the weights of opponents change with their strengths. float64 [S, K]."""
    width = strengths[-1] - strengths[0]
    if width <= 0.0:
        return np.zeros_like(directions)
    parts = _parts(strengths)[:, None] / width
    changes = (_parts(directions) - parts * (directions[-1] - directions[0])) / (2.0 * width)
    return np.asarray(changes)


def _parts(places: FloatArray) -> FloatArray:
    """Return what lies nearest to each place, up to half the way to its neighbours. [S, ...]."""
    ends = np.concatenate([places[:1], (places[1:] + places[:-1]) / 2.0, places[-1:]])
    return np.asarray(np.diff(ends, axis=0))


def adds_up(meetings: Sequence[Meeting], *, bend: float) -> bool:
    """Return whether log-odds are the differences of strengths, and the worth of seats."""
    return not bend and not any(one.recency.worth for one in meetings)


def ratings_of(
    strengths: FloatArray, directions: FloatArray, meetings: Sequence[Meeting], *, bend: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ratings of strengths, and how they change with the strengths.

    Args:
        strengths: theta; 0 are anchors. float64 [N].
        directions: Changes of theta. float64 [N, K].
        meetings: Meetings of all scales; everybody is in ``first`` or ``second`` of one of them.
        bend: b.

    Returns:
        Ratings [N] and their changes [N, K], float64, in units of theta.
    """
    if adds_up(meetings, bend=bend):
        return strengths, directions
    ratings, changes = np.zeros_like(strengths), np.zeros_like(directions)
    num_others = np.zeros_like(strengths)
    for one in _views(meetings):
        own, against = one.first, one.drawn(strengths)
        weights = weights_of(strengths[against])
        weights_changes = weights_by(strengths[against], directions[against])
        distances, x = one.apart(strengths, own, against)
        ahead, slopes = bent(distances, bend)
        # Subtract the mean of the anchors: h(0 - theta_j + a + g x_0j).
        distances, x_zero = one.apart(strengths, None, against)
        zero, slopes_zero = bent(distances, bend)
        ratings[own] += len(one.second) * ((ahead - zero) @ weights)
        slopes, slopes_zero = slopes * weights, slopes_zero * weights
        # Differences come before sums, so that those of an anchor are exactly 0.
        more = slopes - slopes_zero
        moved = (ahead - zero) @ weights_changes - more @ directions[against]
        moved += more.sum(axis=1)[:, None] * (directions[own] + one.changes)
        moved += slopes_zero.sum() * directions[own]
        by_recency = (slopes * x - slopes_zero * x_zero).sum(axis=1)
        changes[own] += len(one.second) * (moved + by_recency[:, None] * one.recency.changes)
        num_others[own] += len(one.second)
    return ratings / num_others, changes / num_others[:, None]


def ratings_by(strengths: FloatArray, meetings: Sequence[Meeting], *, bend: float) -> FloatArray:
    """Return the derivative of the ratings by b, strengths as they are. float64 [N]."""
    found, num_others = np.zeros_like(strengths), np.zeros_like(strengths)
    for one in _views(meetings):
        own, against = one.first, one.drawn(strengths)
        weights = weights_of(strengths[against])
        ahead = bent_by(one.apart(strengths, own, against)[0], bend)
        zero = bent_by(one.apart(strengths, None, against)[0], bend)
        found[own] += len(one.second) * ((ahead - zero) @ weights)
        num_others[own] += len(one.second)
    return found / num_others


def left_of(
    strengths: FloatArray, ratings: FloatArray, meeting: Meeting, *, bend: float
) -> tuple[float, float]:
    """Return mean and variance of h - (r_i - r_j) of pairs that meet, in units of theta: their mean
    is the worth of the seats beside ratings, the rest scatter.
    """
    first, second = meeting.turned().drawn(strengths), meeting.drawn(strengths)
    ahead, _ = bent(meeting.apart(strengths, first, second)[0], bend)
    left = ahead - (ratings[first, None] - ratings[second])
    own, others = weights_of(strengths[first]), weights_of(strengths[second])
    # What one of two equal sides is ahead by, the other is behind: 0, which rounding is not.
    mean = float(own @ left @ others) if meeting.is_ordered else 0.0
    return mean, float(own @ (left - mean) ** 2 @ others)


def against_anchors(
    strengths: FloatArray, ratings: FloatArray, meetings: Sequence[Meeting], *, bend: float
) -> FloatArray:
    """Return by how much log-odds against the anchors are above what ratings say of them, means
    over the meetings. float64 [N], in units of theta.
    """
    found, num_meetings = np.zeros_like(strengths), np.zeros_like(strengths)
    if adds_up(meetings, bend=bend):
        return found
    for one in _views(meetings):
        lead = one.recency.worth * newer(one.recency.ages[one.first], np.zeros(1))
        ahead, _ = bent(strengths[one.first] + one.advantage + lead, bend)
        worth, _ = left_of(strengths, ratings, one, bend=bend)
        found[one.first] += ahead - ratings[one.first] - worth
        num_meetings[one.first] += 1.0
    return found / num_meetings


def scatter_of(strengths: FloatArray, meetings: Sequence[Meeting], *, bend: float) -> float:
    """Return the mean square over all pairs, as they are weighed, of what ratings and seats leave
    of h, in units of theta squared.
    """
    nothing = np.zeros(0)
    still = [
        replace(
            one,
            changes=nothing,
            # The mean square of the recency is g^2 + its variance.
            recency=replace(
                one.recency,
                worth=float(np.linalg.norm([one.recency.worth, *one.recency.changes])),
                changes=nothing,
            ),
        )
        for one in meetings
    ]
    ratings, _ = ratings_of(strengths, np.zeros((len(strengths), 0)), still, bend=bend)
    left = [left_of(strengths, ratings, one, bend=bend) for one in still]
    number = [len(one.first) * len(one.second) for one in meetings]
    return float(np.average([variance for _, variance in left], weights=number))


def _views(meetings: Sequence[Meeting]) -> list[Meeting]:
    """Return each meeting from both sides; where the order does not matter they are one."""
    turned = (one.turned() for one in meetings if one.is_ordered)
    return [*meetings, *turned]
