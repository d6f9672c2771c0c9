"""A run whose learners are on other hosts: started, watched, stopped and counted."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from arena.learners.loop import ACK_LOG
from experiments.faults.hosts.learner import WITNESS, HostLearner
from experiments.faults.hosts.network import CONTROLLER, Network, within
from experiments.faults.hosts.sandbox import mounted_disk
from experiments.faults.killing import KilledRun, counters, killed_run
from experiments.faults.soak import SMALL
from populations.records.rows import AssignmentRow
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader

PORT = 5555
POLL_S = 0.2
JOIN_S = 240.0
BACK_S = 180.0
STOP_S = 120.0
OVERRIDES = tuple(change for change in SMALL if not change.startswith("learners="))


@dataclass(slots=True)
class World:
    """Everything of one regime. Owned by one thread.

    Attributes:
        directory: Directory of all hosts' directories.
        network: The hosts.
        run: The run; its controller is on a host of its own, with a learner beside it.
        learners: Learners of the other hosts, by host.
        minutes: Length of the regime.
        noted: Notes of the regime, beside the counts.
    """

    directory: Path
    network: Network
    run: KilledRun
    learners: dict[str, HostLearner]
    minutes: float
    noted: dict[str, list[object]] = field(default_factory=dict)

    def note(self, name: str, value: object) -> None:
        """Note one more value under a name."""
        self.noted.setdefault(name, []).append(value)

    def pause(self, share: float) -> None:
        """Let a share of the regime's time pass, which no condition can be waited for."""
        self.pause_s(60.0 * self.minutes * share)

    def pause_s(self, seconds: float) -> None:
        """Let time pass, as long as the run goes on."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.require_run()
            time.sleep(POLL_S)

    def require_run(self) -> None:
        """Check that the controller runs.

        Raises:
            RuntimeError: If it has ended by itself.
        """
        if self.run.is_over():
            raise RuntimeError(f"the run ended by itself: {self.run.log.read_text()[-4000:]}")

    def await_that(self, holds: Callable[[], bool], *, timeout_s: float) -> float | None:
        """Wait until something holds; returns the seconds that it took, None if it did not."""
        began_s = time.monotonic()
        while (waited_s := time.monotonic() - began_s) < timeout_s:
            if holds():
                return round(waited_s, 1)
            self.require_run()
            time.sleep(POLL_S)
        return None

    def finished(self) -> Counter[str]:
        """Return the numbers of assignments that each host has finished."""
        with JournalReader(self.run.run / JOURNAL) as reader:
            rows = reader.assignments(statuses=("finished",))
        return Counter(self.host_of(row) for row in rows)

    def host_of(self, row: AssignmentRow) -> str:
        """Return the host that ended an assignment."""
        key = (row.learner or "").partition(".")[0]
        keys = {f"remote-{at}": host for at, host in enumerate(self.learners)}
        return keys.get(key, CONTROLLER)

    def await_work(self, *, timeout_s: float = BACK_S) -> dict[str, float | None]:
        """Wait until each host has finished something more; returns the seconds it took."""
        before = self.finished()

        def works(host: str) -> bool:
            return self.finished()[host] > before[host]

        return {
            host: self.await_that(partial(works, host), timeout_s=timeout_s)
            for host in self.learners
        }


@contextlib.contextmanager
def world(
    directory: Path,
    hosts: Sequence[str],
    *,
    minutes: float,
    delay_ms: float = 0.0,
    run_disk_mb: int | None = None,
    cache_disk_mb: int | None = None,
    overrides: Sequence[str] = OVERRIDES,
) -> Iterator[World]:
    """Start a run and its learners, and wait until every host has finished an assignment."""
    environment = {"ARENA_TESTING": "1", "OMP_NUM_THREADS": "1"}
    network = Network(hosts, delay_ms=delay_ms, log=directory / "network.log")
    endpoint = f"tcp://{network.address(CONTROLLER)}:{PORT}"
    learners = {}
    with contextlib.ExitStack() as stack:
        for host in (CONTROLLER, *hosts):
            (directory / host / WITNESS).mkdir(parents=True)
        for host in hosts:
            hidden = [directory / other for other in (CONTROLLER, *hosts) if other != host]
            learners[host] = HostLearner(host, directory / host, hidden, endpoint, environment)
            stack.enter_context(mounted_disk(learners[host].cache, size_mb=cache_disk_mb))
        disk = directory / CONTROLLER / "disk"
        stack.enter_context(mounted_disk(disk, size_mb=run_disk_mb))
        stack.enter_context(network)
        own = {**environment, ACK_LOG: str(directory / CONTROLLER / WITNESS)}
        run = stack.enter_context(killed_run(disk, environment=own, prefix=within(CONTROLLER)))
        made = World(directory, network, run, learners, minutes)
        network.start_capture(directory / "capture.pcap")
        run.start(
            "connect_four",
            f"endpoint={endpoint}",
            f"remote_learners={len(hosts)}",
            "learners=1",
            *overrides,
        )
        try:
            made.await_that(lambda: counters(run.run) is not None, timeout_s=JOIN_S)
            keys = run.run / "keys"
            made.await_that(lambda: len(list(keys.glob("remote-*"))) >= len(hosts), timeout_s=9.0)
            for number, learner in enumerate(learners.values()):
                learner.start(run.run, key=f"remote-{number}")
            took = made.await_work(timeout_s=JOIN_S)
            if None in took.values():
                raise RuntimeError(f"a host did no work: {took}: {logs(made)}")
            yield made
        finally:
            for learner in learners.values():
                learner.stop()


def stop(made: World) -> list[str]:
    """Stop a run as Ctrl-C does; returns what is still alive or lies about."""
    process = made.run.process
    assert process is not None, "it was started"
    process.send_signal(signal.SIGINT)
    code = made.run.wait(timeout_s=STOP_S)
    left = [f"the controller's exit code is {code}"] if code != 130 else []
    made.run.await_nobody()
    for host, learner in made.learners.items():
        if not learner.await_end(STOP_S):
            left.append(f"{host}: its learner does not end")
        learner.stop()
    for host in (CONTROLLER, *made.learners):
        left += [f"{host}: {' '.join(one.cmdline())}" for one in made.network.processes(host)]
    made.run.verify()
    for root in (made.run.run, *(learner.cache for learner in made.learners.values())):
        left += [str(path) for path in root.rglob(".tmp-*")]
    return left


def send_probe(made: World, host: str, text: bytes) -> None:
    """Send words in the clear from a host to the controller's."""
    program = (
        "import socket, sys\n"
        "with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:\n"
        "    s.sendall(sys.argv[3].encode())\n"
    )
    # The controller hangs up on the probe, but the capture has seen it by then.
    address = made.network.address(CONTROLLER)
    subprocess.run(
        [*within(host), sys.executable, "-c", program, address, str(PORT), text.decode()],
        check=True,
    )


def logs(made: World) -> str:
    """Return the ends of all logs, for a person."""
    paths = [made.run.log, *(learner.log for learner in made.learners.values())]
    return "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in paths if path.exists())


def gather(made: World) -> Path:
    """Return a directory with the learners' logs of all hosts."""
    together = made.directory / "together"
    together.mkdir()
    sources = [made.directory / CONTROLLER, *(one.directory for one in made.learners.values())]
    for source in sources:
        for path in (source / WITNESS).glob("*.jsonl"):
            shutil.copy(path, together)
    return together
