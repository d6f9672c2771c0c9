"""Changes by one event: rows for the journal, visible in memory at once, and commands."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from arena.types import LearnerId, PolicyId
from arena.wire.messages import FromController
from populations.controller.state.events import Command, Now, SendMessage
from populations.records.aggregates import Row
from populations.records.rows import Deletion, EventRow, Json, Removable
from populations.records.tables import Tables, table_of

MARKS = "marks"
"""Key of an event's data: marks of the policy's clock that a decision answers. All but one of them
passed while it waited. Decisions that no clock asked for have none."""

NOT_MADE = ("exploit_abandoned", "exploit_failed")
"""Kinds of events of decisions that were due and could not be made."""


class Transaction(Struct):
    """Collects the changes of one event.

    A row that is put is at once part of ``tables`` and of every index over them, so later decisions
    of the same event see it. If the commit fails the process ends without having acknowledged or
    sent anything. Made by `ControllerState.begin`.

    Attributes:
        tables: Rows in memory.
        index: Feeds every index with a row that was put (`Indexes.apply`).
        now: Time of the event.
        seed: Seed of the run.
        commands: To carry out after the commit, in order.
    """

    tables: Tables
    index: Callable[[Row], None]
    now: Now
    seed: int
    commands: list[Command] = []
    _rows: dict[tuple[str, Hashable, bool], Row] = {}
    """Last row of each table and key, and the removal of the one before."""

    @property
    def rows(self) -> list[Row]:
        """Return the rows to commit: the last of each key, in the order of the first ones."""
        return [*self._rows.values()]

    def put(self, row: Row) -> None:
        """Add or replace a row; of assignments only open ones stay in memory."""
        # The tables are updated first, because the indexes read them.
        self.tables.put(row)
        self.follow((row,))

    def delete(self, row: Removable) -> None:
        """Remove a row from its table."""
        self.put(Deletion(row=row))

    def follow(self, rows: Iterable[Row]) -> None:
        """Add changes that were made in the tables already."""
        for row in rows:
            is_gone = isinstance(row, Deletion)
            of = row.row if isinstance(row, Deletion) else row
            kind = table_of(of)
            name, key = kind.name, kind.key_of(of)
            if is_gone:
                self._rows.pop((name, key, False), None)
            # What this event has put is not in the journal yet.
            if not is_gone or self.tables.had(of):
                self._rows[name, key, is_gone] = row
            self.index(row)

    def add_event(self, kind: str, subject: str = "", /, **data: Json) -> None:
        """Say why something was decided, with the numbers, which may have any names."""
        self.put(
            EventRow(
                # Without gaps: a transaction that fails to commit ends the process.
                sequence=self.tables.num_events + 1,
                time=self.now.utc,
                kind=kind,
                subject=subject,
                data=data,
            )
        )

    def add_decision(self, kind: str, policy: PolicyId, /, **data: Json) -> None:
        """Say what PBT has decided about a policy, and count it if the policy's clock asked."""
        self.add_event(kind, policy, **data)
        marks = data.get(MARKS)
        # A rescue from quarantine is a copy that no clock has asked for.
        if isinstance(marks, int):
            self.count(pbt_decisions=kind not in NOT_MADE, pbt_marks=marks)
            if policy in self.tables.postponed:
                self.delete(self.tables.postponed[policy])

    def send(self, learner: LearnerId, message: FromController) -> None:
        """Have a message sent to a learner after the commit."""
        self.commands.append(SendMessage(learner=learner, message=message))

    def draw(self) -> np.random.Generator:
        """Return the next decision's randomness, a function of the run's seed and its number."""
        return np.random.default_rng(np.random.SeedSequence(self.draw_words()))

    def draw_words(self) -> list[int]:
        """Return the words that seed the next decision, for one that is drawn later."""
        # The counter is durable: a resumed run goes on with the next number.
        number = self.tables.run.decisions
        self.count(decisions=1)
        # Stream 0 of the run's seed (`jobs.assignment_seed` has the others).
        return [self.seed, 0, number]

    def count(self, **changes: float) -> None:
        """Raise counters of the run."""
        run = self.tables.run
        self.put(replace(run, **{name: getattr(run, name) + by for name, by in changes.items()}))
