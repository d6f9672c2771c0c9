"""Cost of 10,000 policies and 100,000 results, beside its bounds.

    python -m experiments.load.bounds             # in a temporary directory
    python -m experiments.load.bounds --run DIR   # makes the run there, or takes what is there

Prints, for each figure, what was measured, its bound and their ratio. Seconds of the wall clock
with those of the processor beside them: on a busy machine only the latter mean something.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from experiments.commands import COMMAND
from experiments.harness import in_process, parser_of, say
from experiments.planted_league.week import Size, write_long_league
from populations.storage.database import JOURNAL

NUM_POLICIES = 10_000
SIZE = Size(checkpoints=2, evaluated_every=2, ghosts_every=2, pairs=2, met=8)
"""Two results of evaluations and eight of training for each policy."""

ROUNDS = 5
DECISIONS = 200

BOUNDS = {
    "start_s": 3.0,
    "standings_s": 1.0,
    "opponents_ms": 1.0,
    "memory_mb": 300.0,
}


def standings_s(run: Path) -> tuple[float, float]:
    """Measure the command's median seconds, of the wall clock and of the processor."""
    walls, processors = [], []
    for _ in range(ROUNDS):
        before, started = os.times(), time.perf_counter()
        subprocess.run(
            [*COMMAND, "league", str(run), "standings", "--json"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        walls.append(time.perf_counter() - started)
        after = os.times()
        processors.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
    return statistics.median(walls), statistics.median(processors)


def timed(work: Callable[[], object]) -> float:
    """Time a block by the wall clock."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def controller(run: Path) -> dict[str, float]:
    """Open a run as the controller does, but for files of checkpoints; what that and work cost."""
    import psutil

    from populations.config.run_file import RunFile, learner_setup
    from populations.controller.lineups import draw_lineup
    from populations.controller.state.events import Now
    from populations.controller.state.state import make_state
    from populations.storage.journal import Journal

    run_file = RunFile.load(run / "run.yaml")
    setup = learner_setup(run_file, root=run)
    opened, opened_processor_s = time.perf_counter(), time.process_time()
    with Journal.open(run / JOURNAL) as journal:
        tables = journal.load()
        state = make_state(run_file.config, setup, tables)
    figures = {
        "start_s": time.perf_counter() - opened,
        "start_processor_s": time.process_time() - opened_processor_s,
        "memory_mb": psutil.Process().memory_info().rss / 1e6,
        "results": len(tables.pairs),
    }
    tx = state.begin(Now(monotonic_s=0.0, utc=""))
    policies = list(tables.policies.values())
    draw_lineup(state, tx, (policies[0],))  # The first draw fills the cache of candidates.
    figures["opponents_ms"] = (
        1e3
        * statistics.median(
            timed(lambda policy=policy: draw_lineup(state, tx, (policy,)).seatings)  # type: ignore[misc]
            for policy in policies[:DECISIONS]
        )
    )
    return figures


def measured(run: Path) -> dict[str, float]:
    """Measure a run's start, standings, decision and memory."""
    wall_s, processor_s = standings_s(run)
    return {
        "standings_s": wall_s,
        "standings_processor_s": processor_s,
        "policies": NUM_POLICIES,
        **in_process("load.bounds", "--controller", "--run", run),
    }


def main() -> None:
    """Read the arguments and measure."""
    parser = parser_of(__doc__)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--controller", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.controller:
        say(controller(arguments.run))
        return
    with tempfile.TemporaryDirectory() as directory:
        run = arguments.run or Path(directory, "run")
        if not (run / JOURNAL).exists():
            seconds = timed(lambda: write_long_league(run, SIZE, num_policies=NUM_POLICIES))
            sys.stderr.write(f"journal written in {seconds:.0f} s\n")
        figures = measured(run)
    shares = {name: figures[name] / bound for name, bound in BOUNDS.items()}
    if arguments.json:
        document = {"schema": 1, "measured": figures, "bounds": BOUNDS, "of_bound": shares}
        say(document)
        return
    for name, value in figures.items():
        of = f"  bound {BOUNDS[name]:g}: {shares[name]:.0%} of it" if name in BOUNDS else ""
        sys.stdout.write(f"{name} {value:.4g}{of}\n")


if __name__ == "__main__":
    main()
