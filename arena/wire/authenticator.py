"""Admission of learners: a thread that answers libzmq's questions about keys (ZAP, ZeroMQ RFC 27).

libzmq asks over ``inproc://zeromq.zap.01`` about each connection whose keys match. If no socket is
bound there it admits everyone, so the socket is bound before the controller's and closed with the
context only. If the thread dies, questions stay unanswered and handshakes time out. The controller,
which watches the thread, then ends.

Tests: `tests/faults/test_authentication.py`.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Mapping

import zmq

from arena.failpoints import failpoint
from arena.processes.paced_log import OneASecond
from arena.wire.keys import fingerprint
from arena.wire.unproven import UnprovenConnections

logger = logging.getLogger(__name__)
# A stranger that connects in a loop must not fill the disk.
logger.addFilter(OneASecond())

DOMAIN = b"arena"
"""Domain of the questions; libzmq matches a non-empty domain exactly."""

ENDPOINT = "inproc://zeromq.zap.01"


class Authenticator:
    """Thread that admits keys with a name, under that name (``User-Id``), and bounds the rest.

    All but the thread's own methods belong to the controller's thread.

    Attributes:
        num_refused: Connections that were refused.
        unproven: Connections that have not proved a key yet.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        guarded: zmq.Socket[bytes],
        learners: Mapping[bytes, str],
    ) -> None:
        """Start the thread.

        Args:
            context: Context of the guarded socket. Closing it also closes the thread's sockets.
            guarded: Guarded socket, which is not bound yet.
            learners: Names by public key (32 bytes).
        """
        self.admit_only(learners)
        self.unproven = UnprovenConnections(guarded)
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        # The socket is bound in the constructor instead of the thread, because libzmq admits every
        # peer while no socket is bound here.
        self._socket.bind(ENDPOINT)
        # A pipe wakes the poller without touching the ZeroMQ socket, which belongs to the thread.
        self._stop_read, self._stop_write = os.pipe()
        self.num_refused = 0
        # A daemon thread does not block the exit of a controller that raises.
        self._thread = threading.Thread(
            target=self._serve, name="controller-authenticator", daemon=True
        )
        self._thread.start()

    def admit(self, public: bytes, name: str) -> None:
        """Let a key in (32 bytes) from now on."""
        self._keys[name] = public
        # One assignment is atomic for the thread that reads the dict, as in `forget`.
        self._learners[public] = name

    def forget(self, name: str) -> None:
        """Let the key of a name in no more; a connection that it has stays open."""
        self._learners.pop(self._keys.pop(name, b""), None)

    def admit_only(self, learners: Mapping[bytes, str]) -> None:
        """Let these keys in and no others from now on, as `admit` and `forget` do."""
        self._keys = {name: key for key, name in learners.items()}
        self._learners = dict(learners)

    @property
    def learners(self) -> Mapping[bytes, str]:
        """Names of the keys that are let in at the moment, by public key (32 bytes)."""
        return dict(self._learners)

    def admits(self, name: str) -> bool:
        """Return whether a key of this name is let in."""
        return name in self._keys

    @property
    def num_strangers(self) -> Mapping[str, int]:
        """Number of connections that were not let in, by fault; of faults that there were."""
        found = {"key": self.num_refused, "unproven": self.unproven.num_closed}
        return {fault: number for fault, number in found.items() if number}

    def is_alive(self) -> bool:
        """Return whether the thread still answers."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread. No connection is admitted from now on. Idempotent."""
        if self._stop_write < 0:
            return
        # Closing this end makes the other one readable, which the thread polls; that end is closed
        # after it.
        os.close(self._stop_write)
        self._thread.join()
        os.close(self._stop_read)
        self._stop_read = self._stop_write = -1

    def _serve(self) -> None:
        """Answer until told to stop."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._stop_read, select.POLLIN)
        poller.register(self.unproven.monitor, zmq.POLLIN)
        try:
            while self._stop_read not in (ready := dict(poller.poll())):
                self.unproven.take_events()
                if self._socket not in ready:
                    continue
                question = self._socket.recv_multipart()
                failpoint("authenticator.asked")
                self._socket.send_multipart(self._answer(question))
        except Exception:
            # The controller checks `is_alive` and ends with its own message. Until then handshakes
            # time out, because the socket stays bound.
            logger.exception("nobody checks learners' keys any more")

    def _answer(self, question: list[bytes]) -> list[bytes]:
        # ZAP: version, request id, domain, address, routing id, mechanism, credentials
        version, request, domain, address, _, mechanism, *credentials = question
        name = None
        if domain == DOMAIN and mechanism == b"CURVE":
            # CURVE has one credential, the peer's public key (32 bytes).
            name = self._learners.get(credentials[0])
        if name is None:
            self._refuse(address, mechanism, credentials)
            # ZAP: version, request id, status (200 admits, 400 refuses for good), text, User-Id,
            # metadata
            return [version, request, b"400", b"no key of this run", b"", b""]
        return [version, request, b"200", b"OK", name.encode(), b""]

    def _refuse(self, address: bytes, mechanism: bytes, credentials: list[bytes]) -> None:
        self.num_refused += 1
        which = fingerprint(credentials[0]) if credentials else "none"
        logger.warning(
            "refused a connection from %r: its key (%r, fingerprint %s) is none of this run's",
            address[:64],
            mechanism[:16],
            which,
        )
