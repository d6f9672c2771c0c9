"""``python -m arena.transfer.process``: a run's store, served to learners that do not see it.

It runs beside the controller, never in its loop, reads and writes the same directory, and dies with
it. Each line on standard input has the terms from then on (`arena.transfer.terms`): the keys that
are let in, and what each learner may publish. It is answered on standard output with the address
that this process listens on. The first one is read before it listens.

An assignment may reach its learner before this process is told of it, so what nobody may publish so
far is refused only once two more lines have come: the second was written after the request. So wait
`MAX_WAITING` requests of each learner at most; one more of its is refused at once.

Tests: `tests/arena/transfer/test_process.py`.
"""

from __future__ import annotations

import argparse
import logging
import select
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from arena.codec import from_json
from arena.config import LearnerSetup
from arena.errors import ArenaError
from arena.processes.child import end_with_guard
from arena.processes.descriptors import raise_limit
from arena.processes.log import begin_log
from arena.processes.machine_memory import machine_bytes
from arena.transfer.service import StoreService
from arena.transfer.terms import NotGranted, Terms
from arena.wire.keys import holder_of, make_keys
from arena.wire.store_sockets import ReceivedRequest, StoreListener

logger = logging.getLogger(__name__)

WAIT_S = 1.0
LINES = 2
"""Lines after which what nobody may publish is refused."""

MAX_WAITING = 64
"""Most requests of one learner that wait for them; each has a manifest at most."""

MEMORY_SHARE = 8
"""Uploads under way take at most this part of the machine's memory: one eighth."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until killed; the exit code is returned where that cannot be."""
    options = _parse(argv)
    end_with_guard()
    begin_log()
    raise_limit()
    told = sys.stdin.buffer
    try:
        setup = LearnerSetup.model_validate_json(options.setup.read_bytes())
        # The controller has made the keys, so none are made here.
        keys = make_keys(options.keys, names=())
        # Keys are read before listening, because a learner that was refused once does not come
        # again.
        terms = from_json(told.readline(), Terms)
        keys = replace(keys, learners=terms.keys)
        listener = StoreListener(options.bind, run=setup.run, keys=keys)
    except (ArenaError, OSError, ValueError) as error:
        logger.error("the store cannot be served: %s", error)
        return 2
    _answer(listener)
    max_bytes = machine_bytes() // MEMORY_SHARE
    service = StoreService(Path(setup.root), setup, max_bytes=max_bytes)
    service.grants = terms.grants
    serve(listener, service, told=told)
    return 0


def serve(listener: StoreListener, service: StoreService, *, told: IO[bytes]) -> None:
    """Answer requests until nobody tells the terms.

    Raises:
        AuthenticatorDead: If nobody can be admitted any more.
    """
    waiting: deque[tuple[ReceivedRequest, int]] = deque()

    def answer(asked: ReceivedRequest, *, lines_left: int) -> None:
        holder = holder_of(asked.learner)
        try:
            answered = service.answer(asked.request, asked.data, holder=holder)
        except NotGranted as error:
            num_waiting = sum(holder_of(other.learner) == holder for other, _ in waiting)
            if lines_left and num_waiting < MAX_WAITING:
                waiting.append((asked, lines_left))
                return
            answered = service.refuse(asked.request, error, holder=holder)
        # A learner that does not read gets no answer, and sends its request again.
        listener.answer(asked, *answered)

    while True:
        # Terms are answered in this thread, so that an answer proves that requests are being
        # answered.
        if select.select([told], [], [], 0.0)[0]:
            line = told.readline()
            if not line:
                return
            terms = from_json(line, Terms)
            listener.admit_only(terms.keys)
            service.grants = terms.grants
            _answer(listener)
            for asked, lines_left in [waiting.popleft() for _ in range(len(waiting))]:
                answer(asked, lines_left=lines_left - 1)
        for asked in listener.receive(WAIT_S, beside=told):
            answer(asked, lines_left=LINES)


def _answer(listener: StoreListener) -> None:
    sys.stdout.write(f"{listener.endpoint}\n")
    sys.stdout.flush()


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="arena.transfer.process", allow_abbrev=False)
    parser.add_argument("--setup", type=Path, required=True, help="a LearnerSetup as JSON")
    parser.add_argument("--bind", required=True, help="tcp address to listen on")
    parser.add_argument("--keys", type=Path, required=True, help="directory of the run's keys")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
