"""Runs in Trackio: in its database of this machine (``TRACKIO_DIR``), where ``trackio show`` looks.

Its own `log` keeps failures to itself and names each row at random. The storage below it raises,
and takes a row of a name once.

Tests: `tests/integration/test_trackers.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from trackio.sqlite_storage import SQLiteStorage

from arena.metrics.tracker import PROJECT, Note, Point, Reached, TrackedRun


class TrackioTracker:
    """Tracker that writes into a run of Trackio."""

    def __init__(self, run: TrackedRun) -> None:
        self._run = run
        self._project = os.environ.get("TRACKIO_PROJECT") or PROJECT
        self._config: dict[str, object] | None = dict(run.facts)
        SQLiteStorage.init_db(self._project)

    def reached(self) -> Reached:
        """Return what the database holds."""
        return Reached(
            number=self._last("metrics", "log_id", default=Reached().number),
            sequence=self._last("alerts", "alert_id", default=Reached().sequence),
        )

    def write(self, points: Sequence[Point], notes: Sequence[Note]) -> None:
        """Add a row for each point, by agent steps, and an alert for each note."""
        of: Any = {"project": self._project, "run": self._run.name, "run_id": self._run.id}
        SQLiteStorage.bulk_log(
            **of,
            metrics_list=[point.named() for point in points],
            steps=[point.agent_steps for point in points],
            log_ids=[f"{self._run.id}-{point.number}" for point in points],
            config=self._config,
        )
        if points:
            self._config = None
        SQLiteStorage.bulk_alert(
            **of,
            titles=[note.kind for note in notes],
            texts=[note.text for note in notes],
            levels=["warn" if note.kind == "alert" else "info" for note in notes],
            steps=[None for _ in notes],
            alert_ids=[f"{self._run.id}-{note.sequence}" for note in notes],
        )

    def close(self) -> None:
        """Do nothing: each write is a transaction."""

    def _last(self, table: str, column: str, *, default: int) -> int:
        query = f"SELECT {column} FROM {table} WHERE run_id = '{self._run.id}' ORDER BY id DESC"
        rows = SQLiteStorage.query_project(self._project, f"{query} LIMIT 1")["rows"]
        return int(rows[0][column].rpartition("-")[2]) if rows else default
