"""The N-th fault of a scenario, for N = 1, 2, ... until it runs through: SQLite's method.

A scenario starts from a committed state A and ends in B. Whatever single fault happens on the way,
what is found after recovery is A or B and nothing else, every invariant holds, and from A the same
work leads to B.

    python -m tests.faults.nth SCENARIO SEED STORES     kills a child of its own at each point
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from arena.errors import ArenaError
from arena.failpoints import armed

MAX_POINTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Work on a directory.

    Attributes:
        seed: Makes state A in an empty directory.
        act: Leads from A to B; no torch, no processes.
        settle: Recovers, checks every invariant, and says which state it is.
    """

    seed: Callable[[Path], None]
    act: Callable[[Path], None]
    settle: Callable[[Path], str]


def num_hits(scenario: Scenario, directory: Path) -> Counter[str]:
    """How often an undisturbed run passes each point."""
    with armed("*=trace") as plan:
        scenario.act(directory)
    return Counter(plan.trace)


def states(scenario: Scenario, seed: Path, scratch: Path) -> tuple[str, str]:
    """A and B."""
    with copied(seed, scratch) as untouched:
        before = scenario.settle(untouched)
    with copied(seed, scratch) as done:
        scenario.act(done)
        after = scenario.settle(done)
    return before, after


def errors(scenario: Scenario, seed: Path, scratch: Path, *, code: str) -> Iterator[Outcome]:
    """Let the disk refuse at the 1st, 2nd, ... point; once for each, and once for none."""
    for nth in range(1, MAX_POINTS):
        with copied(seed, scratch) as directory:
            error: Exception | None = None
            with armed(f"*=raise:{code}@{nth}") as plan:
                try:
                    scenario.act(directory)
                except (ArenaError, OSError) as raised:
                    error = raised
            was_hit = len(plan.trace) >= nth
            name = plan.trace[nth - 1] if was_hit else ""
            yield Outcome(directory=directory, point=name, error=error)
        if not was_hit:
            return
    raise AssertionError("the scenario never ran through")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one fault left behind.

    Attributes:
        directory: Exists until the next one.
        point: Where it happened; empty: nowhere.
        error: What came of it.
    """

    directory: Path
    point: str
    error: Exception | None


@contextmanager
def copied(seed: Path, scratch: Path) -> Iterator[Path]:
    """A fresh copy of state A."""
    directory = scratch / "run"
    shutil.copytree(seed, directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def kills(name: str, seed: Path, stores: Path) -> list[Path]:
    """Copies of state A whose scenario was killed at its 1st, 2nd, ... point; the last one: not."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "tests.faults.nth", name, str(seed), str(stores)]
    subprocess.run(command, check=True, env=environment, timeout=60)
    return sorted(stores.iterdir())


def kill_at_each_point(scenario: Scenario, seed: Path, stores: Path) -> None:
    """What the process of `kills` does. It has one thread, so it may fork."""
    for nth in range(1, MAX_POINTS):
        directory = stores / f"{nth:03d}"
        shutil.copytree(seed, directory)
        child = os.fork()
        if child == 0:
            with armed(f"*=kill@{nth}"):
                scenario.act(directory)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return
        assert os.WIFSIGNALED(status), status
        assert os.WTERMSIG(status) == signal.SIGKILL, status
    raise AssertionError("the scenario never ran through")


if __name__ == "__main__":
    from tests.faults.scenarios import SCENARIOS

    kill_at_each_point(SCENARIOS[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3]))
