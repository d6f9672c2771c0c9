"""Policies with the measurements that PBT compares, cached between decisions until they change.

They are not durable: a resumed controller computes them from the journal's rows.
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
    """Cached members of one population, under its last ratings.

    Attributes:
        ratings: Ratings of the last fit.
        standing: By policy, the weights that represent it in standings; None: none has played.
    """

    ratings: Ratings
    standing: dict[PolicyId, Digest | None] = {}
    _members: dict[PolicyId, Member] = {}
    _listed: dict[str, list[Member]] = {}

    def set(self, policy: PolicyId, member: Member | None) -> None:
        """Replace a policy's member; None: the policy is no longer a member."""
        if self._members.get(policy) == member:
            return
        # Any change of a member may change the list of its role.
        self._listed.clear()
        if member is not None:
            self._members[policy] = member
        else:
            del self._members[policy]

    def listed(self, role: str, tables: Tables) -> list[Member]:
        """Return the members with a role, in the order of the tables; a list not to be changed."""
        found = self._listed.get(role)
        if found is None:
            found = self._listed[role] = [
                self._members[policy]
                for policy, row in tables.policies.items()
                if policy in self._members and row.role == role
            ]
        return found


class MemberIndex:
    """Index of the members of each population, and of policies that have changed since.

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
        """Record by a row that was put what has changed; repetitions do no harm."""
        if isinstance(row, PolicyRow):
            self._changed[row.policy] = None
        else:
            # The next decision finds the policies that these weights concern (`current`).
            self._evaluated.setdefault(row.population, set()).add(row.entrant)

    def current(self, population: str, *, ratings: Ratings) -> tuple[KeptMembers, list[PolicyId]]:
        """Return the cached members, and the policies whose members must be computed again.

        After new ratings these are all policies. After evaluation matches they are those whose
        standing or whose generation's matches have changed.
        """
        # Evaluated weights are removed from the index, because only one decision needs to see them.
        evaluated = self._evaluated.pop(population, set())
        policies = self._league.tables.policies
        kept = self._kept.get(population)
        # Ratings are compared by identity, as `Fits.ratings` returns one object until the next fit.
        if kept is None or kept.ratings is not ratings:
            kept = self._kept[population] = KeptMembers(ratings)
            changed = {name: None for name, row in policies.items() if row.population == population}
        else:
            changed = {
                name: None for name in self._changed if policies[name].population == population
            }
            origins = self._league.checkpoints
            for entrant in evaluated:
                # Matches of weights count for the generation that made them.
                origin = origins.get(Digest(entrant))
                if origin is not None:
                    changed[origin.policy] = None
        if evaluated or not kept.standing:
            for name, row in policies.items():
                if row.population != population:
                    continue
                digest = self._league.standing_weights(row)
                # The default "" is no digest, so a policy without an entry counts as changed.
                if kept.standing.get(name, "") != digest or digest in evaluated:
                    changed[name] = None
                    kept.standing[name] = digest
        for policy in changed:
            # Changed policies of other populations stay until a decision about their population.
            self._changed.pop(policy, None)
        return kept, list(changed)
