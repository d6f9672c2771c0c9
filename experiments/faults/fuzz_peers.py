"""Hostile peers in one process: for `fuzz`.

    python -m experiments.faults.fuzz_peers ENDPOINT VICTIM.json --messages 10000 [--keys FILE ...]

A few connections at a time. Each begins with garbage and waits until it is told so, sends its share
of messages and goes away without a word; the next has another id, because a peer is not listened to
any more after twenty messages that cannot be read. With keys each connection has one of them, and
some between them have none, an unknown one, or speak in another key's name. Prints how far it is as
lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import zmq

from arena.processes.guard import die_with_parent
from arena.types import LearnerId
from arena.wire.keys import LearnerKeys, load_learner_keys
from experiments.faults.fuzz_messages import Fuzzer, Victim, oversize
from experiments.harness import parser_of, say

AT_ONCE = 4
PER_CONNECTION = 40
ANSWER_S = 300.0
LINGER_S = 60.0
OVERSIZE_EVERY = 50
STRANGER_EVERY = 25
REPORT_EVERY = 2000
DUPLICATE = "borrowed_name"
"""Kind of a message that comes over a second connection in the name of a connected peer."""

_OTHER_PROTOCOLS = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 500,  # a TLS ClientHello
    b"\xff\0\0\0\0\0\0\0\x01\x7f",  # half a ZeroMQ greeting
    b"",
)


@dataclass(slots=True)
class Connection:
    """A socket that has said something and waits for its answer."""

    socket: zmq.Socket[bytes]
    fuzzer: Fuzzer


class Peers:
    """All hostile peers of this process."""

    def __init__(
        self, endpoint: str, victim: Victim, *, keys: Sequence[LearnerKeys], seed: int
    ) -> None:
        self._endpoint = endpoint
        self._victim = victim
        self._keys = keys
        self._rng = random.Random(seed)
        self._context = zmq.Context()
        self._open: deque[Connection] = deque()
        self._num_connections = 0
        self.num_sent: Counter[str] = Counter()

    def send(self, num_messages: int) -> Iterator[int]:
        """Send so many; how many it were by then, again and again."""
        reported = 0
        while (total := self.num_sent.total()) < num_messages:
            if total - reported >= REPORT_EVERY:
                reported = total
                yield total
            if len(self._open) >= AT_ONCE:
                self._go_on(self._open.popleft(), left=num_messages - total)
            else:
                self._begin()
        self._context.destroy(linger=int(LINGER_S * 1000))
        yield self.num_sent.total()

    def _begin(self) -> None:
        """Open one more connection, and send garbage over it."""
        self._num_connections += 1
        if self._num_connections % STRANGER_EVERY == 0:
            self._knock()
        name = f"{self._rng.getrandbits(40):x}"
        key = self._rng.choice(self._keys) if self._keys else None
        learner = LearnerId(name if key is None else f"{key.name}.{name}")
        peer = self._connect(learner, key)
        peer.send(b"knock knock")
        self.num_sent["knock"] += 1
        self._open.append(Connection(peer, Fuzzer(self._victim, learner, self._rng)))

    def _go_on(self, connection: Connection, *, left: int) -> None:
        """Wait for the answer, then say all the rest at once."""
        peer = connection.socket
        if not peer.poll(int(ANSWER_S * 1000)):
            raise RuntimeError(f"the controller did not answer within {ANSWER_S} s")
        for _ in range(min(PER_CONNECTION, left)):
            name, frames = connection.fuzzer.next()
            peer.send_multipart(frames)
            self.num_sent[name] += 1
        if self._rng.random() < 1 / OVERSIZE_EVERY:
            peer.send_multipart(oversize())
            self.num_sent["oversize"] += 1
        peer.close(linger=int(LINGER_S * 1000))

    def _connect(self, learner: str, key: LearnerKeys | None) -> zmq.Socket[bytes]:
        peer = self._context.socket(zmq.DEALER)
        peer.setsockopt(zmq.ROUTING_ID, learner.encode())
        if key is not None:
            peer.setsockopt_string(zmq.CURVE_PUBLICKEY, key.public_key)
            peer.setsockopt_string(zmq.CURVE_SECRETKEY, key.secret_key)
            peer.setsockopt_string(zmq.CURVE_SERVERKEY, key.controller_key)
        peer.connect(self._endpoint)
        return peer

    def _knock(self) -> None:
        """Connect with another protocol, or as an uninvited peer."""
        host, port = self._endpoint.removeprefix("tcp://").rsplit(":", 1)
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, int(port)), timeout=ANSWER_S) as raw,
        ):
            raw.sendall(self._rng.choice(_OTHER_PROTOCOLS) + self._rng.randbytes(100))
        self.num_sent["other_protocol"] += 1
        if not self._keys:
            return
        own = self._rng.choice(self._keys)
        public, secret = (key.decode() for key in zmq.curve_keypair())
        unknown = own.model_copy(update={"public_key": public, "secret_key": secret})
        for key in (None, unknown):
            peer = self._connect("stranger", key)
            # The send does not block: a refused peer has no connection and would wait for ever.
            with contextlib.suppress(zmq.Again):
                peer.send(b"let me in", zmq.NOBLOCK)
            self.num_sent["stranger"] += 1
            # The message is never delivered.
            peer.close(linger=200)
        borrowed = self._connect(self._victim.learner, own)
        borrowed.send_multipart(
            Fuzzer(self._victim, LearnerId(self._victim.learner), self._rng).valid()
        )
        self.num_sent[DUPLICATE] += 1
        borrowed.close(linger=1000)


def main() -> None:
    """Read the arguments and send."""
    parser = parser_of(__doc__)
    parser.add_argument("endpoint")
    parser.add_argument("victim", type=Path)
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keys", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    die_with_parent(os.getppid())
    victim = Victim(**json.loads(arguments.victim.read_text(encoding="utf8")))
    keys = [load_learner_keys(path) for path in arguments.keys]
    peers = Peers(arguments.endpoint, victim, keys=keys, seed=arguments.seed)
    for total in peers.send(arguments.messages):
        say({"sent": total, "kinds": peers.num_sent})


if __name__ == "__main__":
    main()
