"""What two equal deterministic runs have in common, whatever was killed in between.

Attempts, epochs, seconds and who did the work are no decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from arena.types import LearnerId
from populations.records.aggregates import Row
from populations.records.rows import AssignmentRow, CheckpointRow, EventRow, RunRow
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader

DECISIONS = (
    "exploited",
    "explored",
    "fell_back",
    "ghost_created",
    "ghosts_thinned",
    "results_merged",
    "immigrated",
    "kept",
    "learning_rate_halved",
    "quarantined",
)
"""Kinds of events that say what was decided; what was given out is in the assignments."""

Outcome = Mapping[str, Sequence[object]]


def outcome(run: Path) -> Outcome:
    """Return all that two equal deterministic runs have in common, by table."""
    with JournalReader(run / JOURNAL) as reader, reader.snapshot():
        tables = reader.load()
        assignments = reader.assignments(statuses=("finished", "failed"))
        tallies = reader.tallies()
        events = reader.events(kinds=DECISIONS)
    return {
        "run": [_timeless_run(tables.run)],
        "policies": [replace(row, speed=0.0) for row in tables.policies.values()],
        "checkpoints": [_settled(row) for row in tables.checkpoints.values()],
        "ghosts": [replace(row, linked=True) for row in tables.ghosts.values()],
        "generations": list(tables.generations.values()),
        "ratings": list(tables.ratings.values()),
        "assignments": [_anybodys(row) for row in assignments],
        "tallies": tallies,
        "decisions": [_timeless_event(row) for row in events],
    }


def differences(first: Outcome, second: Outcome) -> list[str]:
    """Return the tables in which two outcomes differ, each with its first difference."""
    found = []
    for table, rows in first.items():
        others = second[table]
        if list(rows) == list(others):
            continue
        pairs = zip(rows, others, strict=False)
        at = next((i for i, (one, other) in enumerate(pairs) if one != other), -1)
        where = f"first at row {at}: {rows[at]} | {others[at]}" if at >= 0 else "one goes on"
        found.append(f"{table}: {len(rows)} and {len(others)} rows, {where}")
    return found


def _timeless_run(row: RunRow) -> Row:
    # The digest of run.yaml also covers the run's name.
    row = replace(row, run="", configuration="")
    return replace(row, epoch=0, elapsed_s=0.0, closing_s=0.0, training_s=0.0, evaluation_s=0.0)


def _settled(row: CheckpointRow) -> Row:
    """Return the row without its state: a directory may go after the last commit."""
    return replace(row, state="deleted") if row.state == "doomed" else row


def _anybodys(row: AssignmentRow) -> Row:
    """Return the decision and its result without its learner."""
    return replace(
        row,
        attempt=0,
        message=replace(row.message, attempt=0),
        learner=LearnerId(""),
        duration_s=0.0,
        metrics={},
    )


def _timeless_event(row: EventRow) -> Row:
    return replace(row, sequence=0, time="")
