"""A million messages that no learner would send, and a controller's answers to them.

    python -m experiments.faults.fuzz --messages 1000000 --seed 1
    python -m experiments.faults.fuzz --json

Two controllers, each the product's in a process of its own with its journal on disk, get half of
the messages each: one listens on loopback without keys, open to any peer; one wants keys, and
hostile peers have some of their own, unknown ones, or none (`fuzz_messages`, `fuzz_peers`). In each
half one healthy learner does simulated assignments over the same socket: first it holds one and is
idle, then nothing of the controller's state may change; then it works, and what it waits for
answers is measured. Memory is the controller's, over both. Ends with 1 if a bound is broken.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from arena.config import LearnerSetup
from arena.learners.loop import LearnerLoop, Progress, new_learner_id
from arena.types import LearnerId
from arena.wire.keys import KEYS, key_path, load_learner_keys
from arena.wire.messages import Acknowledge, Assignment, Finished, FromLearner, Header, Message
from arena.wire.zeromq import ZmqLearnerTransport
from experiments.faults.fuzz_controller import HEALTHY, HOSTILE
from experiments.faults.fuzz_messages import Victim
from experiments.faults.fuzz_peers import DUPLICATE
from experiments.harness import parser_of, say_document
from experiments.load.work import publishing_learner
from populations.config.run_config import validate_config
from populations.config.run_file import RUN_FILE, RunFile, learner_setup, new_run_file
from populations.controller.server.run_directory import SETUP, create_run
from populations.controller.server.server import utc_now
from tests.populations.controller.simulated import DUEL, duel_spec

MIB = 2**20
MAX_GROWTH_BYTES = 64 * MIB
DUPLICATE_BYTES = 64 * 1024
"""Bytes allowed beside that for each connection in the name of a peer that is connected.

A ROUTER reads no more of such a connection, so it never sees its end: libzmq 4.3.5 keeps 53 KiB of
each until the ROUTER closes, with keys and without. Other connections leave nothing.
"""

DEADLINE_S = 10.0
"""Seconds for an answer: half of it is a learner's wait before it sends a result a fifth time."""

WARM_UP_ASSIGNMENTS = 20
WORK_S = 0.05
PATIENCE_S = 900.0

Figures = dict[str, Any]
Note = Callable[[int], None]
"""Function that takes the number of messages sent so far."""


