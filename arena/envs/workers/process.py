"""``python -m arena.envs.workers.process``: a process that steps environments of its parent.

Started by `arena.envs.workers.crew`. It dies with its parent, as a learner does.

Tests: `tests/arena/envs/workers/test_crew.py`.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, TextIO

from arena.processes.bounded_log import open_shortened
from arena.processes.child import end_with_guard
from arena.processes.log import begin_log
from arena.processes.parent import STACKS


def main(argv: Sequence[str] | None = None) -> int:
    """Step environments until the parent closes the connection; the exit code is returned."""
    parser = argparse.ArgumentParser(prog="arena.envs.workers.process", allow_abbrev=False)
    parser.add_argument("--socket-fd", type=int, required=True, help="a socket of the parent")
    parser.add_argument("--number", type=int, required=True, help="number of this process, from 1")
    options = parser.parse_args(argv)
    end_with_guard()
    # Terminals and cluster managers signal whole groups. The parent alone decides when this ends:
    # it may need some more steps to save everything.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    begin_log(logging.WARNING)
    faulthandler.enable()
    # A learner that is stuck is stuck here, where its environments step.
    faulthandler.register(signal.SIGUSR1, file=_stacks(options.number), all_threads=True)

    from arena.envs.workers.messages import Channel
    from arena.envs.workers.worker import serve

    serve(Channel(socket.socket(fileno=options.socket_fd)))
    return 0


def _stacks(number: int) -> BinaryIO | TextIO:
    """Return a file of its own beside the learner's: several processes write at a time."""
    learners = os.environ.get(STACKS)
    if learners is None:
        return sys.stderr
    path = Path(learners)
    # Opened now: when all hangs, nothing can be opened.
    try:
        return open_shortened(path.with_name(f"{path.stem}-env-{number}.txt"))
    except OSError as error:
        logging.warning("stacks go to this log: %s", error)
        return sys.stderr


if __name__ == "__main__":
    sys.exit(main())
