"""Cost of a large league: 1,000 policies, 20,000 ghosts, 10 million matches.

    python -m experiments.load.scale                # makes the journal in a temporary directory
    python -m experiments.load.scale --run DIR      # makes it there, or takes the one that is there

Prints the journal's size and rows; seconds of `arena league RUN standings --json` as a process,
median of five; and of a controller of its own process: seconds until it is ready, its memory, what
choosing opponents and deciding about checkpoints takes, and a fit of all ratings. Seconds of the
wall clock, so other work on the machine shows; processor time beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from experiments.commands import COMMAND
from experiments.load.big_journal import Size, write_run
from populations.storage.database import JOURNAL

ROUNDS = 5
DECISIONS = 200


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


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
    from populations.controller.rating_fit import fit_input, fit_ratings, snapshot
    from populations.controller.state.events import Now
    from populations.controller.state.state import make_state
    from populations.storage.journal import Journal

    run_file = RunFile.load(run / "run.yaml")
    setup = learner_setup(run_file, root=run)
    opened, opened_processor_s = time.perf_counter(), time.process_time()
    with Journal.open(run / JOURNAL) as journal:
        loading = time.perf_counter()
        tables = journal.load()
        folding = time.perf_counter()
        state = make_state(run_file.config, setup, tables)
        ready = time.perf_counter()
    figures = {
        "open_s": loading - opened,
        "load_s": folding - loading,
        "fold_s": ready - folding,
        "ready_s": ready - opened,
        "ready_processor_s": time.process_time() - opened_processor_s,
        "memory_mib": psutil.Process().memory_info().rss / 2**20,
        "torch": float("torch" in sys.modules),
        "tallies": tables.num_tallies,
        "checkpoints": len(tables.checkpoints),
        "ghosts": len(tables.ghosts),
        "records": len(tables.records),
        "pairs": len(tables.pairs),
    }
    tx = state.begin(Now(monotonic_s=0.0, utc=""))
    policies = list(tables.policies.values())
    draw_lineup(state, tx, (policies[0],))  # fills the cache of candidates
    figures["decision_ms"] = (
        1e3
        * statistics.median(
            timed(lambda policy=policy: draw_lineup(state, tx, (policy,)).seatings)  # type: ignore[misc]
            for policy in policies[:DECISIONS]
        )
    )
    known = snapshot(state.league, tables)
    figures["snapshot_ms"] = 1e3 * timed(lambda: snapshot(state.league, tables))
    fits = fit_input(known)
    figures["fit_input_s"] = timed(lambda: fit_input(known))
    figures["fit_s"] = timed(lambda: fit_ratings(fits))
    figures["rated"] = len(fits.entrants)
    figures["memory_at_the_end_mib"] = psutil.Process().memory_info().rss / 2**20
    return figures


def measure(run: Path) -> None:
    """Print everything about one run directory."""
    if not (run / JOURNAL).exists():
        seconds = timed(lambda: write_run(run, Size()))
        say(f"journal written in {seconds:.0f} s")
    say(f"journal: {(run / JOURNAL).stat().st_size / 2**20:.0f} MiB")
    wall, processor = standings_s(run)
    say(f"arena league RUN standings --json: {wall:.2f} s ({processor:.2f} s of processor time)")
    command = [sys.executable, "-m", "experiments.load.scale", "--controller", "--run", str(run)]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    for name, value in json.loads(text).items():
        say(f"controller: {name} {value:.4g}")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--controller", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.controller:
        say(json.dumps(controller(arguments.run)))
    elif arguments.run is not None:
        measure(arguments.run)
    else:
        with tempfile.TemporaryDirectory() as directory:
            measure(Path(directory, "run"))


if __name__ == "__main__":
    main()
