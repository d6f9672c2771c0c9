"""``python -m arena.envs.workers.process``: a process that steps environments of its parent.

It is started by `arena.envs.workers.crew` and dies with its parent, as a learner does.

Tests: `tests/arena/envs/workers/test_crew.py`.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence

from arena.processes.helper import begin_helper


def main(argv: Sequence[str] | None = None) -> int:
    """Step environments until the parent closes the connection; the exit code is returned."""
    parser = argparse.ArgumentParser(prog="arena.envs.workers.process", allow_abbrev=False)
    parser.add_argument("--socket-fd", type=int, required=True, help="a socket of the parent")
    parser.add_argument("--number", type=int, required=True, help="number of this process, from 1")
    options = parser.parse_args(argv)
    begin_helper(f"env-{options.number}")

    from arena.envs.workers.messages import Channel
    from arena.envs.workers.worker import serve

    serve(Channel(socket.socket(fileno=options.socket_fd)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
