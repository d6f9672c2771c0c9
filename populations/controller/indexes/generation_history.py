"""The generations of policies that are ranked together, kept up to date row by row.

Exploring asks for all of them, and a long run has many. Not durable: it follows from the journal's
rows, and a resumed controller makes it anew.
"""

from __future__ import annotations

from arena.types import Entrant
from populations.records.rows import GenerationRow, PolicyRow
from populations.records.tables import Tables


class GenerationHistory:
    """Generations by population and role. Owned by the controller's thread."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], list[GenerationRow]] = {}
        self._places: dict[Entrant, int] = {}
        """Position of each generation in its list."""
        self._is_made = False

    def apply(self, row: GenerationRow, tables: Tables) -> None:
        """Take in a row that was put into the tables, once or more often."""
        # Until a first question the tables have all, and it may never come.
        if self._is_made:
            self._place(row, tables)

    def forget(self) -> None:
        """Read the tables anew at the next question, because rows were removed."""
        self._rows.clear()
        self._places.clear()
        self._is_made = False

    def comparable(
        self, policy: PolicyRow, tables: Tables, *, instead: GenerationRow | None = None
    ) -> tuple[GenerationRow, ...]:
        """Return the generations of a policy's population and role, in order of beginning.

        Args:
            policy: Policy whose population and role are asked for.
            tables: All rows.
            instead: Row to list in place of the one with its entrant.
        """
        if not self._is_made:
            self._is_made = True
            for row in tables.generations.values():
                self._place(row, tables)
        # A copy of references: a decision is answered by another thread.
        rows = self._rows.get((policy.population, policy.role), []).copy()
        # In the copy alone: the generation still lasts.
        if instead is not None:
            rows[self._places[instead.entrant]] = instead
        return tuple(rows)

    def _place(self, row: GenerationRow, tables: Tables) -> None:
        key = (row.population, tables.policies[row.policy].role)
        rows = self._rows.setdefault(key, [])
        # A row that ends its generation replaces the one that began it, at its place.
        place = self._places.setdefault(row.entrant, len(rows))
        if place == len(rows):
            rows.append(row)
        else:
            rows[place] = row
