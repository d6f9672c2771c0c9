"""Throughput of learners that are actors of Ray, beside the same learners as plain processes.

    python -m experiments.speed.ray_beside_local --rounds 5 --seconds 60

Each round trains Connect Four with either launcher, in turn first, on a Ray of the run's own.
Committed agent steps are counted from some seconds after all learners work, so that no start is in
it, from one commit to another.

Ray is an extra: exit code 2 without it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from experiments.faults.killing import KilledRun, counters, end_on_sigterm, killed_run
from populations.records.rows import RunRow
from populations.storage.status import read_status

START_S = 180.0
STOP_S = 120.0
WARM_S = 10.0
LAUNCHERS = ("local", "ray")
SETTINGS = (
    "evaluation.share=0.1",
    "metrics.sinks=[jsonl]",
    "stop.duration_s=null",
    "assignment.target_s=2",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print one line of JSON, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds that are counted")
    parser.add_argument("--learners", type=int, default=2)
    options = parser.parse_args(arguments)
    if find_spec("ray") is None:
        sys.stderr.write("pip install ray\n")
        return 2
    end_on_sigterm()
    # A shell ignores SIGINT for what it runs in the background, and the run would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rates: dict[str, list[float]] = {launcher: [] for launcher in LAUNCHERS}
    for number in range(options.rounds):
        # Neither is always the one that follows the other.
        for launcher in LAUNCHERS if number % 2 == 0 else LAUNCHERS[::-1]:
            rate = measure(
                launcher, seconds=options.seconds, learners=options.learners, seed=number
            )
            rates[launcher].append(round(rate, 1))
            sys.stderr.write(f"round {number + 1}: {launcher} {rate:.0f} agent steps/s\n")
    ratios = [ray / local for local, ray in zip(*rates.values(), strict=True)]
    document = {
        "schema": 1,
        "seconds": options.seconds,
        "learners": options.learners,
        "agent_steps_per_s": rates,
        "ratios": [round(ratio, 3) for ratio in ratios],
        "median_ratio": round(median(ratios), 3),
    }
    sys.stdout.write(json.dumps(document) + "\n")
    return 0


def measure(launcher: str, seconds: float, *, learners: int, seed: int) -> float:
    """Return committed agent steps per second of a run."""
    with (
        tempfile.TemporaryDirectory(prefix="arena-beside-") as directory,
        killed_run(Path(directory), environment={"OMP_NUM_THREADS": "1"}) as run,
    ):
        settings = (f"launcher={launcher}", f"learners={learners}", f"seed={seed}")
        run.start("connect_four", *SETTINGS, *settings)
        _await(run, lambda: _num_working(run) == learners)
        time.sleep(WARM_S)
        first_s, first = _next_commit(run)
        time.sleep(seconds)
        last_s, last = _next_commit(run)
        assert run.process is not None, "it was started"
        run.process.send_signal(signal.SIGINT)
        run.wait(timeout_s=STOP_S)
        return (last.agent_steps - first.agent_steps) / (last_s - first_s)


def _next_commit(run: KilledRun) -> tuple[float, RunRow]:
    """Wait until more agent steps are committed; return when, and the counters."""
    before = _counters(run).agent_steps
    _await(run, lambda: _counters(run).agent_steps > before)
    return time.monotonic(), _counters(run)


def _counters(run: KilledRun) -> RunRow:
    row = counters(run.run)
    assert row is not None, "it has a journal"
    return row


def _num_working(run: KilledRun) -> int:
    status = read_status(run.run) if run.run.exists() else None
    learners = (status or {}).get("learners")
    return sum(
        isinstance(one, dict) and one["state"] == "working"
        for one in (learners if isinstance(learners, list) else ())
    )


def _await(run: KilledRun, condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + START_S
    while not condition():
        if run.is_over() or time.monotonic() > until_s:
            raise RuntimeError(run.log.read_text()[-4000:])
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
