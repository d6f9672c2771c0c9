"""Changes that follow from one event: rows for the journal, in memory at once, and commands."""

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
"""Key of an event's data: number of marks of the policy's PBT clock that a decision covers. It is
above 1 if marks passed while the decision waited. Decisions without a clock lack the key."""

NOT_MADE = ("exploit_abandoned", "exploit_failed")
"""Kinds of events about decisions that were due but could not be made."""


class Transaction(Struct):
    """Collection of the changes of one event, begun by `ControllerState.begin`.

    A row that is put is at once part of ``tables`` and of every index over them, so later decisions
    of the same event see it. If the commit fails the process ends without having acknowledged or
    sent anything.

    Attributes:
        tables: Rows in memory.
        index: Function that updates every index by a row that was put (`Indexes.apply`).
        now: Time of the event.
        seed: Seed of the run.
        commands: Commands to carry out after the commit, in order.
    """

    tables: Tables
    index: Callable[[Row], None]
    now: Now
    seed: int
    commands: list[Command] = []
    _rows: dict[tuple[str, Hashable, bool], Row] = {}
    """Last row by table, key and whether it is a removal: a key may be removed and put again."""

    @property
    def rows(self) -> list[Row]:
        """Return the rows to commit: the last of each key, in the order of each key's first row."""
        return [*self._rows.values()]

    def put(self, row: Row) -> None:
        """Add or replace a row in tables and journal; memory retains only open assignments."""
        # The tables are updated first, because the indexes read them.
        self.tables.put(row)
        self.follow((row,))

    def delete(self, row: Removable) -> None:
        """Remove a row from its table."""
        self.put(Deletion(row=row))

    def follow(self, rows: Iterable[Row]) -> None:
        """Add changes that are in the tables already to the commit, and update the indexes."""
        for row in rows:
            is_gone = isinstance(row, Deletion)
            of = row.row if isinstance(row, Deletion) else row
            kind = table_of(of)
            name, key = kind.name, kind.key_of(of)
            if is_gone:
                self._rows.pop((name, key, False), None)
            # The removal of a row that this same event has put need not be in the journal.
            if not is_gone or self.tables.had(of):
                self._rows[name, key, is_gone] = row
            self.index(row)

    def add_event(self, kind: str, subject: str = "", /, **data: Json) -> None:
        """Record an event that explains a decision by its numbers; ``data`` may have any names."""
        self.put(
            EventRow(
                # Sequences have no gaps, because the process ends if a transaction fails to commit.
                sequence=self.tables.num_events + 1,
                time=self.now.utc,
                kind=kind,
                subject=subject,
                data=data,
            )
        )

    def add_decision(self, kind: str, policy: PolicyId, /, **data: Json) -> None:
        """Record an event about a decision of PBT, and count it if the policy's clock was due."""
        self.add_event(kind, policy, **data)
        marks = data.get(MARKS)
        # Copies without a clock, as rescues from quarantine, are not counted as decisions.
        if isinstance(marks, int):
            self.count(pbt_decisions=kind not in NOT_MADE, pbt_marks=marks)
            if policy in self.tables.postponed:
                self.delete(self.tables.postponed[policy])

    def send(self, learner: LearnerId, message: FromController) -> None:
        """Send a message to a learner after the commit."""
        self.commands.append(SendMessage(learner=learner, message=message))

    def draw(self) -> np.random.Generator:
        """Return a generator for the next decision, seeded by the run's seed and its number."""
        return np.random.default_rng(np.random.SeedSequence(self.draw_words()))

    def draw_words(self) -> list[int]:
        """Return the seed of the next decision, for decisions whose draw comes in a later event."""
        # The counter is durable, so a resumed run goes on with the next number.
        number = self.tables.run.decisions
        self.count(decisions=1)
        # Stream 0 of the run's seed (`jobs.assignment_seed` has the others).
        return [self.seed, 0, number]

    def count(self, **changes: float) -> None:
        """Increase counters of the run by the given amounts."""
        run = self.tables.run
        self.put(replace(run, **{name: getattr(run, name) + by for name, by in changes.items()}))
