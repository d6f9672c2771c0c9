"""Metrics that a run has written to `metrics.jsonl`.

Tests: `tests/populations/inspection/test_metrics.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from arena.metrics.jsonl import files_of
from arena.metrics.sink import METRICS_FILE
from populations.inspection.inspection import Document, Inspection
from populations.records.rows import Json

KEYS = ("policy", "agent_steps")
"""Keys of a line that are no metrics."""


def metrics_view(
    run: Inspection, population: str | None, *, names: Sequence[str] | None = None
) -> Document:
    """Return the lines of `metrics.jsonl`, oldest first; none where no sink ``jsonl`` was named.

    Args:
        run: Run to read.
        population: Population of the policies; the run as a whole is left out. None: all.
        names: Metrics that are asked for; lines without any of them are left out. None: all.
    """
    lines: list[Json] = []
    for line in _read_lines(run.run_dir / METRICS_FILE):
        if population not in (None, str(line.get("policy")).split("/")[0]):
            continue
        if names is not None:
            line = {key: line[key] for key in (*KEYS, *names) if key in line}
        if len(line) > len(KEYS):
            lines.append(line)
    return {
        "run": run.tables.run.run,
        "names": None if names is None else list(names),
        "metrics": lines,
    }


def _read_lines(path: Path) -> Iterator[dict[str, Json]]:
    """Yield the lines of a file and of those that were set aside before it."""
    for part in files_of(path):
        try:
            file = part.open(encoding="utf-8")
        except FileNotFoundError:
            # No such sink, or the file was set aside just now.
            continue
        with file:
            for text in file:
                # The last line of a run that goes on, or was killed, may be torn.
                if text.endswith("\n"):
                    yield json.loads(text)
