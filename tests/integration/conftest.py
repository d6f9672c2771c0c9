"""Runs of the installed console script, as a user starts it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ARENA = (sys.executable, "-m", "populations.commands.main")
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def arena() -> Command:
    """Run `arena` with arguments; by default it must succeed."""

    def run(
        *arguments: str | Path, code: int = 0, timeout_s: float = 110.0
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*ARENA, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        return done

    return run


@pytest.fixture
def arena_json(arena: Command) -> Callable[..., dict[str, Any]]:
    """Run `arena ... --json` and read its one document."""

    def run(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
        document = json.loads(arena(*arguments, "--json", code=code).stdout)
        assert document["schema"] == 1
        return dict(document)

    return run


def start(arguments: Sequence[str | Path]) -> subprocess.Popen[str]:
    """Start `arena` and leave it running."""
    return subprocess.Popen(
        [*ARENA, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def sigkill(process: subprocess.Popen[str]) -> None:
    """Kill a process at once and let go of its pipes."""
    process.kill()
    process.communicate()
