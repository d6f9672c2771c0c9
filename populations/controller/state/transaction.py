"""Changes by one event: rows for the journal, visible in memory at once, and commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from arena.types import AssignmentId
from populations.controller.state.commands import Command
from populations.controller.state.events import Now
from populations.records.aggregates import PairRow, RecordRow, Row
from populations.records.rows import (
    AssignmentRow,
    CheckpointRow,
    Deletion,
    EventRow,
    GameRow,
    GenerationRow,
    GhostRow,
    Json,
    PolicyRow,
    RatingsRow,
    RunRow,
    TallyRow,
)
from populations.records.tables import Tables, table_of


@dataclass(slots=True)
class Transaction:
    """Collects the changes of one event.

    A row that is put is at once part of ``tables`` and of every index over them, so later decisions
    of the same event see it. If the commit fails the process ends without having acknowledged or
    sent anything. Made by `ControllerState.begin`.

    Attributes:
        tables: Rows in memory.
        index: Feeds every index with a row that was put (`ControllerState.apply`).
        now: Time of the event.
        rows: To commit, in order; of the run and of each assignment only the last row that was
            put, since they are put most often, and an assignment is long.
        commands: To carry out after the commit, in order.
    """

    tables: Tables
    index: Callable[[Row], None]
    now: Now
    rows: list[Row] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    _places: dict[AssignmentId | None, int] = field(default_factory=dict)
    """Place in ``rows`` of each assignment's row, and of the run's."""

    def put(
        self,
        row: PolicyRow
        | CheckpointRow
        | GhostRow
        | GenerationRow
        | RecordRow
        | PairRow
        | RatingsRow
        | GameRow
        | RunRow,
    ) -> None:
        """Add or replace a row."""
        if isinstance(row, RunRow):
            self.tables.run = row
            # None is the run's place: assignments have numbers.
            self._put_last(None, row)
            return
        table = table_of(row)
        getattr(self.tables, table.name)[table.key_of(row)] = row
        self._append(row)

    def delete(
        self, row: CheckpointRow | GhostRow | GenerationRow | RecordRow | PairRow | GameRow
    ) -> None:
        """Remove a row from its table."""
        table = table_of(row)
        del getattr(self.tables, table.name)[table.key_of(row)]
        self._append(Deletion(row=row))

    def put_assignment(self, row: AssignmentRow) -> None:
        """Add or replace an assignment; only open ones stay in memory."""
        # Before the indexes are fed: they look into the tables for open ones.
        if row.status == "queued":
            self.tables.assignments[row.assignment_id] = row
        else:
            self.tables.assignments.pop(row.assignment_id, None)
        self._put_last(row.assignment_id, row)

    def _put_last(self, key: AssignmentId | None, row: Row) -> None:
        # ``rows`` only grows, so places stay.
        place = self._places.setdefault(key, len(self.rows))
        if place == len(self.rows):
            self._append(row)
        else:
            # The journal needs the last row alone, the indexes each one.
            self.rows[place] = row
            self.index(row)

    def _append(self, row: Row) -> None:
        self.rows.append(row)
        self.index(row)

    def add_tally(self, row: TallyRow) -> None:
        """Append a tally. What `League.add_tally` says that it changes belongs beside it."""
        # Of a tally memory keeps only what it is folded into.
        self.tables.num_tallies = row.sequence
        if row.kind == "evaluate":
            self.tables.last_evaluation_sequence = row.sequence
        self._append(row)

    def add_event(self, kind: str, subject: str = "", /, **data: Json) -> None:
        """Say why something was decided, with the numbers, which may have any names."""
        # Without gaps: a transaction that fails to commit ends the process.
        self.tables.num_events += 1
        self._append(
            EventRow(
                sequence=self.tables.num_events,
                time=self.now.utc,
                kind=kind,
                subject=subject,
                data=data,
            )
        )

    def count(self, **changes: float) -> None:
        """Raise counters of the run."""
        run = self.tables.run
        self.put(replace(run, **{name: getattr(run, name) + by for name, by in changes.items()}))
