"""What PBT knows of each policy, kept between decisions until something about it changes.

Not durable: it follows from the journal's rows, and a resumed controller makes it anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from arena.types import Digest, PolicyId
from populations.core import Member
from populations.folded import RecordRow
from populations.league.league import League
from populations.league.standings import Ratings
from populations.storage.tables import Tables
from populations.types import (
    PolicyRow,
    Row,
)


@dataclass(slots=True)
class _Kept:
    """Of one population, under its last ratings.

    Attributes:
        ratings: The last fit.
        members: As they were made.
        standing: The weights that each one's standing is about.
    """

    ratings: Ratings
    members: dict[PolicyId, Member] = field(default_factory=dict)
    standing: dict[PolicyId, Digest | None] = field(default_factory=dict)


class ChangedMembers:
    """The members of each population, and of whom something has changed since they were made.

    Owned by the controller's thread.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._changed: dict[PolicyId, None] = {}
        self._evaluated: dict[str, set[str]] = {}

    def take(self, rows: Iterable[Row]) -> None:
        """Take in rows that were put, once or more often; policies and records matter."""
        for row in rows:
            if isinstance(row, PolicyRow):
                self._changed[row.policy] = None
            elif isinstance(row, RecordRow):
                # Whose standing it is, and whose generation's, is asked when somebody decides.
                self._evaluated.setdefault(row.population, set()).add(row.entrant)

    def members(
        self, population: str, *, ratings: Ratings, tables: Tables, league: League
    ) -> tuple[dict[PolicyId, Member], list[PolicyId]]:
        """The members as they were, and the policies that are to be looked at again.

        After new ratings that is everyone, after evaluation matches those whose standing, or whose
        generation's matches, they are about.
        """
        evaluated = self._evaluated.pop(population, set())
        rows = [row for row in tables.policies.values() if row.population == population]
        kept = self._kept.get(population)
        if kept is None or kept.ratings is not ratings:
            kept = self._kept[population] = _Kept(ratings)
            changed = {row.policy: None for row in rows}
        else:
            changed = {row.policy: None for row in rows if row.policy in self._changed}
            for entrant in evaluated:
                origin = league.checkpoints.get(Digest(entrant))
                if origin is not None:
                    changed[origin.policy] = None
        if evaluated or not kept.standing:
            for row in rows:
                digest = league.standing_weights(row, tables)
                if kept.standing.get(row.policy, "") != digest or digest in evaluated:
                    changed[row.policy] = None
                    kept.standing[row.policy] = digest
        for policy in changed:
            self._changed.pop(policy, None)
        return kept.members, list(changed)
