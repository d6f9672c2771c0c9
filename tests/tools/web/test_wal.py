"""Size of a journal's WAL while a run goes on and its pages are read."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest
import uvicorn

from populations.storage.journal import Journal, JournalReader
from tests.populations.rows import make_event
from tests.tools.web.conftest import TOKEN
from tools.web import pace
from tools.web.app import make_app
from tools.web.maker import WAIT_S, Makers
from tools.web.making import Made
from tools.web.runs import named_runs
from tools.web.security import Access
from tools.web.site import Site

NUM_COMMITS = 1_000
NUM_CLIENTS = 5
LEAST_MADE = 20
BOUND_BYTES = 12 * 2**20
"""SQLite begins the WAL anew at 1,000 pages, 4 MiB, if no reader needs it just then."""

PAGES = ("index", "standings", "ratings", "events", "player-p000")


@contextmanager
def served(run: Path, made: list[tuple[str, ...]]) -> Iterator[str]:
    """Serve a run as `arena web` does; give the address of its pages, and note what is made."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    access = Access.to("127.0.0.1", port, token=TOKEN)
    with Makers() as makers, listener:

        def make(path: Path, views: Sequence[str]) -> Made:
            found = makers.make(path, views)
            made.append(tuple(views))
            return found

        app = make_app(Site(named_runs([run], make=make, wait_s=WAIT_S)), access)
        config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/{run.name}"
        finally:
            server.should_exit = True
            thread.join(timeout=60.0)


def poll(address: str, ended: threading.Event, wrong: list[str]) -> None:
    """Ask for pages, one after the other, until the writer has ended."""
    with httpx.Client(headers={"authorization": f"Bearer {TOKEN}"}, timeout=60.0) as client:
        while not ended.is_set():
            for page in PAGES:
                answer = client.get(f"{address}/{page}.html")
                if answer.status_code != 200:
                    wrong.append(f"{page}: {answer.status_code} {answer.text[:200]}")


def commit(journal: Journal, number: int) -> None:
    """Commit one of ten events again, in about six pages."""
    # The data are random, because rows are compressed.
    data = {"text": np.random.default_rng(number).bytes(20_000).hex()}
    journal.commit([make_event("kept", "player/p000", sequence=1 + number % 10, **data)])


@pytest.mark.slow
@pytest.mark.integration
def test_the_wal_stays_bounded_while_pages_are_read(
    own_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each page reads the journal anew, which is the highest load of readers.
    monkeypatch.setattr(pace, "LEAST_S", 0.0)
    monkeypatch.setattr(pace, "SHARE", math.inf)
    wal = own_run / "journal.db-wal"
    made: list[tuple[str, ...]] = []
    wrong: list[str] = []
    ended = threading.Event()
    with Journal.open(own_run / "journal.db") as journal, served(own_run, made) as address:
        clients = [
            threading.Thread(target=poll, args=(address, ended, wrong)) for _ in range(NUM_CLIENTS)
        ]
        for client in clients:
            client.start()
        largest, number = 0, 0
        try:
            while number < NUM_COMMITS or (len(made) < LEAST_MADE and not wrong):
                commit(journal, number)
                number += 1
                largest = max(largest, wal.stat().st_size)
        finally:
            ended.set()
            for client in clients:
                client.join(timeout=60.0)
        assert not wrong
        assert largest < BOUND_BYTES
        # The test would detect a reader that keeps a snapshot open.
        with JournalReader(own_run / "journal.db") as reader, reader.snapshot():
            reader.events(limit=1)
            for number in range(NUM_COMMITS * 3 // 4):
                commit(journal, number)
        assert wal.stat().st_size > BOUND_BYTES
