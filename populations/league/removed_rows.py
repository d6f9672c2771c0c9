"""Rows that were removed because nothing refers to them: the events that have what they said.

A run of weeks makes very many checkpoints and generations. What views, replays and `arena verify`
want to know of them later is in the events, which leave the journal for its archive when they are
old.

Tests: `tests/populations/league/test_lineage.py`, `tests/populations/audit/test_verify.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import ValidationError, convert
from msgspec.structs import asdict

from arena.types import AssignmentId, Entrant, PolicyId
from populations.records.rows import CheckpointRow, EventRow, GenerationRow, Json

CHECKPOINTS = "checkpoint_rows_removed"
"""Kind of event that names checkpoints whose rows were removed."""

GENERATIONS = "generation_rows_removed"
"""Kind of event that has the rows of generations which were removed."""

KINDS = (CHECKPOINTS, GENERATIONS)


def checkpoint_data(row: CheckpointRow) -> Json:
    """Return what an event says of a checkpoint's row."""
    return [row.policy, row.agent_steps, row.assignment_id, row.generation]


def generation_data(row: GenerationRow) -> Json:
    """Return what an event says of a generation's row: all of it."""
    return asdict(row)


def removed_checkpoints(
    events: Iterable[EventRow],
) -> Iterator[tuple[PolicyId, int, AssignmentId, int]]:
    """Yield the checkpoints that events name; a damaged event names none.

    Yields:
        As in `checkpoint_data`: the policy, its agent steps, the assignment that made the
        checkpoint, and the policy's generation.
    """
    for event in events:
        named = event.data.get("checkpoints") if event.kind == CHECKPOINTS else None
        for one in named if isinstance(named, list | tuple) else ():
            match one:
                case [str(policy), int(agent_steps), int(assignment), int(generation)]:
                    yield PolicyId(policy), agent_steps, AssignmentId(assignment), generation


def removed_generations(events: Iterable[EventRow]) -> dict[Entrant, GenerationRow]:
    """Return the generations whose rows events have, in order of beginning.

    Raises:
        ValueError: If the data of one are damaged.
    """
    found: dict[Entrant, GenerationRow] = {}
    for event in events:
        rows = event.data.get("generations") if event.kind == GENERATIONS else None
        for data in rows if isinstance(rows, list | tuple) else ():
            try:
                row = convert(data, GenerationRow)
            except ValidationError as error:
                raise ValueError(str(error)) from None
            found[row.entrant] = row
    return found
