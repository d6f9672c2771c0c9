"""A sink and a hook of a user that keep what they get, in files of the run directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

POINTS, CALLS = "points.jsonl", "calls.jsonl"


class Recorder:
    """A sink that keeps every point."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / POINTS

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        """Keep a point."""
        _append(self._path, {"policy": policy, "agent_steps": agent_steps, "metrics": metrics})

    def flush(self) -> None:
        """Do nothing: every point is in the file."""

    def close(self) -> None:
        """Keep that it was closed."""
        _append(self._path, {"closed": True})


def keep(event: dict[str, Any]) -> None:
    """Keep a call of a hook."""
    _append(Path(event["run"]) / CALLS, event)


def _append(path: Path, document: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf8") as file:
        file.write(json.dumps(document) + "\n")