class Measured(ZmqLearnerTransport):
    """A learner's transport with a stopwatch: from a Finished to its Acknowledge.

    Attributes:
        latencies_s: One for each result.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.latencies_s: list[float] = []
        self._sent_s: dict[tuple[int, int], float] = {}

    def send(self, message: FromLearner, *, epoch: int) -> bool:
        """See `LearnerTransport`."""
        if isinstance(message, Finished):
            lease = (message.assignment_id, message.attempt)
            self._sent_s.setdefault(lease, time.monotonic())
        return super().send(message, epoch=epoch)

    def receive(self, timeout_s: float) -> tuple[Header, Message] | None:
        """See `LearnerTransport`."""
        received = super().receive(timeout_s)
        if received is not None and isinstance(received[1], Acknowledge):
            lease = (received[1].assignment_id, received[1].attempt)
            sent_s = self._sent_s.pop(lease, None)
            if sent_s is not None:
                self.latencies_s.append(time.monotonic() - sent_s)
        return received


@dataclass(slots=True)
class Healthy:
    """A proper learner in a thread of this process; its training is simulated.

    Attributes:
        transport: With a stopwatch.
        idle: While set, it holds what it has been given, and says that it gets on with it.
        holds: Set while it holds an assignment in this way: no result of an earlier one is to come.
        assignment_id: Assignment that it has begun last.
    """

    transport: Measured
    idle: threading.Event = field(default_factory=threading.Event)
    holds: threading.Event = field(default_factory=threading.Event)
    assignment_id: int = 0
    exit_code: int | None = None

    def serve(self, run_file: RunFile, setup: LearnerSetup, learner: LearnerId) -> None:
        """Work until told to stop. For a thread of its own."""
        simulated = publishing_learner(run_file, setup)
        healthy = self

        class Work:
            """Stand-in for the worker."""

            device = "cpu"

            def __init__(
                self, setup: LearnerSetup, *, progress: Progress, should_stop: Callable[[], bool]
            ) -> None:
                del setup
                self._progress = progress
                self._should_stop = should_stop

            def carry_out(self, assignment: Assignment) -> Finished:
                healthy.assignment_id = assignment.assignment_id
                self._progress.advance()
                time.sleep(WORK_S)
                while healthy.idle.is_set() and not self._should_stop():
                    healthy.holds.set()
                    self._progress.advance()
                    time.sleep(WORK_S)
                healthy.holds.clear()
                return simulated.carry_out(assignment)[0]

            def close(self) -> None:
                """Do nothing."""

        loop = LearnerLoop(setup, self.transport, (), learner=learner, make_work=Work)
        self.exit_code = loop.run()


@dataclass(slots=True)
class Reports:
    """Report of a controller about itself, each second.

    Attributes:
        last: The last one.
        number: Number of reports.
        most_rss_bytes: Most resident memory in any of them.
        is_over: Whether there will be no more.
    """

    last: Figures = field(default_factory=dict)
    number: int = 0
    most_rss_bytes: int = 0
    is_over: bool = False

    def read(self, process: subprocess.Popen[str]) -> None:
        """Read until the end. For a thread of its own."""
        assert process.stdout is not None
        for line in process.stdout:
            self.last = json.loads(line)
            self.most_rss_bytes = max(self.most_rss_bytes, self.last["rss_bytes"])
            self.number += 1
        self.is_over = True

    def wait(self, condition: Callable[[Figures], bool]) -> Figures:
        """Wait for the first report from now on of which something is true."""
        deadline_s = time.monotonic() + PATIENCE_S
        seen = self.number
        while time.monotonic() < deadline_s and not self.is_over:
            if self.number > seen:
                seen, report = self.number, self.last
                if condition(report):
                    return report
            time.sleep(0.02)
        raise RuntimeError(f"the controller {'has ended' if self.is_over else 'hangs'}")

    def settled(self) -> Figures:
        """Wait for a report after which nothing came in for a second, and nothing went on."""
        before: Figures = {}

        def is_settled(report: Figures) -> bool:
            nonlocal before
            same = all(
                report[name] == before.get(name, report) for name in ("digest", "bad_messages")
            )
            before = report
            return same and report["digest"] is not None

        return self.wait(is_settled)


@contextmanager
def started(module: str, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process of this project; it ends with the block, whatever happens."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"experiments.{module}", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        with process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.terminate()
    finally:
        process.kill()


def make_run(run_dir: Path) -> RunFile:
    """Make a new run that will not end by itself, without an environment.

    Nor does its league grow by the healthy learner's work: ghosts would take memory, too, and time.
    """
    config = validate_config(
        {
            **DUEL,
            "pbt": {**DUEL["pbt"], "warm_up_agent_steps": 10**12},  # type: ignore[dict-item]
            "ghosts": {"every_agent_steps": 10**12},
            "metrics": {"sinks": []},
            "stop": {"agent_steps_per_policy": 10**12},
        }
    )
    run_file = new_run_file(config, duel_spec(), name="fuzz", launch_directory=".")
    run_dir.mkdir()
    create_run(run_dir, run_file, initial_weights={}, utc=utc_now())
    return run_file


@contextmanager
def healthy_learner(run_dir: Path, *, endpoint: str, has_keys: bool) -> Iterator[Healthy]:
    """Start a learner that works until the controller says stop."""
    run_file = RunFile.load(run_dir / RUN_FILE)
    setup = learner_setup(run_file, root=run_dir)
    keys = load_learner_keys(key_path(run_dir / KEYS, HEALTHY)) if has_keys else None
    learner = new_learner_id(HEALTHY if has_keys else None)
    healthy = Healthy(Measured(endpoint, run=setup.run, learner=learner, keys=keys))
    thread = threading.Thread(target=healthy.serve, args=(run_file, setup, learner), daemon=True)
    thread.start()
    yield healthy
    thread.join(PATIENCE_S)


def attack(
    run_dir: Path, report: Figures, healthy: Healthy, *, messages: int, seed: int, note: Note
) -> Counter[str]:
    """Let hostile peers send so many messages; what they have sent, by kind."""
    setup = json.loads((run_dir / SETUP).read_text(encoding="utf8"))
    own = LearnerSetup.model_validate(setup)
    victim = Victim(
        run=own.run,
        epoch=report["epoch"],
        learner=report["learners"][0],
        assignment_id=healthy.assignment_id,
        environment_digest=own.spec.digest,
        config_digest=own.digest,
    )
    path = run_dir / "victim.json"
    path.write_text(json.dumps(asdict(victim)), encoding="utf8")
    options: list[str | Path] = ["--messages", str(messages), "--seed", str(seed)]
    if (run_dir / KEYS).exists():
        options += ["--keys", *(key_path(run_dir / KEYS, name) for name in HOSTILE)]
    sent: Counter[str] = Counter()
    with started("faults.fuzz_peers", report["endpoint"], path, *options) as peers:
        assert peers.stdout is not None
        for line in peers.stdout:
            sent = Counter(json.loads(line)["kinds"])
            note(sent.total())
        if peers.wait() != 0:
            raise RuntimeError(f"hostile peers ended with {peers.returncode}")
    return sent


def measure(run_dir: Path, *, messages: int, seed: int, has_keys: bool, note: Note) -> Figures:
    """Measure one controller, idle and working, among hostile peers."""
    make_run(run_dir)
    reports = Reports()
    with started(
        "faults.fuzz_controller", run_dir, *(("--keys",) if has_keys else ())
    ) as controller:
        reader = threading.Thread(target=reports.read, args=(controller,), daemon=True)
        reader.start()
        endpoint = reports.wait(lambda report: True)["endpoint"]
        with healthy_learner(run_dir, endpoint=endpoint, has_keys=has_keys) as healthy:
            reports.wait(lambda report: report["finished"] >= WARM_UP_ASSIGNMENTS)
            healthy.idle.set()
            if not healthy.holds.wait(PATIENCE_S):
                raise RuntimeError("the healthy learner hangs")
            before = reports.settled()
            reports.most_rss_bytes = 0
            half = messages // 2
            sent = attack(run_dir, before, healthy, messages=half, seed=seed, note=note)
            idle = reports.settled()
            healthy.idle.clear()
            healthy.transport.latencies_s.clear()
            started_s = time.monotonic()
            sent += attack(
                run_dir,
                idle,
                healthy,
                messages=messages - sent.total(),
                seed=seed + 1,
                note=lambda number: note(half + number),
            )
            duration_s = time.monotonic() - started_s
            latencies = np.array(healthy.transport.latencies_s)
            after = reports.wait(lambda report: True)
            controller.send_signal(signal.SIGTERM)
        reader.join(PATIENCE_S)
        code = controller.wait(PATIENCE_S)
    return {
        "messages_sent": sent.total(),
        "by_kind": dict(sorted(sent.items())),
        "bad_messages": after["bad_messages"],
        "state_before": before["digest"],
        "state_after": idle["digest"],
        "events_left": idle["events"] - before["events"],
        "working": {
            "assignments": len(latencies),
            "duration_s": duration_s,
            "p50_s": float(np.quantile(latencies, 0.5)) if len(latencies) else None,
            "p99_s": float(np.quantile(latencies, 0.99)) if len(latencies) else None,
            "max_s": float(latencies.max()) if len(latencies) else None,
        },
        "learners_lost": after["lost"],
        "rss_growth_mib": (reports.most_rss_bytes - before["rss_bytes"]) / MIB,
        "rss_growth_settled_mib": (idle["rss_bytes"] - before["rss_bytes"]) / MIB,
        "exit_codes": {"controller": code, "healthy_learner": healthy.exit_code},
    }


def faults(figures: Mapping[str, Any]) -> list[str]:
    """Return the bounds that one half has broken."""
    worst_s = figures["working"]["max_s"]
    duplicates = figures["by_kind"].get(DUPLICATE, 0)
    most_bytes = MAX_GROWTH_BYTES + DUPLICATE_BYTES * duplicates
    checks = {
        "the state changed": figures["state_before"] == figures["state_after"],
        "a learner was lost": figures["learners_lost"] == 0,
        "the healthy learner had to wait": worst_s is not None and worst_s < DEADLINE_S,
        "memory grew": figures["rss_growth_mib"] * MIB < most_bytes,
        "somebody did not end well": set(figures["exit_codes"].values()) == {0},
    }
    return [fault for fault, is_well in checks.items() if not is_well]


def fuzz(directory: Path, *, messages: int, seed: int, note: Note) -> Figures:
    """Measure both halves, and list what is wrong with them."""
    document: Figures = {"schema": 1, "seed": seed, "messages_sent": 0, "faults": []}
    for name, has_keys in (("without_keys", False), ("with_keys", True)):
        sent = document["messages_sent"]
        part = messages - sent if has_keys else messages // 2
        figures = measure(
            directory / name,
            messages=part,
            seed=seed,
            has_keys=has_keys,
            note=lambda number, sent=sent: note(sent + number),  # type: ignore[misc]
        )
        document[name] = figures
        document["messages_sent"] += figures["messages_sent"]
        document["faults"] += [f"{name}: {fault}" for fault in faults(figures)]
    return document


def main() -> None:
    """Read the arguments, attack, say what came of it."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    parser = parser_of(__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        Bar(console=Console(stderr=True)) as bar,
    ):
        task = bar.add_task("hostile messages", total=arguments.messages)
        document = fuzz(
            Path(directory),
            messages=arguments.messages,
            seed=arguments.seed,
            note=lambda number: bar.update(task, completed=number),
        )
    say_document(document, as_json=arguments.json)
    sys.exit(1 if document["faults"] else 0)


if __name__ == "__main__":
    main()
