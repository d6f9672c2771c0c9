"""A Connect Four run on a Ray cluster whose nodes come and go.

    python -m experiments.faults.ray_nodes --minutes 10 --every-s 60
    python -m experiments.faults.ray_nodes --minutes 2 --every-s 30 --json

The cluster is real, its nodes are processes on this machine: one for the controller, four with room
for a learner each. Every so often a node is removed and another one added, in turn in order and by
SIGKILL. Learners write down what they sent and what was acknowledged, which is compared with the
journal in the end, as in `experiments.faults.soak`.

Exit code 1 if anything was lost, invented, damaged, blamed on a policy or left behind. Ray is an
extra: exit code 2 without it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from arena.learners.loop import ACK_LOG
from arena.wire.keys import holder_of
from arena.wire.messages import Train
from experiments.faults.ack_logs import Comparison, compare
from experiments.faults.killing import KilledRun, counters, end_on_sigterm, killed_run
from experiments.faults.soak import SMALL
from populations.audit.evolution_checks import check_evolution
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.storage.status import read_status

NUM_NODES = 4
RATE_S = 10.0
"""Time over which a rate is taken."""

RECOVERED = 0.9
"""Share of the rate before, from which on a run has recovered."""

START_S = 180.0
STOP_S = 120.0
GONE_S = 15.0
NODE = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
PLACED = re.compile(r'(slot\d+-\d+) has a place: .*"node": "([0-9a-f]+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A node that was removed, and another one that was added.

    Attributes:
        at_s: When, since the start.
        in_order: Whether the node had a moment to end; else it was killed.
        all_back_s: Time until every learner worked again; None: not before the next change.
        recovered_s: Time until as much was trained as before; None: not before the next change.
    """

    at_s: float
    in_order: bool
    all_back_s: float | None
    recovered_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Result; see the module.

    Attributes:
        minutes: It took.
        changes: Nodes removed and added.
        agent_steps_per_s: Committed, over all.
        assignments_finished: Finished assignments in the journal.
        lost: Learners that were lost, by reason.
        failed_starts: Learners that ended without a Hello.
        exploits: Copies of weights.
        exploits_between_nodes: Those after which the policy trains on another node than the one
            that made the donor's checkpoint, if that is known still.
        exploits_half_done: Policies whose generation contradicts the journal; 0 if sound.
        quarantined: Policies that were blamed; 0 if sound.
        faults: Faults by `arena verify`.
        processes_left: 0.
        tallies: Tallies that learners know, beside the journal's.
    """

    minutes: float
    changes: list[Change]
    agent_steps_per_s: float
    assignments_finished: int
    lost: dict[str, int]
    failed_starts: int
    exploits: int
    exploits_between_nodes: int
    exploits_half_done: int
    quarantined: int
    faults: list[str]
    processes_left: int
    tallies: Comparison

    @property
    def is_sound(self) -> bool:
        """Whether nothing was lost, invented, damaged, blamed or left behind."""
        wrong = (self.faults, self.exploits_half_done, self.quarantined)
        return not any(wrong) and not self.processes_left and self.tallies.is_sound


@dataclass(slots=True)
class Nodes:
    """A cluster of nodes on this machine.

    Attributes:
        cluster: Ray's.
        directory: Its files, by which its processes are known.
        workers: Nodes with room for a learner.
    """

    cluster: Any
    directory: Path
    workers: list[Any] = field(default_factory=list)

    def add(self) -> None:
        """Add a node for one learner."""
        self.workers.append(self.cluster.add_node(num_cpus=1, **NODE))

    def replace(self, rng: random.Random, *, in_order: bool) -> None:
        """Remove a node, and add another one."""
        node = self.workers.pop(rng.randrange(len(self.workers)))
        self.cluster.remove_node(node, allow_graceful=in_order)
        self.add()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--every-s", type=float, default=60.0, help="seconds between two changes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if find_spec("ray") is None:
        sys.stderr.write("pip install ray\n")
        return 2
    end_on_sigterm()
    # A shell ignores SIGINT for what it runs in the background, and the run would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="arena-nodes-") as directory:
        figures = measure(
            Path(directory),
            seconds=60.0 * options.minutes,
            every_s=options.every_s,
            rng=random.Random(options.seed),
        )
    document = {"schema": 1, **asdict(figures)}
    sys.stdout.write(json.dumps(document, indent=1 if options.json else None) + "\n")
    return 0 if figures.is_sound else 1


def measure(directory: Path, *, seconds: float, every_s: float, rng: random.Random) -> Figures:
    """Train while nodes change; ends with a clean stop."""
    witness = directory / "witness"
    witness.mkdir()
    # For the nodes, whose learners inherit it.
    os.environ.update({"ARENA_TESTING": "1", ACK_LOG: str(witness), "OMP_NUM_THREADS": "1"})
    with killed_run(directory) as run:
        with nodes() as cluster:
            address = f"ray.address={cluster.cluster.address}"
            overrides = (f"learners={NUM_NODES}", "launcher=ray", address)
            run.start("connect_four", *SMALL, *overrides)
            _await(lambda: _num_working(run) == NUM_NODES, timeout_s=START_S)
            began_s = time.monotonic()
            changes = _change_nodes(run, cluster, seconds=seconds, every_s=every_s, rng=rng)
            minutes = (time.monotonic() - began_s) / 60.0
            _stop(run)
        left = _await_nobody(cluster.directory)
        run.verify()
        return _figures(run, witness, changes, minutes=minutes, left=left)


@contextlib.contextmanager
def nodes() -> Iterator[Nodes]:
    """Run a cluster with the nodes; it is on loopback, and its files go with it."""
    # Before Ray is imported.
    os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")
    from ray.cluster_utils import Cluster

    # Ray's sockets are in it, so its path is short.
    directory = Path(tempfile.mkdtemp(prefix="rn-", dir="/tmp"))
    head = {"num_cpus": 0, "temp_dir": str(directory), **NODE}
    found = Nodes(Cluster(initialize_head=True, head_node_args=head), directory)
    try:
        for _ in range(NUM_NODES):
            found.add()
        yield found
    finally:
        found.cluster.shutdown()
        shutil.rmtree(directory, ignore_errors=True)


def _change_nodes(
    run: KilledRun, cluster: Nodes, *, seconds: float, every_s: float, rng: random.Random
) -> list[Change]:
    """Sample the run once a second, and change a node every so often."""
    samples: list[tuple[float, int]] = []
    changes: list[Change] = []
    began_s = time.monotonic()
    while time.monotonic() - began_s + every_s <= seconds + 1.0:
        # The first one, too, has a rate before it.
        _sample(run, samples, until_s=time.monotonic() + every_s / 2 if not changes else 0.0)
        before = _rate(samples, span_s=min(every_s / 2, 30.0))
        changed_s = time.monotonic()
        in_order = len(changes) % 2 == 0
        cluster.replace(rng, in_order=in_order)
        back = _sample(run, samples, until_s=changed_s + every_s, rate=RECOVERED * before)
        change = Change(
            at_s=round(changed_s - began_s, 1),
            in_order=in_order,
            all_back_s=None if back[0] is None else round(back[0] - changed_s, 1),
            recovered_s=None if back[1] is None else round(back[1] - changed_s, 1),
        )
        changes.append(change)
        sys.stderr.write(f"{before:.0f} agent steps/s before; {change}\n")
    return changes


def _sample(
    run: KilledRun, samples: list[tuple[float, int]], *, until_s: float, rate: float = 0.0
) -> tuple[float | None, float | None]:
    """Sample until then; return when all learners were back, and when the rate was."""
    was_less, back_s, recovered_s = False, None, None
    begin_s = time.monotonic()
    while (now_s := time.monotonic()) < until_s:
        if run.is_over():
            raise RuntimeError(f"the run ended by itself: {run.log.read_text()[-4000:]}")
        row = counters(run.run)
        samples.append((now_s, 0 if row is None else row.agent_steps))
        working = _num_working(run)
        was_less = was_less or working < NUM_NODES
        if back_s is None and was_less and working == NUM_NODES:
            back_s = now_s
        is_new = now_s - begin_s >= RATE_S
        if recovered_s is None and is_new and _rate(samples, span_s=RATE_S) >= rate:
            # It was at that rate from then on.
            recovered_s = now_s - RATE_S
        time.sleep(1.0)
    return back_s, recovered_s


def _rate(samples: Sequence[tuple[float, int]], *, span_s: float) -> float:
    """Return agent steps per second over the last so many seconds."""
    if not samples:
        return 0.0
    last_s, last = samples[-1]
    first_s, first = next(one for one in samples if one[0] >= last_s - span_s)
    return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


def _num_working(run: KilledRun) -> int:
    status = read_status(run.run) if run.run.exists() else None
    learners = (status or {}).get("learners")
    # A learner of a node that is gone is listed until that is known; it is silent.
    return sum(
        isinstance(one, dict) and one["state"] == "working" and float(str(one["silent_s"])) < 3.0
        for one in (learners if isinstance(learners, list) else ())
    )


def _await(condition: Callable[[], object], *, timeout_s: float) -> None:
    until_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until_s:
            raise TimeoutError(f"nothing within {timeout_s:.0f} s")
        time.sleep(0.2)


def _stop(run: KilledRun) -> None:
    """Stop a run as Ctrl-C does: with everything saved."""
    assert run.process is not None, "it was started"
    run.process.send_signal(signal.SIGINT)
    code = run.wait(timeout_s=STOP_S)
    if code != 130:
        raise RuntimeError(f"exit code {code} after SIGINT: {run.log.read_text()[-4000:]}")


def _await_nobody(directory: Path) -> int:
    """Return how many processes of a cluster are left some time after its end."""
    until_s = time.monotonic() + GONE_S
    while (left := _processes(directory)) and time.monotonic() < until_s:
        time.sleep(0.2)
    return len(left)


def _processes(directory: Path) -> list[psutil.Process]:
    """Return the processes of a cluster: it is in their arguments, or their logs are in it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            paths = [*process.cmdline(), *(opened.path for opened in process.open_files())]
            if any(str(directory) in path for path in paths):
                found.append(process)
    return found


