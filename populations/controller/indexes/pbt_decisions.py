"""How many decisions PBT's clocks have asked for, how many were made, and what the others wait for.

Follows from the events, which a resumed controller and an inspection read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from arena.types import PolicyId
from populations.pbt.scheduler import num_marks
from populations.pbt.settings import PbtConfig
from populations.records.rows import EventRow, Json
from populations.records.tables import Tables

POSTPONED = "decision_postponed"
MADE = ("exploited", "explored", "immigrated", "kept", "promoted", "retired")
NOT_MADE = ("exploit_abandoned", "exploit_failed")
COUNTED = "decisions_counted"
"""Kind of an event that stands for all decisions before it (`ArchiveRow.recalled`)."""

KINDS = (POSTPONED, *MADE, *NOT_MADE)
RECALLED = (*KINDS, COUNTED)

MARKS = "marks"
"""Key of an event's data: marks of the policy's clock that a decision answers. All but one of them
passed while it waited. Decisions that no clock asked for have none."""


@dataclass(slots=True)
class PbtDecisions:
    """Counts of all policies. Owned by one thread.

    Attributes:
        made: Decisions that a clock asked for.
        waiting: Reasons for which decisions that are due were not made, by policy.
    """

    made: int = 0
    waiting: dict[PolicyId, str] = field(default_factory=dict)
    _answered: int = 0
    _postponed: dict[PolicyId, EventRow] = field(default_factory=dict)

    @classmethod
    def from_events(cls, events: Iterable[EventRow]) -> PbtDecisions:
        """Count the decisions that a journal's events tell of."""
        decisions = cls()
        for event in events:
            decisions.apply(event)
        return decisions

    def apply(self, row: EventRow) -> None:
        """Take in an event, once."""
        policy, marks = PolicyId(row.subject), row.data.get(MARKS)
        if row.kind == POSTPONED:
            self.waiting[policy] = str(row.data["reason"])
            self._postponed[policy] = row
        elif row.kind == COUNTED:
            self.made += cast(int, row.data["made"])
            self._answered += cast(int, marks)
        elif row.kind in KINDS and isinstance(marks, int):
            # A rescue from quarantine is a copy that no clock has asked for.
            self.waiting.pop(policy, None)
            self._postponed.pop(policy, None)
            # One decision answers all marks that have passed while it waited.
            self._answered += marks
            self.made += row.kind in MADE

    def recalled(self) -> list[EventRow]:
        """Return events that count to the same."""
        data: dict[str, Json] = {"made": self.made, MARKS: self._answered}
        counted = EventRow(sequence=0, time="", kind=COUNTED, subject="", data=data)
        # Postponed decisions are in the order of `waiting`.
        return [counted, *self._postponed.values()]

    def due(self, tables: Tables, *, pbt: Mapping[str, PbtConfig]) -> int:
        """Return marks of clocks so far, those for which decisions wait included.

        Args:
            tables: All rows.
            pbt: Settings by population.
        """
        return self._answered + sum(
            num_marks(tables.policies[name], pbt[tables.policies[name].population])
            for name in self.waiting
        )

    def document(self, tables: Tables, *, pbt: Mapping[str, PbtConfig]) -> dict[str, Json]:
        """Return the counts as ``status --json`` has them."""
        return {
            "due": self.due(tables, pbt=pbt),
            "made": self.made,
            # A policy whose weights were replaced meanwhile has a new clock, and waits for nothing.
            "waiting": {
                name: reason
                for name, reason in self.waiting.items()
                if num_marks(tables.policies[name], pbt[tables.policies[name].population])
            },
        }
