"""Metrics as one JSON object per line, for programs: ``pandas.read_json(path, lines=True)``.

Tests: `tests/arena/metrics/test_sinks.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

# A line is far shorter, so that the first block usually has a newline.
_TAIL_BYTES = 65536


class JsonlSink:
    """Sink that appends to one file per run. Every line is complete or was never there.

    A line is ``{"policy": "player/p003", "agent_steps": 120000, "loss/policy": -0.01, ...}``.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(path)
        # After the cut. Line-buffered: every line is handed to the system at once.
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        """Append one line.

        Raises:
            ValueError: If a metric is not finite.
        """
        line = {"policy": policy, "agent_steps": agent_steps} | dict(metrics)
        self._file.write(json.dumps(line, allow_nan=False) + "\n")

    def flush(self) -> None:
        """Hand all lines to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()


def _cut_torn_line(path: Path) -> None:
    """Drop the torn line that a crash left after the last newline."""
    # The next line would else be glued to it.
    if not path.exists():
        return
    with path.open("r+b") as file:
        end = file.seek(0, 2)
        while end > 0:
            start = max(0, end - _TAIL_BYTES)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                file.truncate(start + newline + 1)
                return
            end = start
        # No newline at all: the whole file is one torn line.
        file.truncate(0)
