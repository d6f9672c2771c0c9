"""Throughput with a learner on another host, beside as many learners on the controller's."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from experiments.faults.hosts.figures import traffic_of
from experiments.faults.hosts.network import CONTROLLER
from experiments.faults.hosts.world import World, stop, world
from experiments.faults.killing import counters
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.storage.status import read_status

DEFAULTS = ("metrics.sinks=[jsonl]", "stop.duration_s=null")
NUM_LEARNERS = 2
START_S = 240.0
POLL_S = 0.2


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


def compare_throughput(rounds: int, *, minutes: float) -> Iterator[dict[str, object]]:
    """Measure in turn, the preset as it is: two learners on one host, and one on each of two."""
    rates: dict[str, list[float]] = {"one host": [], "two hosts": []}
    for number in range(rounds):
        order = ("one host", "two hosts") if number % 2 == 0 else ("two hosts", "one host")
        for name in order:
            hosts = ("host1",) if name == "two hosts" else ()
            with tempfile.TemporaryDirectory(prefix="arena-hosts-") as directory:
                line = _measure(Path(directory), hosts, minutes=minutes)
            rate = line["agent_steps_per_s"]
            assert isinstance(rate, float)
            rates[name].append(rate)
            yield {"round": number + 1, "learners": name, **line}
    ratios = sorted(
        two / one for one, two in zip(rates["one host"], rates["two hosts"], strict=True)
    )
    yield {
        "rates": rates,
        "ratio": round(sum(rates["two hosts"]) / sum(rates["one host"]), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def _measure(directory: Path, hosts: tuple[str, ...], *, minutes: float) -> dict[str, object]:
    local = NUM_LEARNERS - len(hosts)
    with world(directory, hosts, minutes=minutes, overrides=DEFAULTS, local_learners=local) as made:
        _await_all(made)
        before = made.finished()
        rate = window(made.run.run, seconds=60.0 * minutes, meanwhile=made.require_run)
        after = made.finished()
        with JournalReader(made.run.run / JOURNAL) as reader:
            rows = reader.assignments(statuses=("finished",))
        steps = {host: 0 for host in (CONTROLLER, *hosts)}
        for row in rows[sum(before.values()) :]:
            steps[made.host_of(row)] += row.agent_steps
        traffic = traffic_of(rows)
        left = stop(made)
    assert not left, left
    return {
        "agent_steps_per_s": round(rate, 1),
        "assignments": dict(after - before),
        "agent_steps_by_host": steps,
        "traffic": None if traffic is None else asdict(traffic),
    }


def _await_all(made: World) -> None:
    """Wait until all learners have ended something, so that all are warm."""

    def is_warm() -> bool:
        with JournalReader(made.run.run / JOURNAL) as reader:
            rows = reader.assignments(statuses=("finished",))
        trained = {row.learner for row in rows if row.agent_steps}
        return len(trained) == NUM_LEARNERS and agent_steps(made.run.run) > 0

    if made.await_that(is_warm, timeout_s=START_S) is None:
        raise TimeoutError(f"not all learners have trained within {START_S:.0f} s")
