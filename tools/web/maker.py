"""Processes that make documents for a server, and end with it.

Tests: `tests/tools/web/test_maker.py`.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Self

from arena.processes.parent import Child
from populations.errors import StorageError

from .making import FITTED, GAME, Made, own_variables

MODULE = f"{__package__}.making"

LONG_S = 0.5
"""Seconds of work after which a process ends: it holds the memory of what it has read."""

WAIT_S = 0.7
"""Seconds for which a page waits for its documents, before it says that they are being made."""

MAX_BYTES = 1 << 32
"""Most bytes of an answer, in which names and texts of strangers may be many and long."""


class Maker:
    """Process that makes documents, one request after the other. Any thread may ask.

    It is started with the first request, and again after one that took long or failed.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: Child | None = None
        self._is_closed = False

    def make(self, run: Path, views: Sequence[str]) -> Made:
        """Return documents of a run's views at one moment.

        Raises:
            StorageError: If there is no run, or its journal cannot be read.
            RuntimeError: If the process ended; its messages are on standard error.
        """
        import msgpack

        with self._lock:
            process = self._started()
            request = {"run": str(run.resolve()), "views": list(views)}
            try:
                answer = msgpack.unpackb(b64decode(process.call(json.dumps(request).encode())))
            except EOFError as error:
                self._end(process)
                raise RuntimeError(f"{MODULE} ended with code {process.poll()}") from error
            if is_long := answer.get("took_s", LONG_S) >= LONG_S:
                self._end(process)
        if "error" in answer:
            raise StorageError(answer["error"])
        # After a long job the process ends, so the cost includes starting the next process.
        return answer["documents"], answer["lived_s" if is_long else "took_s"]

    def _started(self) -> Child:
        process = self._process
        if process is None:
            process = self._process = Child(
                MODULE, talks="output", variables=own_variables(), line_bytes=MAX_BYTES
            )
        # The flag is read after the start: either `close` has seen the process, or its flag is seen
        # here.
        if self._is_closed:
            self._end(process)
            raise RuntimeError("the server is ending")
        return process

    def _end(self, process: Child) -> None:
        process.close()
        self._process = None

    def close(self) -> None:
        """End the process, whatever it makes."""
        self._is_closed = True
        if (process := self._process) is not None:
            process.kill_group()
        # The thread that waited for an answer has failed by now, so the lock is free soon.
        with self._lock:
            if self._process is not None:
                self._end(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Makers:
    """Three processes: what takes long keeps nobody waiting for the rest."""

    def __init__(self) -> None:
        self._long, self._short, self._games = Maker(), Maker(), Maker()

    def make(self, run: Path, views: Sequence[str]) -> Made:
        """Return documents of a run's views at one moment; see `Maker.make`."""
        if views[0].partition(" ")[0] == GAME:
            return self._games.make(run, views)
        return (self._long if tuple(views) == FITTED else self._short).make(run, views)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for one in (self._long, self._short, self._games):
            one.close()
