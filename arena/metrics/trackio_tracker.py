"""Runs in Trackio: in its database of this machine (``TRACKIO_DIR``), where ``trackio show`` looks.

Its own `log` keeps failures to itself and names each row at random. The storage below it raises,
and takes a row of a name once.

Tests: `tests/integration/test_trackers.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trackio.media import TrackioHtml
from trackio.sqlite_storage import SQLiteStorage

from arena.metrics.tracker import PROJECT, Note, Point, Reached, TrackedRun, Tracker


class TrackioTracker(Tracker):
    """Tracker that writes into a run of Trackio."""

    def __init__(self, run: TrackedRun) -> None:
        self._run = run
        self._project = os.environ.get("TRACKIO_PROJECT") or PROJECT
        self._of: Any = {"project": self._project, "run": run.name, "run_id": run.id}
        self._config: dict[str, object] | None = dict(run.facts)
        self._agent_steps = 0
        SQLiteStorage.init_db(self._project)

    def reached(self) -> Reached:
        """Return what the database holds."""
        number, sequence = Reached()[:2]
        return Reached(
            number=max(map(int, self._newest("metrics", "log_id")), default=number),
            sequence=max(map(int, self._newest("alerts", "alert_id")), default=sequence),
            # Earlier games need not be listed, because the database refuses a second row of one
            # name.
            games=frozenset(self._newest("metrics", "log_id", "game-", most=500)),
        )

    def write(self, points: Sequence[Point], notes: Sequence[Note]) -> None:
        """Add a row for each point, by agent steps, and an alert for each note."""
        SQLiteStorage.bulk_log(
            **self._of,
            metrics_list=[point.named() for point in points],
            steps=[point.agent_steps for point in points],
            log_ids=[f"{self._run.id}-{point.number}" for point in points],
            config=self._config,
        )
        if points:
            self._config, self._agent_steps = None, points[-1].agent_steps
        SQLiteStorage.bulk_alert(
            **self._of,
            titles=[note.kind for note in notes],
            texts=[note.text for note in notes],
            levels=["warn" if note.kind == "alert" else "info" for note in notes],
            steps=[None for _ in notes],
            alert_ids=[f"{self._run.id}-{note.sequence}" for note in notes],
        )

    def show(self, game: str, page: Path) -> None:
        """Add a row with the page, which Trackio copies."""
        media = TrackioHtml(page, inject=False, caption=game)
        media._save(self._project, self._run.name, self._agent_steps)
        SQLiteStorage.bulk_log(
            **self._of,
            metrics_list=[{"game": media._to_dict()}],
            steps=[self._agent_steps],
            log_ids=[f"{self._run.id}-game-{game}"],
        )

    def close(self) -> None:
        """Do nothing, because each write is a transaction."""

    def _newest(self, table: str, column: str, kind: str = "", *, most: int = 1) -> list[str]:
        """Return the newest names of rows of a kind, without what they begin with."""
        begin = f"{self._run.id}-{kind}"
        query = (
            f"SELECT {column} FROM {table} WHERE run_id = '{self._run.id}' "
            f"AND {column} GLOB '{begin}[0-9]*' ORDER BY id DESC LIMIT {most}"
        )
        rows = SQLiteStorage.query_project(self._project, query)["rows"]
        return [row[column].removeprefix(begin) for row in rows]
