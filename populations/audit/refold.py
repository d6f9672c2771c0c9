"""Refolding of all tallies, for comparison with the aggregates kept beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar

from arena.types import Seat
from populations.league.league import League
from populations.records.aggregates import PairKey, PairRow, RecordKey, RecordRow
from populations.records.rows import (
    TallyRow,
)
from populations.records.tables import Tables

Folding = RecordRow | PairRow
KeyT = TypeVar("KeyT", bound=tuple[object, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Aggregates of tallies, each row in the order of its first tally."""

    records: dict[RecordKey, RecordRow] = field(default_factory=dict)
    pairs: dict[PairKey, PairRow] = field(default_factory=dict)


def refold(
    tallies: Iterable[TallyRow],
    *,
    seats: tuple[Seat, ...],
    half_life_matches: float,
    mixes_teammates: bool = False,
) -> Folded:
    """Fold tallies, in order of commit, from nothing."""
    league = League(
        seats=seats, half_life_matches=half_life_matches, mixes_teammates=mixes_teammates
    )
    folded = Folded()
    for tally in tallies:
        # Each row is the sum so far, so the last one of a key is the fold of all its tallies.
        for row in league.add_tally(tally):
            if isinstance(row, RecordRow):
                folded.records[row.key] = row
            else:
                folded.pairs[row.key] = row
    return folded


def differences(tables: Tables, folded: Folded) -> Iterator[str]:
    """Describe how each kept row differs from the fold of its tallies."""
    yield from _differences("record", tables.records, folded.records)
    yield from _differences("pair", tables.pairs, folded.pairs)


def _differences(
    name: str, kept: Mapping[KeyT, Folding], added_up: Mapping[KeyT, Folding]
) -> Iterator[str]:
    # Not a union of sets, which would lose the order of the tallies.
    for key in dict.fromkeys((*added_up, *kept)):
        text = f"{name} {' '.join(str(part) for part in key)}"
        row, expected = kept.get(key), added_up.get(key)
        if row is None:
            yield f"{text}: missing, but there are tallies of it"
        elif expected is None:
            yield f"{text}: there is no tally of it"
        # Exactly: the same sums in the same order have the same rounding.
        elif row != expected:
            for column in fields(row):
                value, sum_of_all = getattr(row, column.name), getattr(expected, column.name)
                if value != sum_of_all:
                    yield f"{text}: {column.name} is {value}, but its tallies give {sum_of_all}"
