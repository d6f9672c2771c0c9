"""Sorted orders of members that selection needs, reused from one decision to the next.

Between two decisions few members change, and sorting thousands of them would take most of a
decision's time. So only the changed members are moved.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from operator import is_not

from populations.core import Member

# Each move shifts a part of a list, so many moves take longer than one sort.
MAX_MOVED = 64
"""Number of changed members above which all members are sorted anew."""

Key = tuple[float, float, int, int]
"""Sort key of a member: -bound, -rating, index, position among the members."""


@dataclass(slots=True)
class Ranking:
    """Members with a finite rating and enough matches, in sorted orders. Owned by one thread.

    Its orders equal those of sorting the members of the last `update`.

    Attributes:
        min_matches: Minimum number of evaluation matches in a policy's generation for a rank.
    """

    min_matches: int
    _members: tuple[Member, ...] = ()
    _orders: dict[float, list[Key]] = field(default_factory=dict)

    def update(self, members: Sequence[Member]) -> None:
        """Set the current members; a member that is the same object as before has not changed."""
        old, new = self._members, tuple(members)
        self._members = new
        # Members are compared by identity: they are frozen, so the same object has not changed.
        changed = list(compress(count(), map(is_not, old, new)))
        # Keys contain positions, so they are all invalid if the number of members has changed.
        if len(old) != len(new) or len(changed) > MAX_MOVED:
            self._orders.clear()
        for num_deviations, keys in self._orders.items():
            for position in changed:
                if self.ranks(old[position]):
                    # A position makes each key unique, so bisect finds exactly the old key.
                    del keys[bisect_left(keys, _key(old[position], position, num_deviations))]
                if self.ranks(new[position]):
                    insort(keys, _key(new[position], position, num_deviations))

    def ranks(self, member: Member) -> bool:
        """Return whether a member has a finite rating and enough matches to be ranked."""
        return (
            member.rating is not None
            and math.isfinite(member.rating)
            and member.num_matches >= self.min_matches
        )

    def order(
        self, num_deviations: float = 0.0, *, within: slice = slice(None)
    ) -> tuple[Member, ...]:
        """Return ranked members by rating plus ``num_deviations`` deviations, the highest first.

        Among equals the better rated member comes first, then the lower index.

        Args:
            num_deviations: Number of standard deviations that are added; below 0 for lower bounds.
            within: Part of the order that is returned; default: all.
        """
        # An order is made at its first use; from then on `update` maintains it.
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
        # Nothing is known of this member, so its lower bound is -inf and its upper bound +inf: it
        # is the last candidate for the best group and for the worst one.
        return math.copysign(math.inf, num_deviations) if num_deviations else member.rating
    return member.rating + num_deviations * member.deviation
