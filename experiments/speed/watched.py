"""Speed of training beside readers of its page: rounds with clients and without, in turn.

python -m experiments.speed.watched --rounds 5 --round-s 120

A Connect Four run of two learners goes on all the time, and `arena web` serves it. In every second
round there are clients, each of which polls its page every five seconds as a visible one does, with
the ETag that it has. A line for each round, the ratio of the speeds of each pair of rounds,
and the largest WAL; both cores must be the run's own.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from experiments.faults.killing import KilledRun, killed_run
from experiments.load.scale import say
from populations.storage.database import JOURNAL

TOKEN = "a-token-of-measurements"
POLL_S = 5.0
PAGES = (
    *("index", "index", "standings", "payoff", "mixture", "ratings", "lineage"),
    *("hyperparameters", "metrics", "openings", "learners", "events", "player-p000"),
)
"""Pages that clients look at, in turn: many look at the overview."""

SAMPLE_S = 0.2
WARM_UP_ASSIGNMENTS = 20


@dataclass(slots=True)
class Round:
    """Measurement of one round.

    Attributes:
        agent_steps_per_s: Committed agent steps between the round's first and last commit.
        max_wal_bytes: Largest size of the journal's WAL.
        answers: Answers that clients got, by status.
    """

    agent_steps_per_s: float
    max_wal_bytes: int
    answers: dict[int, int]


def committed(run: Path) -> int:
    """Return a run's agent steps; one value, because all rows would be a reader of their own."""
    path = f"file:{run / JOURNAL}?mode=ro"
    with contextlib.closing(sqlite3.connect(path, uri=True)) as connection:
        (found,) = connection.execute("SELECT agent_steps FROM run").fetchone()
    return int(found)


def watch_round(run: Path, *, seconds: float) -> Round:
    """Measure a run for a while: from one commit to another, so that no assignment is cut."""
    end_s = time.monotonic() + seconds
    first: tuple[float, int] | None = None
    last, wal, seen = (0.0, 0), 0, -1
    while (now_s := time.monotonic()) < end_s:
        agent_steps = committed(run)
        if agent_steps != seen:
            # The first value is older than the round.
            if seen >= 0:
                first = first or (now_s, agent_steps)
                last = (now_s, agent_steps)
            seen = agent_steps
        path = run / f"{JOURNAL}-wal"
        wal = max(wal, path.stat().st_size if path.exists() else 0)
        time.sleep(SAMPLE_S)
    if first is None or last[0] <= first[0]:
        raise RuntimeError(f"fewer than two commits in {seconds} s: the rounds are too short")
    return Round((last[1] - first[1]) / (last[0] - first[0]), wal, {})


class Clients:
    """Clients of a page, each in a thread of its own, until they are stopped.

    Args:
        first: First address that the server said, with its token.
        num_clients: Number of clients.
    """

    def __init__(self, first: str, num_clients: int) -> None:
        self._netloc = urlsplit(first).netloc
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.answers: Counter[int] = Counter()
        """Answers, by status."""
        self._pool = ThreadPoolExecutor(num_clients)
        self._polls = [self._pool.submit(self._poll, number) for number in range(num_clients)]

    def stop(self) -> None:
        """End all clients; raise what one of them died of."""
        self._ended.set()
        self._pool.shutdown()
        for poll in self._polls:
            poll.result()

    def _poll(self, number: int) -> None:
        """Poll a page, as the script of a visible page does."""
        with contextlib.closing(HTTPConnection(self._netloc, timeout=60.0)) as connection:
            # Not all at the same moment.
            self._ended.wait(POLL_S * math.modf(number * 0.618)[0])
            headers = {"authorization": f"Bearer {TOKEN}"}
            while not self._ended.is_set():
                connection.request(
                    "GET", f"/run/{PAGES[number % len(PAGES)]}.html", headers=headers
                )
                answer = connection.getresponse()
                answer.read()
                # The server drops a connection that is idle for as long as a client waits.
                connection.close()
                if (etag := answer.headers["etag"]) is not None:
                    headers["if-none-match"] = etag
                with self._lock:
                    self.answers[answer.status] += 1
                self._ended.wait(POLL_S)


