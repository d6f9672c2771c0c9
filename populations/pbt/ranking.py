"""Members in the orders that selection asks for, kept from one decision to the next.

Between two decisions few members change, and sorting thousands takes longer than all the rest. So
only the changed ones are moved.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from operator import is_not

from populations.core import Member

# A move costs a shift of a list, so many moves cost more than one sort.
MAX_MOVED = 64
"""Number of changed members above which all are sorted anew."""

Key = tuple[float, float, int, int]
"""-bound, -rating, index, position among the members: the smallest comes first."""


@dataclass(slots=True)
class Ranking:
    """Members with a finite rating and enough matches. Owned by one thread.

    Its orders are those that sorting the members of the last `update` would give.

    Attributes:
        min_matches: Evaluation matches of its generation without which a policy is not ranked.
    """

    min_matches: int
    _members: tuple[Member, ...] = ()
    _orders: dict[float, list[Key]] = field(default_factory=dict)

    def update(self, members: Sequence[Member]) -> None:
        """Take in the members as they are now; an object that was there before has not changed."""
        old, new = self._members, tuple(members)
        self._members = new
        # Members are compared by identity: they are frozen, so the same object has not changed.
        changed = list(compress(count(), map(is_not, old, new)))
        # Positions are part of the keys, so another number of members makes all keys stale.
        if len(old) != len(new) or len(changed) > MAX_MOVED:
            self._orders.clear()
        for num_deviations, keys in self._orders.items():
            for position in changed:
                if self.ranks(old[position]):
                    # Keys are unique by their position, so bisect finds the old one itself.
                    del keys[bisect_left(keys, _key(old[position], position, num_deviations))]
                if self.ranks(new[position]):
                    insort(keys, _key(new[position], position, num_deviations))

    def ranks(self, member: Member) -> bool:
        """Return whether enough is known of a member."""
        return (
            member.rating is not None
            and math.isfinite(member.rating)
            and member.num_matches >= self.min_matches
        )

    def order(
        self, num_deviations: float = 0.0, *, within: slice = slice(None)
    ) -> tuple[Member, ...]:
        """Return members by their rating plus so many deviations, the highest first.

        Of equals, the better rated and then the lower index comes first.

        Args:
            num_deviations: Deviations that are added to the rating; below 0 for lower bounds.
            within: Part of the order; default: all.
        """
        # An order is made when first asked for, and from then on kept by `update`.
        keys = self._orders.get(num_deviations)
        if keys is None:
            keys = self._orders[num_deviations] = sorted(
                _key(member, position, num_deviations)
                for position, member in enumerate(self._members)
                if self.ranks(member)
            )
        return tuple(self._members[key[-1]] for key in keys[within])


def _key(member: Member, position: int, num_deviations: float) -> Key:
    assert member.rating is not None, "only those with a rating are ranked"
    return -_bound(member, num_deviations), -member.rating, member.index, position


def _bound(member: Member, num_deviations: float) -> float:
    assert member.rating is not None, "only those with a rating are ranked"
    if not math.isfinite(member.deviation):
        # Nothing is known: the last of the best, and the last of the worst.
        # Lower bound -inf, upper bound +inf.
        return math.copysign(math.inf, num_deviations) if num_deviations else member.rating
    return member.rating + num_deviations * member.deviation
