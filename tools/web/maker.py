"""Processes that make documents for a server, and end with it.

Tests: `tests/tools/web/test_maker.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Self

from .making import FITTED, GAME, LENGTH_BYTES, Made, own_variables

MODULE = f"{__package__}.making"

LONG_S = 0.5
"""Seconds of work after which a process ends: it holds the memory of what it has read."""

WAIT_S = 0.7
"""Seconds for which a page waits for its documents, before it says that they are being made."""


class Maker:
    """Process that makes documents, one request after the other. Any thread may ask.

    It is started with the first request, and again after one that took long or failed.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def make(self, run: Path, views: Sequence[str]) -> Made:
        """Return documents of a run's views at one moment.

        Raises:
            StorageError: If there is no run, or its journal cannot be read.
            RuntimeError: If the process ended; its messages are on standard error.
        """
        import msgpack

        from populations.errors import StorageError

        with self._lock:
            process = self._started()
            request = {"run": str(run.resolve()), "views": list(views)}
            answer = msgpack.unpackb(self._exchange(process, json.dumps(request)))
            if is_long := answer.get("took_s", LONG_S) >= LONG_S:
                self._end(process)
        if "error" in answer:
            raise StorageError(answer["error"])
        # The next one starts a process of its own, which is a part of what it takes.
        return Made(answer["documents"], answer["lived_s" if is_long else "took_s"])

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C in a terminal reaches the server alone, which ends this process.
                start_new_session=True,
                env=os.environ | own_variables(),
            )
        process = self._process
        # After the start: either `close` has seen the process, or its flag is seen here.
        if self._is_closed:
            self._end(process)
            raise RuntimeError("the server is ending")
        return process

    def _exchange(self, process: subprocess.Popen[bytes], request: str) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        answer = b""
        with suppress(BrokenPipeError):
            process.stdin.write(f"{request}\n".encode())
            process.stdin.flush()
            length = int.from_bytes(process.stdout.read(LENGTH_BYTES), "big")
            answer = process.stdout.read(length)
        if not answer:
            self._end(process)
            raise RuntimeError(f"{MODULE} ended with code {process.returncode}")
        return answer

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.communicate()
        self._process = None

    def close(self) -> None:
        """End the process, whatever it makes."""
        self._is_closed = True
        if (process := self._process) is not None:
            process.kill()
        # A thread that waited for its answer has none now.
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
        self._long.close()
        self._short.close()
        self._games.close()
