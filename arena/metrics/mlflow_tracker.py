"""Runs in MLflow: on the server of ``MLFLOW_TRACKING_URI``, else in ``RUN/mlflow.db``.

Tests: `tests/integration/test_trackers.py`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag

from arena.metrics.tracker import PROJECT, Note, Point, Reached, TrackedRun, Tracker

RUN_TAG, POINT_TAG, NOTE_TAG, GAME_TAG = "arena.run", "arena.point", "arena.note.", "arena.game."
"""Tags: the run's UUID, the number of the last point, a note by its sequence, a game by its id."""

MAX_METRICS, MAX_TAGS, MAX_KEY_CHARS = 1000, 100, 250
"""Limits of one request, and of a name."""

_UNUSUAL = re.compile(r"[^/\w.\- :]")


class MlflowTracker(Tracker):
    """Tracker that writes into a run of MLflow."""

    def __init__(self, run: TrackedRun) -> None:
        own = None if (uri := os.environ.get("MLFLOW_TRACKING_URI")) else run.directory
        uri = uri or own_database(run.directory)
        self._client = client = MlflowClient(uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        experiment = client.get_experiment_by_name(name)
        # Without an explicit place, MLflow would put files into the launch directory.
        files = own and (own.resolve() / "mlartifacts").as_uri()
        place = experiment.experiment_id if experiment else client.create_experiment(name, files)
        found = client.search_runs([place], f"tags.`{RUN_TAG}` = '{run.id}'", max_results=1)
        if found:
            self._id = found[0].info.run_id
            client.update_run(self._id, status="RUNNING")
        else:
            self._id = client.create_run(
                place, run_name=run.name, tags={RUN_TAG: run.id}
            ).info.run_id
            for key, value in run.facts.items():
                client.log_param(self._id, key, value)
        self._may_hold = True

    def reached(self) -> Reached:
        """Return what the run's tags say."""
        tags = self._client.get_run(self._id).data.tags
        notes, games = (
            [tag.removeprefix(begin) for tag in tags if tag.startswith(begin)]
            for begin in (NOTE_TAG, GAME_TAG)
        )
        number = int(tags.get(POINT_TAG, Reached().number))
        return Reached(number, max(map(int, notes), default=0), frozenset(games))

    def write(self, points: Sequence[Point], notes: Sequence[Note]) -> None:
        """Log metrics by agent steps, and tags: each note, and who leads or was copied last."""
        now_ms = int(time.time() * 1000)
        metrics = [
            Metric(_UNUSUAL.sub("_", name)[:MAX_KEY_CHARS], value, now_ms, point.agent_steps)
            for point in points
            for name, value in point.named().items()
        ]
        if self._may_hold:
            # A process that was killed may have logged part of these metrics before it set the
            # tag.
            metrics = self._not_held(metrics)
            self._may_hold = False
        for start in range(0, len(metrics), MAX_METRICS):
            self._client.log_batch(self._id, metrics=metrics[start : start + MAX_METRICS])
        tags = [RunTag(POINT_TAG, str(point.number)) for point in points[-1:]]
        for note in notes:
            if not note.kind.startswith("alert"):
                tags.append(RunTag(f"{note.kind}/{note.subject}", note.text))
            tags.append(RunTag(f"{NOTE_TAG}{note.sequence:09d}", f"{note.kind}: {note.text}"))
        for start in range(0, len(tags), MAX_TAGS):
            self._client.log_batch(self._id, tags=tags[start : start + MAX_TAGS])

    def show(self, game: str, page: Path) -> None:
        """Log the page as an artifact, and then that it is there."""
        self._client.log_artifact(self._id, str(page), "games")
        self._client.set_tag(self._id, f"{GAME_TAG}{game}", page.name)

    def _not_held(self, metrics: Sequence[Metric]) -> list[Metric]:
        held = {
            (one.key, one.step, one.value)
            for key in {metric.key for metric in metrics}
            for one in self._client.get_metric_history(self._id, key)
        }
        return [one for one in metrics if (one.key, one.step, one.value) not in held]

    def close(self) -> None:
        """End the run, which a resume opens again."""
        self._client.set_terminated(self._id)


def own_database(directory: Path) -> str:
    """Return the address of a directory's database; it is made where there is none."""
    database = directory / "mlflow.db"
    if not database.exists():
        # MLflow makes it in many steps, and never again opens one that is incomplete after a kill.
        temporary = directory / "mlflow.db.tmp"
        for left in directory.glob(f"{temporary.name}*"):
            left.unlink()
        MlflowClient(f"sqlite:///{temporary}")
        temporary.replace(database)
    return f"sqlite:///{database}"
