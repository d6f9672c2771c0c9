"""A hook: a diary of the league in the run's directory, as a table in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

HEAD = "| event | of | what |\n|---|---|---|\n"


def write(event: Mapping[str, Any]) -> None:
    """Append a line to ``diary.md``.

    Args:
        event: Event as ``arena league RUN events --json`` has it, with ``run``, the path of the
            run's directory, and ``hook``, the key of the configuration that named this function.
    """
    path = Path(event["run"]) / "diary.md"
    # Hooks are called one after the other by one process, so no lock is needed.
    with path.open("a", encoding="utf-8") as diary:
        if not diary.tell():
            diary.write(HEAD)
        diary.write(f"| {event['sequence']} | {event['subject']} | {event['kind']} |\n")
