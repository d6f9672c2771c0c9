"""Counts that curves show, and which points of them were written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from arena.types import Digest, PolicyId
from populations.records.rows import AssignmentRow, GenerationRow, GhostRow
from populations.records.tables import Tables


class Curves:
    """Counts that curves show, and which points were written. Owned by the controller's thread."""

    def __init__(self) -> None:
        self.ghosts: Counter[PolicyId] = Counter()
        self.copies: Counter[PolicyId] = Counter()
        self._counted: set[str] = set()
        self.held: dict[PolicyId, tuple[int, Mapping[str, float]]] = {}
        """Last training point of each policy, agent steps and metrics, where it was left out."""
        self.written: dict[PolicyId, tuple[Digest, int, Mapping[str, float]]] = {}
        """Which weights' points were written last, after how many matches, and what they were."""
        self.rated_at: dict[PolicyId, int] = {}
        """Agent steps of the weights whose points were written last."""
        self.fitted: dict[str, int] = {}
        """Last evaluation tally of each population's last fit."""
        # Before any time, so that the first event writes a point.
        self.run_at_s = float("-inf")
        self.run_at_steps: int | None = None
        """Agent steps of the run's last point."""
        self.run_shown_at: int | None = None
        """Agent steps of the run's last point that an earlier controller wrote."""
        self.is_resumed = False
        """Whether standings may be missing that an earlier controller did not come to write."""
        self.unwritten: list[AssignmentRow] = []
        """Training assignments whose points an earlier controller did not come to write."""

    @classmethod
    def from_tables(cls, tables: Tables) -> Curves:
        """Count the ghosts and copies of a journal."""
        curves = cls()
        for ghost in tables.ghosts.values():
            curves.apply(ghost)
        for generation in tables.generations.values():
            curves.apply(generation)
        curves.fitted = {name: row.num_tallies for name, row in tables.ratings.items()}
        return curves

    def apply(self, row: GhostRow | GenerationRow) -> None:
        """Count a ghost or a copy; a row may come more than once."""
        if isinstance(row, GhostRow):
            # The row of a ghost comes again when it is linked, changed or found corrupt.
            if row.player not in self._counted and not row.doomed:
                self._counted.add(row.player)
                self.ghosts[row.policy] += 1
            elif row.player in self._counted and row.doomed:
                self._counted.remove(row.player)
                self.ghosts[row.policy] -= 1
        else:
            # In any order: a generation has no more than the next one.
            self.copies[row.policy] = max(self.copies[row.policy], row.copies)