def _figures(
    run: KilledRun, witness: Path, changes: list[Change], *, minutes: float, left: int
) -> Figures:
    with JournalReader(run.run / JOURNAL) as reader, reader.snapshot():
        tables = reader.load()
        assignments = reader.assignments()
        tallies = reader.tallies()
        events = reader.events(kinds=["learner_lost", "learner_start_failed", "quarantined"])
    reasons = [str(e.data["reason"]) for e in events if e.kind == "learner_lost"]
    # Times are told apart by nobody; signals and codes are.
    reasons = [re.sub(r"[\d.]+ s\b", "N s", reason) for reason in reasons]
    placed = dict(PLACED.findall((run.run / "logs" / "controller.log").read_text()))
    node_of = {row.assignment_id: placed.get(holder_of(row.learner or "")) for row in assignments}
    copies = [
        (row.assignment_id, tables.checkpoints[trainee.checkpoint.key].assignment_id)
        for row in assignments
        if isinstance(row.message, Train) and row.status == "finished"
        for trainee in row.message.trainees
        if trainee.donor is not None
        and trainee.checkpoint is not None
        and trainee.checkpoint.key in tables.checkpoints
    ]
    return Figures(
        minutes=round(minutes, 1),
        changes=changes,
        agent_steps_per_s=round(tables.run.agent_steps / max(tables.run.elapsed_s, 1.0), 1),
        assignments_finished=tables.run.assignments_finished,
        lost={reason: reasons.count(reason) for reason in sorted(set(reasons))},
        failed_starts=sum(event.kind == "learner_start_failed" for event in events),
        exploits=tables.run.exploits,
        exploits_between_nodes=sum(node_of[here] != node_of.get(there) for here, there in copies),
        exploits_half_done=len(list(check_evolution(tables, {}))),
        quarantined=sum(event.kind == "quarantined" for event in events),
        faults=run.faults,
        processes_left=left,
        tallies=compare(witness, assignments, tallies),
    )


if __name__ == "__main__":
    sys.exit(main())
