"""What many tests need and no fixture gives: ``from tests.support import wait_until``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from arena.wire.in_memory import InMemoryControllerTransport, InMemoryHub
from populations.config.run_file import RUN_FILE, content_digest
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal

POLL_S = 0.005


def wait_until(condition: Callable[[], object], *, timeout_s: float) -> None:
    """Return as soon as a condition holds; fail if it does not within the timeout."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"did not happen within {timeout_s} s"
        time.sleep(POLL_S)


def next_epoch(hub: InMemoryHub, epoch: int) -> InMemoryControllerTransport:
    """Replace a hub's controller by the next one of its run."""
    hub.controller.close(linger_s=0.0)
    hub.controller = InMemoryControllerTransport(hub, epoch=epoch)
    return hub.controller


def record_run_file(run: Path) -> None:
    """Record in the journal of a run what its run.yaml says now, as launch and a resume do."""
    with Journal.open(run / JOURNAL) as journal:
        row = journal.load().run
        journal.commit([replace(row, configuration=content_digest(run / RUN_FILE))])
