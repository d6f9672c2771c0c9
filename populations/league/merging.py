"""Results of players that are gone: merged into those of players that stay, or forgotten.

Evaluation results are never lost: those of weights that are gone count for the nearest ghost of the
same line, which they were trained into or from. Training results only choose opponents, so those
with players that cannot be drawn any more are forgotten.

A merge is a fact of the journal (event ``results_merged``), and the rows after it follow from the
tallies and the merges between them: `League.merge` is what a run does, and what `arena verify` does
again.

Tests: `tests/populations/league/test_merging.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from arena.types import Entrant
from populations.records.aggregates import PairRow, RecordRow
from populations.records.rows import EventRow, Json

MERGED = "results_merged"
"""Kind of event of a merge; its subject is the population."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Players of one population that are gone, and what becomes of their results.

    Attributes:
        population: Their population.
        num_tallies: Tallies that were committed before.
        into: Evaluated weights that are gone, by those that they count for from now on.
        forgotten: Entrants whose training results go.
    """

    population: str
    num_tallies: int
    into: Mapping[Entrant, tuple[Entrant, ...]] = field(default_factory=dict)
    forgotten: tuple[Entrant, ...] = ()

    @property
    def heirs(self) -> dict[Entrant, Entrant]:
        """Return whom each of the weights that are gone counts for."""
        return {gone: heir for heir, merged in self.into.items() for gone in merged}

    def data(self) -> dict[str, Json]:
        """Return the data of its event."""
        return {
            "tallies": self.num_tallies,
            "into": {heir: list(gone) for heir, gone in self.into.items()},
            "forgotten": list(self.forgotten),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Rows that a merge changed.

    Attributes:
        kept: Rows that stay, as they are now.
        gone: Rows that are no more.
    """

    kept: tuple[RecordRow | PairRow, ...]
    gone: tuple[RecordRow | PairRow, ...]


def merges(events: Iterable[EventRow]) -> Iterator[Merge]:
    """Yield the merges among some events, in their order.

    Raises:
        ValueError: If the data of one are damaged.
    """
    for event in events:
        if event.kind == MERGED:
            yield _merge(event)


def _merge(event: EventRow) -> Merge:
    into, forgotten = event.data.get("into"), event.data.get("forgotten")
    num_tallies = event.data.get("tallies")
    if not (
        isinstance(num_tallies, int)
        and isinstance(into, Mapping)
        and all(isinstance(gone, Sequence) for gone in into.values())
        and isinstance(forgotten, Sequence)
    ):
        raise ValueError(f"event {event.sequence}: its data are no merge")
    return Merge(
        population=event.subject,
        num_tallies=num_tallies,
        into={Entrant(heir): _entrants(gone) for heir, gone in into.items()},
        forgotten=_entrants(forgotten),
    )


def _entrants(names: Json) -> tuple[Entrant, ...]:
    return tuple(Entrant(str(name)) for name in cast("Sequence[Json]", names))


def merged_record(heir: RecordRow, gone: RecordRow) -> RecordRow:
    """Add the evaluation matches of weights that are gone to those that they count for."""
    is_summed = heir.score_sum is not None or gone.score_sum is not None
    return replace(
        heir,
        matches=heir.matches + gone.matches,
        wins=heir.wins + gone.wins,
        draws=heir.draws + gone.draws,
        losses=heir.losses + gone.losses,
        return_sum=heir.return_sum + gone.return_sum,
        return_sum_of_squares=heir.return_sum_of_squares + gone.return_sum_of_squares,
        score_sum=heir.points + gone.points if is_summed else None,
        merged_matches=heir.merged_matches + gone.matches,
    )
