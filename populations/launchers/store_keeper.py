"""The process that serves a run's store, kept alive beside the controller.

Tests: `tests/arena/transfer/test_process.py`, `tests/faults/test_store_process.py`.
"""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from arena.errors import AddressInUse
from arena.processes.parent import ChildProcess, spawn

logger = logging.getLogger(__name__)

MODULE = "arena.transfer.process"
START_S = 60.0
AGAIN_S = 1.0
"""Seconds before a process that has ended is started again."""


class StoreKeeper:
    """Thread that starts the process, waits for its end, and starts it again at its address.

    A thread of its own: the kernel ends a process with the thread that has started it, and the
    controller's loop has nothing to wait for.

    Attributes:
        endpoint: Address that it listens on; the port is the real one.
    """

    def __init__(self, *, setup_path: Path, bind: str, keys: Path, log_path: Path) -> None:
        """Store the arguments; no process is started.

        Args:
            setup_path: File with a LearnerSetup as JSON.
            bind: tcp address to listen on; with the port ``*``, the first process chooses.
            keys: Directory of the run's keys.
            log_path: File for its log.
        """
        self._arguments = [sys.executable, "-m", MODULE]
        self._arguments += ["--setup", str(setup_path), "--keys", str(keys)]
        self._log_path = log_path
        self.endpoint = bind
        self._started = threading.Event()
        self._closing = threading.Event()
        self._process: ChildProcess | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="controller-store", daemon=True)

    def __enter__(self) -> Self:
        """Start, and wait until the address is known.

        Raises:
            AddressInUse: If the process ends before it listens.
        """
        self._thread.start()
        if not self._started.wait(START_S) or self._closing.is_set():
            self.__exit__(None, None, None)
            raise AddressInUse(
                f"checkpoints cannot be served at {self.endpoint}; {self._log_path} says why"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the process and the thread."""
        with self._lock:
            self._closing.set()
            if self._process is not None:
                self._process.kill()
        self._thread.join()

    def _keep(self) -> None:
        while True:
            with self._lock:
                if self._closing.is_set():
                    return
                self._process = process = spawn(
                    [*self._arguments, "--bind", self.endpoint],
                    log_path=self._log_path,
                    has_output=True,
                )
            output = process.output
            assert output is not None, "it was started with a pipe"
            with output:
                said = output.readline().decode().strip()
                if said:
                    # The same again for its successors: learners know it.
                    self.endpoint = said
                    self._started.set()
                # It says nothing more; this is the end of the process.
                output.read()
            with self._lock:
                process.kill()
            if not self._started.is_set():
                self._closing.set()
                self._started.set()
            elif not self._closing.wait(AGAIN_S):
                logger.warning("the process that serves the store has ended; it is started again")
