"""Which points of curves were written."""

from __future__ import annotations

from collections.abc import Mapping

from arena.types import Digest, PolicyId
from populations.records.rows import AssignmentRow


class Curves:
    """Points of curves that were written. Owned by the controller's thread."""

    def __init__(self, fitted: Mapping[str, int] | None = None) -> None:
        self.held: dict[PolicyId, tuple[int, Mapping[str, float]]] = {}
        """Last training point of each policy, agent steps and metrics, where it was left out."""
        self.written: dict[PolicyId, tuple[Digest, int, Mapping[str, float]]] = {}
        """Which weights' points were written last, after how many matches, and what they were."""
        self.rated_at: dict[PolicyId, int] = {}
        """Agent steps of the weights whose points were written last."""
        self.fitted = dict(fitted or {})
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
