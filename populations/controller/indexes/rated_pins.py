"""Checkpoints that are retained because of their rating: the best-rated one of each policy.

A fit chooses it (`populations.controller.rating_fit.best_rated`). Checkpoints that a fit may still
choose are retained until then: candidates of the running fit, and those evaluated since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from msgspec import Struct

from arena.types import Digest, Entrant, PolicyId
from populations.league.league import League
from populations.ratings.results import Rated
from populations.records.tables import Tables, put_after
from populations.storage.store import Retention


class RatedPins(Struct):
    """Pins of checkpoints that are the best-rated of their policies, or may become it."""

    _seen: tuple[object, ...] = ()
    """Numbers of records and fits, and the contenders, for which the pins were computed."""
    _policies: frozenset[PolicyId] = frozenset()

    def refresh(
        self,
        retention: Retention,
        *,
        league: League,
        contenders: Mapping[PolicyId, tuple[Rated, ...]],
    ) -> None:
        """Pin the checkpoints to retain, if they may have changed since the last call.

        Args:
            retention: Retention that takes the pins.
            league: Origins of weights, and the last fit's rows.
            contenders: By policy, weights among which the running fit chooses; empty: none runs.
        """
        tables = league.tables
        fits = tuple((row.num_tallies, row.num_records) for row in tables.ratings.values())
        # Most assignments change nothing, so a few numbers are compared first. Contenders can be
        # compared by identity, because each fit has a new mapping.
        seen = (len(tables.records), fits)
        if self._seen and self._seen[:2] == seen and self._seen[2] is contenders:
            return
        self._seen = (*seen, contenders)
        pinned: dict[PolicyId, list[str]] = {}
        origins = league.checkpoints
        for entrant in _entrants(tables, contenders):
            origin = origins.get(Digest(entrant))
            if origin is not None:
                pinned.setdefault(origin.policy, []).append(origin.key)
        for policy in self._policies | pinned.keys():
            retention.pin_rated(policy, pinned.get(policy, ()))
        self._policies = frozenset(pinned)


def _entrants(
    tables: Tables, contenders: Mapping[PolicyId, tuple[Rated, ...]]
) -> Iterator[Entrant]:
    for row in tables.ratings.values():
        yield from row.best
    # One fit makes the rows of all populations, so they all cover the same records.
    covered = min((row.num_records for row in tables.ratings.values()), default=0)
    unrated: Iterable[Rated] = (row.key for row in put_after(tables.records, covered))
    for _, entrant in chain(unrated, *contenders.values()):
        yield entrant
