"""Hooks of users' own: one that keeps what it is told, and some that do not."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

not_callable = 3


def keep(event: dict[str, Any]) -> None:
    """Append the event to a file of the run."""
    with (Path(event["run"]) / "kept.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")


def fail_at_first(event: dict[str, Any]) -> None:
    """Raise at the first event, and keep the others."""
    if event["sequence"] == 1:
        raise ValueError("not the first")
    keep(event)


def die_at_first(event: dict[str, Any]) -> None:
    """End the process at the first event."""
    if event["sequence"] == 1:
        os._exit(7)
    keep(event)


def hang_at_first(event: dict[str, Any]) -> None:
    """Start a process, and wait for ever at the first event."""
    if event["sequence"] == 1:
        subprocess.Popen(["sleep", os.environ["SLEEP_S"]])
        time.sleep(1000.0)
    keep(event)


def hang(event: dict[str, Any]) -> None:
    """Start a process, and wait for ever."""
    keep(event)
    subprocess.run(["sleep", "2345.6"], check=False)
