"""A controller under load, in a process of its own: for `busy_controller`.

    python -m experiments.load.controller_process RUN_DIR

The product's server, journal, store and ROUTER; only the launcher starts nothing, because the
learners come by themselves. Prints one line of JSON when it listens, and one when it has ended,
which it does on SIGTERM.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from arena.types import LearnerId
from arena.wire.address import default_endpoint
from arena.wire.messages import Evaluate, FromController, Hello, Message, Train
from arena.wire.zeromq import ZmqControllerTransport
from experiments.harness import parser_of, say
from populations.controller.server.run_directory import OpenRun
from populations.controller.server.server import Server
from populations.records.rows import Json
from populations.storage.lock import RunLock

MIB = 2**20


class NoLauncher:
    """Launcher that starts nothing: learners join by themselves."""

    def start(self, slot: int, populations: tuple[str, ...]) -> None:
        """Do nothing."""
        del slot, populations

    def kill(self, slot: int, *, dump_stacks: bool = False) -> None:
        """Do nothing."""
        del slot, dump_stacks

    def slot_of(self, hello: Hello) -> int | None:
        """Return no slot."""
        del hello
        return None

    def waiting(self) -> Collection[int]:
        """Return no slot."""
        return ()

    def exited(self) -> list[tuple[int, int | None]]:
        """Return no learner."""
        return []

    def close(self) -> None:
        """Do nothing."""


class WatchedTransport(ZmqControllerTransport):
    """The product's, with a stopwatch on what the loop does between two looks at it.

    Attributes:
        turns: Seconds of the wall clock, and of this thread's processor time, of each such time.
        given: Training assignments by policy.
        num_assigned: All assignments.
        num_received: Messages by kind.
        num_unsent: Messages that could not be sent.
        largest_portion: Messages that were there at once.
    """

    def __init__(self, endpoint: str, *, run: str, epoch: int) -> None:
        super().__init__(endpoint, run=run, epoch=epoch)
        self.turns: list[tuple[float, float]] = []
        self.given: Counter[str] = Counter()
        self.num_assigned = 0
        self.num_received: Counter[str] = Counter()
        self.num_unsent = 0
        self.largest_portion = 0
        self._since: tuple[float, float] | None = None

    def receive(self, timeout_s: float) -> list[tuple[LearnerId, Message]]:
        """See `ControllerTransport`."""
        if self._since is None:
            say({"endpoint": self.endpoint, "processor_s": time.process_time()})
        else:
            wall_s, processor_s = self._since
            self.turns.append((time.perf_counter() - wall_s, time.thread_time() - processor_s))
        received = super().receive(timeout_s)
        self._since = time.perf_counter(), time.thread_time()
        self.num_received.update(type(message).__name__ for _, message in received)
        self.largest_portion = max(self.largest_portion, len(received))
        return received

    def send(self, learner: LearnerId, message: FromController) -> bool:
        """See `ControllerTransport`."""
        is_sent = super().send(learner, message)
        self.num_unsent += not is_sent
        self.num_assigned += isinstance(message, Train | Evaluate)
        if isinstance(message, Train):
            self.given.update(trainee.policy for trainee in message.trainees)
        return is_sent


@dataclass(slots=True)
class Samples:
    """Samples, once a second, of what must not grow without bound.

    Attributes:
        rows: Seconds since the start, resident bytes, assignments given, open assignments, results
            that wait to be verified or handled, seconds of processor time.
    """

    run: OpenRun
    watch: WatchedTransport
    server: Server | None = None
    rows: list[tuple[float, int, int, int, int, float]] = field(default_factory=list)

    def take(self, status: Mapping[str, Json]) -> None:
        """Take each status of the server."""
        del status
        self.rows.append(
            (
                time.monotonic(),
                psutil.Process().memory_info().rss,
                self.watch.num_assigned,
                len(self.run.state.tables.assignments),
                self.server._inbox.num_awaited if self.server is not None else 0,
                time.process_time(),
            )
        )


def figures(run: OpenRun, watch: WatchedTransport, samples: Samples) -> dict[str, object]:
    """Return the run's figures, as plain data."""
    turns = np.array(watch.turns or [(0.0, 0.0)])
    rows = np.array(samples.rows, dtype=np.float64)
    times, rss, assigned = rows[:, 0], rows[:, 1], rows[:, 2]
    later = times >= times[0] + 0.25 * (times[-1] - times[0])
    policies = [watch.given[policy] for policy in run.state.tables.policies]
    return {
        "assigned": watch.num_assigned,
        "received": dict(watch.num_received),
        "unsent": watch.num_unsent,
        "largest_portion": watch.largest_portion,
        "turn_ms": {
            name: _spread(1e3 * turns[:, column])
            for column, name in enumerate(("wall", "processor"))
        },
        "processor_ms_per_assignment": 1e3 * _slope(assigned[later], rows[later, 5]),
        "policies": {"least": min(policies), "most": max(policies)},
        "most_open": int(rows[:, 3].max()),
        "most_pending": int(rows[:, 4].max()),
        "rss_mib": {"start": rss[0] / MIB, "end": rss[-1] / MIB, "most": rss.max() / MIB},
        "rss_mib_per_minute": 60.0 * _slope(times[later], rss[later]) / MIB,
        "rss_kib_per_assignment": _slope(assigned[later], rss[later]) / 1024.0,
    }


def _spread(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> dict[str, float]:
    p50, p99 = np.quantile(values, [0.5, 0.99])
    return {"p50": float(p50), "p99": float(p99), "most": float(values.max())}


def _slope(
    x: np.ndarray[tuple[int], np.dtype[np.float64]], y: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> float:
    """Return the slope of the straight line nearest to some points; 0 where there is none."""
    spread = x - x.mean()
    total = float(spread @ spread)
    return float(spread @ (y - y.mean())) / total if total > 0.0 else 0.0


def serve(run_dir: Path) -> dict[str, object]:
    """Be the controller of a run until SIGTERM."""
    with ExitStack() as stack:
        stack.enter_context(RunLock(run_dir))
        # The checkpoints of a written run were never made.
        run = stack.enter_context(OpenRun(run_dir, accept_loss=True))
        run.state.slots.clear()
        run_id, epoch = run.run_file.run, run.state.tables.run.epoch + 1
        watch = WatchedTransport(default_endpoint(run_id), run=run_id, epoch=epoch)
        stack.callback(watch.close, linger_s=1.0)
        samples = Samples(run, watch)
        server = samples.server = Server(
            run_dir=run_dir,
            state=run.state,
            journal=run.journal,
            transport=watch,
            launcher=NoLauncher(),
            sinks=run.sinks,
            on_status=samples.take,
        )
        signal.signal(signal.SIGTERM, lambda number, frame: server.request_stop("SIGTERM"))
        server.run()
        return figures(run, watch, samples)


def main() -> None:
    """Read the arguments and serve, perhaps under a profiler."""
    parser = parser_of(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--profile", type=Path, help="file for cProfile's statistics of the loop")
    arguments = parser.parse_args()
    if arguments.profile is None:
        say(serve(arguments.run))
        return
    import cProfile

    profiler = cProfile.Profile()
    say(profiler.runcall(serve, arguments.run))
    profiler.dump_stats(arguments.profile)


if __name__ == "__main__":
    main()
