"""Supervisor of the process that serves a run's store to learners on other machines.

Tests: `tests/arena/transfer/test_process.py`, `tests/faults/test_store_process.py`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from arena.errors import AddressInUse
from arena.processes.parent import Child
from arena.transfer.terms import Grant, Terms

logger = logging.getLogger(__name__)

MODULE = "arena.transfer.process"
START_S = 60.0
ASK_S = 1.0
"""Longest time between two messages to the process, by which its end is noticed."""

PAUSE_S = 0.02
"""Shortest time between two messages to the process."""

STUCK_S = 60.0
"""Time after which a process that does not answer is killed: it may wait for a slow disk, but by
then learners have stopped waiting for it."""

AGAIN_S = 1.0
"""Seconds before a process that has ended is started again."""


class StoreKeeper:
    """Thread that starts the process, sends it the `Terms` on which it serves, and restarts it.

    A restart follows when the process has ended or does not answer; the address stays the same.
    Because of the thread the controller's loop never waits for the process.

    Attributes:
        endpoint: Address that the process listens on, with the actual port once it has started.
    """

    def __init__(
        self,
        *,
        setup_path: Path,
        bind: str,
        keys: Path,
        admitted: Mapping[bytes, str],
        log_path: Path,
    ) -> None:
        """Store the arguments; no process is started.

        Args:
            setup_path: File with a LearnerSetup as JSON.
            bind: TCP address to listen on; the port ``*`` lets the first process choose one.
            keys: Directory of the run's keys.
            admitted: Names of admitted learners, by public key (32 bytes).
            log_path: File for the log of the process.
        """
        self._arguments = ["--setup", str(setup_path), "--keys", str(keys)]
        self._log_path = log_path
        self.endpoint = bind
        # Each message has the complete terms, so that a restarted process needs no history.
        self._terms = Terms.of(admitted)
        self._changed = threading.Event()
        self._started = threading.Event()
        self._closing = threading.Event()
        self._process: Child | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="controller-store", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread, and wait until the process listens and its address is known.

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
                self._process.kill_group()
        self._changed.set()
        self._thread.join()

    def admit_only(self, learners: Mapping[bytes, str]) -> None:
        """Let the store answer only the holders of these keys, from the next message on.

        Args:
            learners: Names by public key (32 bytes).
        """
        self._terms = self._terms.admitting(learners)
        self._changed.set()

    def grant(self, grants: Mapping[str, tuple[Grant, ...]]) -> None:
        """Let the store accept only these checkpoints, from the next message on.

        Args:
            grants: Checkpoints that each learner may publish, by the name of its key.
        """
        self._terms = self._terms.granting(grants)
        self._changed.set()

    def _keep(self) -> None:
        while True:
            with self._lock:
                if self._closing.is_set():
                    return
                self._process = self._spawned()
            if self._process is not None:
                self._talk(self._process)
                with self._lock:
                    self._process.close()
            if not self._started.is_set():
                self._closing.set()
                self._started.set()
            elif not self._closing.wait(AGAIN_S):
                logger.warning("the process that serves the store has ended; it is started again")

    def _spawned(self) -> Child | None:
        """Start a process; None: it could not be started, perhaps only for now."""
        try:
            arguments = [*self._arguments, "--bind", self.endpoint]
            return Child(MODULE, arguments, log=self._log_path, talks="output")
        except OSError as error:
            logger.warning("the process that serves the store cannot be started: %s", error)
            return None

    def _talk(self, process: Child) -> None:
        """Send the terms to a process whenever they change, until it ends or stops answering."""
        limit_s = START_S
        try:
            while True:
                # A restarted process must listen on the same address, because learners know it.
                self.endpoint = process.call(self._terms.line, limit_s).decode().strip()
                self._started.set()
                limit_s = STUCK_S
                # The pause collects changes, so that one message covers many learners' assignments.
                self._closing.wait(PAUSE_S)
                self._changed.wait(ASK_S)
                self._changed.clear()
        except EOFError:
            return
        # Only the time limit shows that a process is stopped (SIGSTOP) or stuck.
        except TimeoutError:
            logger.warning("the process that serves the store has not answered for %.0f s", limit_s)
