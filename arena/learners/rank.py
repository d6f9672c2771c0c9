"""``python -m arena.learners.rank``: a further process of a learner that has several cores.

A rank is started by `arena.learners.ranks.crew` and dies with rank 0. It carries out rank 0's
assignments with its own share of the environments.

Tests: `tests/arena/learners/ranks/test_crew.py`.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from arena.processes.helper import begin_helper

if TYPE_CHECKING:
    from arena.learners.ranks.link import Link


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out shares until rank 0 closes the connection; the exit code is returned."""
    parser = argparse.ArgumentParser(prog="arena.learners.rank", allow_abbrev=False)
    parser.add_argument("--socket-fd", type=int, required=True, help="a socket of rank 0")
    parser.add_argument("--memory-fd", type=int, required=True, help="memory of all ranks")
    parser.add_argument("--rank", type=int, required=True, help="number of this one, from 1")
    parser.add_argument("--ranks", type=int, required=True, help="number of all")
    options = parser.parse_args(argv)
    begin_helper(f"rank-{options.rank}")

    import torch

    from arena.learners.ranks.link import Link, RankLost

    # Each rank has one core of the learner.
    torch.set_num_threads(1)
    link = Link(
        [(0, socket.socket(fileno=options.socket_fd))],
        options.memory_fd,
        rank=options.rank,
        number=options.ranks,
    )
    try:
        serve(link)
    except RankLost:
        # Rank 0 closes the connection to end the other ranks; its own end looks the same.
        return 0


def serve(link: Link) -> NoReturn:
    """Carry out this rank's share of all assignments.

    Raises:
        RankLost: When rank 0 has closed the connection, which is the normal end.
    """
    from arena.config import LearnerSetup
    from arena.learners.ranks.crew import Member
    from arena.learners.work.worker import Worker
    from arena.matches.seeds import Stream, derived_seed
    from arena.wire.messages import Failed, Train

    setup = LearnerSetup.model_validate_json(link.receive_bytes(0))
    member = Member(link)
    worker = Worker(setup, progress=member, should_stop=lambda: link.is_told_to_stop, ranks=member)
    try:
        # Rank 0 waits up to `LOAD_S` for this first count, and from then on watches the rank's
        # progress.
        member.advance()
        while True:
            message = link.receive(0, Train)
            # A seed of its own gives each rank other episodes and other draws.
            seed = derived_seed(message.seed, Stream.RANKS, link.rank)
            result = worker.carry_out(replace(message, seed=seed))
            if isinstance(result, Failed):
                link.send(0, result)
    finally:
        worker.close()


if __name__ == "__main__":
    sys.exit(main())
