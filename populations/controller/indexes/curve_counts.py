"""Counts that curves show, and which points of them were written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from arena.types import Digest, PolicyId
from populations.records.rows import GenerationRow, GhostRow, Row


class Curves:
    """Counts that curves show, and which points were written. Owned by the controller's thread."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.ghosts: Counter[PolicyId] = Counter()
        self.copies: Counter[PolicyId] = Counter()
        self._counted: set[str] = set()
        self.written: dict[PolicyId, tuple[Digest, int, Mapping[str, float]]] = {}
        """Which weights' points were written last, after how many matches, and what they were."""
        self.run_at_s = float("-inf")
        self.take(rows)

    def take(self, rows: Iterable[Row]) -> None:
        """Count ghosts and copies; a row may come more than once."""
        for row in rows:
            if isinstance(row, GhostRow) and row.player not in self._counted:
                self._counted.add(row.player)
                self.ghosts[row.policy] += 1
            elif (
                isinstance(row, GenerationRow)
                and row.cause == "exploit"
                and row.entrant not in self._counted
            ):
                self._counted.add(row.entrant)
                self.copies[row.policy] += 1
