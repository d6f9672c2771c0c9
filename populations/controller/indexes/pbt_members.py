"""Policies as PBT sees them, kept between decisions until something about them changes.

Not durable: it follows from the journal's rows, and a resumed controller makes it anew.
"""

from __future__ import annotations

from msgspec import Struct

from arena.types import Digest, PolicyId
from populations.core import Member
from populations.league.league import League
from populations.league.ratings import Ratings
from populations.records.aggregates import RecordRow
from populations.records.rows import PolicyRow
from populations.records.tables import Tables


class KeptMembers(Struct):
    """Members of one population, under its last ratings.

    Attributes:
        ratings: The last fit.
        standing: The weights that each one's standing is about.
    """

    ratings: Ratings
    standing: dict[PolicyId, Digest | None] = {}
    _members: dict[PolicyId, Member] = {}
    _listed: dict[str, list[Member]] = {}

    def set(self, policy: PolicyId, member: Member | None) -> None:
        """Take in what is known of a policy now; None: it is no member any more."""
        if self._members.get(policy) == member:
            return
        # Any change of a member may change the list of its role.
        self._listed.clear()
        if member is not None:
            self._members[policy] = member
        else:
            del self._members[policy]

    def listed(self, role: str, tables: Tables) -> list[Member]:
        """Return those with a role, in the order of the tables. Not to be changed."""
        found = self._listed.get(role)
        if found is None:
            found = self._listed[role] = [
                self._members[policy]
                for policy, row in tables.policies.items()
                if policy in self._members and row.role == role
            ]
        return found


class MemberIndex:
    """The members of each population, and of whom something has changed since they were made.

    Owned by the controller's thread.

    Attributes:
        exploring: Policies for which the worker thread explores hyperparameters.
    """

    def __init__(self, league: League) -> None:
        self._league = league
        self.exploring: set[PolicyId] = set()
        self._kept: dict[str, KeptMembers] = {}
        self._changed: dict[PolicyId, None] = {}
        self._evaluated: dict[str, set[str]] = {}

    def apply(self, row: PolicyRow | RecordRow) -> None:
        """Take in a row that was put, once or more often."""
        if isinstance(row, PolicyRow):
            self._changed[row.policy] = None
        else:
            # A decision finds out whose standing, and whose generation's matches, it is about.
            self._evaluated.setdefault(row.population, set()).add(row.entrant)

    def current(self, population: str, *, ratings: Ratings) -> tuple[KeptMembers, list[PolicyId]]:
        """Return the members as they were, and the policies that are to be looked at again.

        After new ratings that is everyone, after evaluation matches those whose standing, or whose
        generation's matches, they are about.
        """
        # Records are taken out: each is looked at by one decision.
        evaluated = self._evaluated.pop(population, set())
        policies = self._league.tables.policies
        kept = self._kept.get(population)
        # Ratings are compared by identity: `Fits.ratings` gives the same object until
        # the next fit.
        if kept is None or kept.ratings is not ratings:
            kept = self._kept[population] = KeptMembers(ratings)
            changed = {name: None for name, row in policies.items() if row.population == population}
        else:
            changed = {
                name: None for name in self._changed if policies[name].population == population
            }
            origins = self._league.checkpoints
            for entrant in evaluated:
                # Its matches count for the generation that made it.
                origin = origins.get(Digest(entrant))
                if origin is not None:
                    changed[origin.policy] = None
        if evaluated or not kept.standing:
            for name, row in policies.items():
                if row.population != population:
                    continue
                digest = self._league.standing_weights(row)
                # "" is no digest, so a policy that is not there yet differs.
                if kept.standing.get(name, "") != digest or digest in evaluated:
                    changed[name] = None
                    kept.standing[name] = digest
        for policy in changed:
            # Policies of other populations wait for a decision about theirs.
            self._changed.pop(policy, None)
        return kept, list(changed)
