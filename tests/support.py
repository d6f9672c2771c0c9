"""What many tests need and no fixture gives: ``from tests.support import wait_until``."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from arena.wire.in_memory import InMemoryControllerTransport, InMemoryHub
from populations.audit.tally_checks import refold
from populations.config.run_file import RUN_FILE, RunFile, content_digest, learner_setup
from populations.records.aggregates import Row
from populations.records.rows import TallyRow
from populations.records.tables import Tables
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal, JournalReader

POLL_S = 0.005


def wait_until(condition: Callable[[], object], *, timeout_s: float) -> None:
    """Return as soon as a condition holds; fail if it does not within the timeout."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"did not happen within {timeout_s} s"
        time.sleep(POLL_S)


class Clock:
    """A clock that stands until it is set."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


def exit_code(*arguments: object) -> int:
    """Run a command of `arena` in this process, and return its exit code."""
    (script,) = entry_points(group="console_scripts", name="arena")
    with pytest.raises(SystemExit) as ended:
        script.load()([str(argument) for argument in arguments])
    code = ended.value.code or 0
    assert isinstance(code, int)
    return code


def run_process(
    command: Sequence[str | Path],
    *,
    timeout_s: float | None = None,
    check: bool = False,
    **more: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end; what it said is text."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=check, **more
    )


def end_process(process: subprocess.Popen[str]) -> None:
    """Leave nobody behind, whatever a test came to."""
    if process.poll() is None:
        process.kill()
        process.communicate()


def flip(path: Path) -> None:
    """Change a bit at a file's end, in a file of its own: ghosts are links to the old one."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)


def digests_of(directory: Path) -> dict[str, str]:
    """Return all files with the digests of their bytes; SQLite's index of a WAL is no content."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm")
    }


def kept_events(run: Path) -> list[int]:
    """Return the sequence numbers of events that the hook of tests/assets/hooked.py has kept."""
    path = run / "kept.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["sequence"] for line in lines]


def next_epoch(hub: InMemoryHub, epoch: int) -> InMemoryControllerTransport:
    """Replace a hub's controller by the next one of its run."""
    hub.controller.close(linger_s=0.0)
    hub.controller = InMemoryControllerTransport(hub, epoch=epoch)
    return hub.controller


def tables_of(run: Path) -> Tables:
    """Return the rows of a run's journal."""
    with JournalReader(run / JOURNAL) as reader:
        return reader.load()


def tallies_of(run: Path) -> list[TallyRow]:
    """Return the tallies of a run's journal."""
    with JournalReader(run / JOURNAL) as reader:
        return list(reader.tallies())


def write_run(run: Path, run_file: RunFile, rows: Sequence[Row], *, is_folded: bool = True) -> Path:
    """Write the directory of a run as a controller leaves it.

    Args:
        run: The directory, which may be there.
        run_file: Its configuration.
        rows: Rows of its journal.
        is_folded: Whether the rows have the sums of their tallies.
    """
    run.mkdir(parents=True, exist_ok=True)
    run_file.save(run / RUN_FILE)
    sums: list[Row] = []
    if not is_folded:
        folded = refold(
            [row for row in rows if isinstance(row, TallyRow)],
            seats=learner_setup(run_file, root=run).seats,
            half_life_matches=run_file.config.payoffs.half_life_matches,
        )
        sums = [*folded.records.values(), *folded.pairs.values()]
    Journal.create(run / JOURNAL, [*rows, *sums]).close()
    record_run_file(run)
    return run


def record_run_file(run: Path) -> None:
    """Record in the journal of a run what its run.yaml says now, as launch and a resume do."""
    with Journal.open(run / JOURNAL) as journal:
        row = journal.load().run
        journal.commit([replace(row, configuration=content_digest(run / RUN_FILE))])
