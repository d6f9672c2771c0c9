"""``python -m arena.transfer.process``: a run's store, served to learners that do not see it.

It runs beside the controller, never in its loop, reads and writes the same directory, and dies with
it. Each line on standard input has the keys that are let in from then on
(`arena.wire.keys.encode_admitted`); it is answered on standard output with the address that this
process listens on. The first one is read before it listens.

Tests: `tests/arena/transfer/test_process.py`.
"""

from __future__ import annotations

import argparse
import logging
import select
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from arena.config import LearnerSetup
from arena.descriptors import raise_limit
from arena.errors import ArenaError
from arena.machine_memory import machine_bytes
from arena.processes.child import end_with_guard
from arena.processes.log import begin_log
from arena.transfer.service import StoreService
from arena.wire.keys import decode_admitted, holder_of, make_keys
from arena.wire.store_sockets import StoreListener

logger = logging.getLogger(__name__)

WAIT_S = 1.0
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
        # The controller has made its own; none is made here.
        keys = make_keys(options.keys, names=())
        # Before it listens: a learner that was refused once does not come again.
        keys = replace(keys, learners=decode_admitted(told.readline()))
        listener = StoreListener(options.bind, run=setup.run, keys=keys)
    except (ArenaError, OSError, ValueError) as error:
        logger.error("the store cannot be served: %s", error)
        return 2
    _answer(listener)
    max_bytes = machine_bytes() // MEMORY_SHARE
    serve(listener, StoreService(Path(setup.root), setup, max_bytes=max_bytes), told=told)
    return 0


def serve(listener: StoreListener, service: StoreService, *, told: IO[bytes]) -> None:
    """Answer requests until nobody tells whose keys are let in.

    Raises:
        AuthenticatorDead: If nobody can be admitted any more.
    """
    while True:
        # In this thread, so that an answer shows that requests are answered, too.
        if select.select([told], [], [], 0.0)[0]:
            line = told.readline()
            if not line:
                return
            listener.admit_only(decode_admitted(line))
            _answer(listener)
        for asked in listener.receive(WAIT_S, beside=told):
            answer, data = service.answer(
                asked.request, asked.data, holder=holder_of(asked.learner)
            )
            # A learner that does not read gets no answer: it asks again.
            listener.answer(asked, answer, data)


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
