"""What PBT knows of each policy, kept between decisions until something about it changes.

Not durable: it follows from the journal's rows, and a resumed controller makes it anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from arena.types import PolicyId
from populations.core import Member
from populations.folded import RecordRow
from populations.league.standings import Ratings
from populations.storage.tables import Tables
from populations.types import (
    PolicyRow,
    Row,
)


class ChangedMembers:
    """The members of each population, and of whom something has changed since they were made.

    Owned by the controller's thread.
    """

    def __init__(self) -> None:
        self._members: dict[str, dict[PolicyId, Member]] = {}
        self._ratings: dict[str, Ratings] = {}
        self._changed: dict[PolicyId, None] = {}

    def take(self, rows: Iterable[Row]) -> None:
        """Take in rows that were put, once or more often; policies and records matter."""
        for row in rows:
            if isinstance(row, PolicyRow):
                self._changed[row.policy] = None
            elif isinstance(row, RecordRow):
                # Whose standing it is, and whose generation's, is asked when somebody decides.
                self._ratings.pop(row.population, None)

    def members(
        self, population: str, *, ratings: Ratings, tables: Tables
    ) -> tuple[dict[PolicyId, Member], list[PolicyId]]:
        """The members as they were, and the policies that are to be looked at again.

        After new ratings or evaluation matches that is everyone.
        """
        rows = tables.policies.values()
        if self._ratings.get(population) is not ratings:
            self._ratings[population] = ratings
            self._members[population] = {}
            changed = [row.policy for row in rows if row.population == population]
        else:
            changed = [
                policy
                for policy in self._changed
                if tables.policies[policy].population == population
            ]
        for policy in changed:
            self._changed.pop(policy, None)
        return self._members[population], changed
