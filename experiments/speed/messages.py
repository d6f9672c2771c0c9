"""Measure what checking the types of messages costs beside msgpack alone.

    python -m experiments.speed.messages

For each message: microseconds of CPU time to encode and decode it, and how many times those of
packing and unpacking its plain data, as the best of some rounds taken in turn.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import msgpack

from arena.wire.codec import decode, encode
from arena.wire.typed import plain
from tests.arena.wire.examples import EXAMPLES, HEADER

ROUNDS = 20
REPEATS = 50


def cpu_s(function: Callable[[], object]) -> float:
    """Return the CPU time of one call, as a mean over `REPEATS`."""
    began_s = time.thread_time()
    for _ in range(REPEATS):
        function()
    return (time.thread_time() - began_s) / REPEATS


def main() -> int:
    """Print one line of JSON for each message."""
    for message in EXAMPLES:
        data = plain(message)
        rounds = [
            (
                cpu_s(lambda: decode(encode(HEADER, message))),  # noqa: B023
                cpu_s(lambda: msgpack.unpackb(msgpack.packb(data))),  # noqa: B023
            )
            for _ in range(ROUNDS)
        ]
        ours, bare = (min(times) for times in zip(*rounds, strict=True))
        document = {
            "message": type(message).__name__,
            "us": round(1e6 * ours, 1),
            "times_msgpack": round(ours / bare, 2),
        }
        sys.stdout.write(json.dumps(document) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
