"""Measure what a healthy learner gets done beside a faulty process, in a real run.

    python -m experiments.faults.faulty_processes
    python -m experiments.faults.faulty_processes --kinds error storage --seconds 20 [KEY=VALUE]

For each kind of fault a preset is launched with one learner, and its agent steps per second are
taken in turn: alone, and beside a process that fails whatever it gets at once, after that was
dismissed. The process is started again --pause-s after each end, as a supervisor would; it joins
over the run's own socket. One JSON line for each kind: the rates of all windows, the ratio of their
sums, how often the process was dismissed and refused, the harm done, and the states of policies.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from experiments.commands import COMMAND
from experiments.faults.killing import counters
from populations.records.rows import EventRow
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.storage.status import read_status
from tests.assets import faulty_learner
from tests.assets.faulty_learner import KINDS

POLL_S = 0.2
PATIENCE_S = 120.0
HARM = ("quarantined", "checkpoint_corrupt", "ghost_corrupt", "storage_full")


class Options(Protocol):
    """Arguments of the command line."""

    preset: str
    kinds: list[str]
    seconds: float
    windows: int
    pause_s: float
    overrides: list[str]


@dataclass(slots=True)
class Supervised:
    """A faulty process that is started again some time after each end.

    Attributes:
        command: Command line of the process.
        pause_s: Seconds between an end and the next start.
        num_starts: Starts so far.
    """

    command: Sequence[str]
    pause_s: float
    num_starts: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _ended_s: float = field(default=float("-inf"))

    def keep_up(self) -> None:
        """Start the process if it has been gone for long enough."""
        if self._process is not None and self._process.poll() is not None:
            self._process, self._ended_s = None, time.monotonic()
        if self._process is None and time.monotonic() - self._ended_s >= self.pause_s:
            self._process = subprocess.Popen(self.command, stderr=subprocess.DEVNULL)
            self.num_starts += 1

    def stop(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextmanager
def launched(run: Path, options: Options) -> Iterator[subprocess.Popen[bytes]]:
    """Launch the preset with one learner and without an end; interrupt it afterwards."""
    changes = ("learners=1", "stop.duration_s=86400", *options.overrides)
    with (run.parent / "launch.log").open("wb") as log:
        process = subprocess.Popen(
            [*COMMAND, "launch", options.preset, "--run-dir", str(run), *changes],
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def events(run: Path) -> Counter[str]:
    """Count the events of each kind."""
    with JournalReader(run / JOURNAL) as reader:
        return Counter(row.kind for row in reader.events() if isinstance(row, EventRow))


def agent_steps(run: Path) -> int:
    """Return the run's agent steps, those of running assignments included."""
    row, status = counters(run), read_status(run)
    learners = status.get("learners") if status is not None else None
    done = 0 if row is None else row.agent_steps
    for learner in learners if isinstance(learners, list) else ():
        assert isinstance(learner, Mapping)
        running = learner["agent_steps"]
        assert isinstance(running, int)
        done += running
    return done


def window(run: Path, *, seconds: float, meanwhile: Callable[[], None]) -> float:
    """Return the agent steps per second of a stretch of time."""
    begin_s, before = time.monotonic(), agent_steps(run)
    while time.monotonic() - begin_s < seconds:
        meanwhile()
        time.sleep(POLL_S)
    return (agent_steps(run) - before) / (time.monotonic() - begin_s)


def await_that(holds: Callable[[], bool], *, meanwhile: Callable[[], None]) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: If it does not within `PATIENCE_S`.
    """
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end_s:
            raise TimeoutError(f"did not come to be within {PATIENCE_S:.0f} s")
        meanwhile()
        time.sleep(POLL_S)


def measured_run(kind: str, options: Options) -> dict[str, object]:
    """Launch a run for one kind of fault, and measure in it."""
    with tempfile.TemporaryDirectory() as directory:
        run = Path(directory) / "run"
        with launched(run, options):
            await_that(lambda: agent_steps(run) > 0, meanwhile=lambda: None)
            return measure(run, kind, options)


def measure(run: Path, kind: str, options: Options) -> dict[str, object]:
    """Measure one kind of fault, windows alone and beside it in turn."""
    status = read_status(run)
    assert status is not None
    script = str(Path(faulty_learner.__file__))
    command = [sys.executable, script, str(run / "learner.json"), str(status["endpoint"]), kind]
    before = events(run)
    alone, beside = [], []
    for _ in range(options.windows):
        alone.append(window(run, seconds=options.seconds, meanwhile=lambda: None))
        faulty = Supervised(command, pause_s=options.pause_s)

        def is_fenced() -> bool:
            return events(run)["learner_dismissed"] > 0

        try:
            await_that(is_fenced, meanwhile=faulty.keep_up)
            beside.append(window(run, seconds=options.seconds, meanwhile=faulty.keep_up))
        finally:
            faulty.stop()
    seen = events(run) - before
    with JournalReader(run / JOURNAL) as reader:
        policies = reader.load(pairs=()).policies.values()
    return {
        "kind": kind,
        "alone": [round(rate) for rate in alone],
        "beside": [round(rate) for rate in beside],
        "ratio": round(sum(beside) / sum(alone), 3),
        "dismissed": seen["learner_dismissed"],
        "refused": seen["learner_refused"],
        "harm": {name: seen[name] for name in HARM if seen[name]},
        "policies": sorted({f"{row.state}, {row.rescues} rescues" for row in policies}),
    }


def say(document: Mapping[str, object]) -> None:
    """Print a line of JSON."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each kind in a run of its own, and print a line as soon as it is done."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="connect_four", help="configuration to launch")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="faults")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a window")
    parser.add_argument("--windows", type=int, default=2, help="windows alone, and as many beside")
    parser.add_argument("--pause-s", type=float, default=20.0, help="pause between two starts")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="configuration changes")
    options: Options = parser.parse_args(arguments)
    for kind in options.kinds:
        say(measured_run(kind, options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
