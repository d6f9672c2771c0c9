"""A controller open to any peer, in a process of its own: for `fuzz`.

    python -m experiments.faults.fuzz_controller RUN_DIR [--keys]

The product's server, journal, store and ROUTER, on a tcp port of loopback; only the launcher starts
nothing. Prints a line of JSON each second; ends on SIGTERM.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil
from msgspec import structs

from arena.processes.guard import die_with_parent
from arena.wire.keys import KEYS, make_keys
from arena.wire.zeromq import ZmqControllerTransport
from experiments.harness import parser_of, say
from populations.controller.server.run_directory import OpenRun
from populations.controller.server.server import Server
from populations.controller.state.state import ControllerState
from populations.records.rows import Json
from populations.storage.lock import RunLock
from tests.populations.controller.server.test_server import NoLauncher

HEALTHY = "learner-0"
HOSTILE = ("remote-0", "remote-1")


def state_digest(state: ControllerState) -> str:
    """Return a digest of the state that must not change: tables, learners, leases.

    Left out: the number of events, which explain and decide nothing (a Hello from elsewhere leaves
    one, at most one a second), what tables keep to take back an event's changes, and clocks.
    """
    tables = {
        field.name: getattr(state.tables, field.name)
        for field in dataclasses.fields(state.tables)
        if field.name not in ("run", "num_events") and not field.name.startswith("_")
    }
    learners = {
        name: (learner.slot, [held.lease for held in learner.held])
        for name, learner in state.crew.learners.items()
    }
    run = structs.replace(state.tables.run, elapsed_s=0.0, closing_s=0.0)
    known = (
        run,
        tables,
        learners,
        list(state.crew.gone),
        state.phase.name,
        state.crew.failed_starts,
    )
    return hashlib.sha256(repr(known).encode()).hexdigest()


def serve(run_dir: Path, *, has_keys: bool) -> None:
    """Be the controller of a run until SIGTERM."""
    with ExitStack() as stack:
        stack.enter_context(RunLock(run_dir))
        run = stack.enter_context(OpenRun(run_dir))
        run.state.crew.slots.clear()
        epoch = run.state.tables.run.epoch + 1
        keys = make_keys(run_dir / KEYS, names=(HEALTHY, *HOSTILE)) if has_keys else None
        transport = ZmqControllerTransport(
            "tcp://127.0.0.1:*", run=run.run_file.run, epoch=epoch, keys=keys
        )
        stack.callback(transport.close, linger_s=1.0)

        finished = -1

        def report(status: Mapping[str, Json]) -> None:
            nonlocal finished
            # The digest is computed only while no assignment finishes: it takes time, and work
            # changes it.
            before, finished = finished, run.state.tables.run.assignments_finished
            say(
                {
                    "endpoint": transport.endpoint,
                    "epoch": epoch,
                    "digest": state_digest(run.state) if finished == before else None,
                    "finished": finished,
                    "events": run.state.tables.num_events,
                    "bad_messages": status["bad_messages"],
                    "learners": list(run.state.crew.learners),
                    "lost": len(run.state.crew.gone),
                    "rss_bytes": psutil.Process().memory_info().rss,
                }
            )

        server = Server(
            run_dir=run_dir,
            state=run.state,
            journal=run.journal,
            transport=transport,
            launcher=NoLauncher(),
            sinks=run.sinks,
            on_status=report,
        )
        signal.signal(signal.SIGTERM, lambda number, frame: server.request_stop("SIGTERM"))
        server.run()


def main() -> None:
    """Read the arguments and serve."""
    parser = parser_of(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--keys", action="store_true")
    arguments = parser.parse_args()
    die_with_parent(os.getppid())
    serve(arguments.run, has_keys=arguments.keys)


if __name__ == "__main__":
    main()