def poll_all(first: str, num_clients: int) -> None:
    """Poll as so many clients, and print their answers when the input ends."""
    clients = Clients(first, num_clients)
    sys.stdin.read()
    clients.stop()
    say(" ".join(f"{status}:{count}" for status, count in sorted(clients.answers.items())))


@contextlib.contextmanager
def served(run: Path) -> Iterator[str]:
    """Serve a run in a process of its own; give the first address that it says."""
    program = [sys.executable, "-m", "tools.main", "web", str(run), "--port", "0"]
    with subprocess.Popen(
        [*program, "--token", TOKEN], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        first = server.stdout.readline().strip()
        assert urlsplit(first).netloc, "the server says where it is"
        try:
            yield first
        finally:
            server.terminate()


@contextlib.contextmanager
def clients_of(first: str, num_clients: int, answers: dict[int, int]) -> Iterator[None]:
    """Have a server polled by clients in a process of their own; count their answers at the end."""
    poller = [sys.executable, "-m", __spec__.name if __spec__ else __name__, "--poll", first]
    with subprocess.Popen(
        [*poller, "--clients", str(num_clients)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield
        finally:
            told, _ = process.communicate("")
    if process.returncode:
        raise RuntimeError(f"the clients ended with {process.returncode}")
    for part in told.split():
        status, _, count = part.partition(":")
        answers[int(status)] = int(count)


def measure(*, rounds: int, seconds: float, num_clients: int) -> None:
    """Print a line for each round, and the ratio of the speeds."""
    duration_s = int(2 * rounds * seconds + 600)
    with tempfile.TemporaryDirectory() as directory, killed_run(Path(directory)) as run:
        run.start("connect_four", f"stop.duration_s={duration_s}")
        run.await_finished(WARM_UP_ASSIGNMENTS)
        say("| round | with clients | agent steps/s | WAL, MB | answers |")
        say("|---|---|---|---|---|")
        with served(run.run) as first:
            ratios = [
                _pair(run, first, number, seconds=seconds, num_clients=num_clients)
                for number in range(1, rounds + 1)
            ]
        say(f"ratios: {', '.join(f'{one:.3f}' for one in ratios)}")
        say(f"geometric mean: {statistics.geometric_mean(ratios):.3f}")


def _pair(run: KilledRun, first: str, number: int, *, seconds: float, num_clients: int) -> float:
    """Measure a round with clients and one without, the one first that was last before."""
    speeds: dict[bool, float] = {}
    for has_clients in (True, False) if number % 2 else (False, True):
        answers: dict[int, int] = {}
        if has_clients:
            with clients_of(first, num_clients, answers):
                found = watch_round(run.run, seconds=seconds)
        else:
            found = watch_round(run.run, seconds=seconds)
        speeds[has_clients] = found.agent_steps_per_s
        told = ", ".join(f"{count} of {status}" for status, count in answers.items())
        say(
            f"| {number} | {'yes' if has_clients else 'no'} | {found.agent_steps_per_s:,.0f} | "
            f"{found.max_wal_bytes / 1e6:.1f} | {told or '-'} |"
        )
    return speeds[True] / speeds[False]


def main() -> None:
    """Measure, or poll."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="Pairs of rounds.")
    parser.add_argument("--round-s", type=float, default=120.0, help="Seconds of a round.")
    parser.add_argument("--clients", type=int, default=20, help="Clients that poll.")
    parser.add_argument("--poll", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.poll:
        poll_all(given.poll, given.clients)
        return
    measure(rounds=given.rounds, seconds=given.round_s, num_clients=given.clients)


if __name__ == "__main__":
    main()
