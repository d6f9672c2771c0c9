"""A log of the results that a learner sent and of those that were acknowledged, for tests.

The journal has the controller's view; this log has the learner's, and a test compares them.
``ARENA_ACK_LOG`` names a directory, and counts only where ``ARENA_TESTING`` is ``1``. One file for
each learner, one JSON line for each message; a line is there before the message is sent.

Tests: `tests/faults/test_soak.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from arena.failpoints import SWITCH
from arena.types import LearnerId, Tally, canonical_digest
from arena.wire.messages import Acknowledge, Finished

DIRECTORY = "ARENA_ACK_LOG"


class AckLog:
    """A file of sent and acknowledged results. Owned by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def sent(self, finished: Finished) -> None:
        """Record that a result is about to be sent, perhaps again."""
        tallies = [tally_digest(tally) for tally in finished.tallies]
        self._write("sent", finished.assignment_id, finished.attempt, tallies=tallies)

    def acknowledged(self, message: Acknowledge) -> None:
        """Record that the controller has committed a result."""
        self._write("acknowledged", message.assignment_id, message.attempt)

    def _write(self, what: str, assignment_id: int, attempt: int, **more: object) -> None:
        line = json.dumps({"what": what, "lease": [assignment_id, attempt], **more}) + "\n"
        # Unbuffered: what is written outlives this process, whatever kills it.
        with self._path.open("ab", buffering=0) as file:
            file.write(line.encode())


def tally_digest(tally: Tally) -> str:
    """Return a digest that only equal tallies share."""
    pairs = [
        [p.first, p.second, p.wins, p.draws, p.losses, p.score_sum, p.square_sum]
        for p in tally.pairs
    ]
    returns = [[float(value) for value in tally.return_sum]]
    returns.append([float(value) for value in tally.return_sum_of_squares])
    return canonical_digest([list(tally.entrants), tally.matches, pairs, returns, tally.length_sum])


def make_ack_log(
    learner: LearnerId, *, environment: Mapping[str, str] = os.environ
) -> AckLog | None:
    """Return the log that a test asked for; None in every real run."""
    # Two variables, as for failpoints: one left behind writes nothing in a real run.
    directory = environment.get(DIRECTORY)
    if directory is None or environment.get(SWITCH) != "1":
        return None
    return AckLog(Path(directory) / f"{learner}.jsonl")
