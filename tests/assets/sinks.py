"""Sinks of users' own: one that keeps what it is told, one that raises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


class Kept:
    """Writes lines of its own."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "kept.txt"

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([policy, agent_steps, sorted(metrics)]) + "\n")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write("closed\n")


class Broken(Kept):
    """Has nothing to write to."""

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        raise ConnectionError("nobody is there")
