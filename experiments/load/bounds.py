"""Cost of 10,000 policies and 200,000 matches, beside its bounds.

    python -m experiments.load.bounds             # in a temporary directory
    python -m experiments.load.bounds --run DIR   # makes the run there, or takes what is there

Prints, for each figure, what was measured, its bound and their ratio. Seconds of the wall clock
with those of the processor beside them: on a busy machine only the latter mean something.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from experiments.load.big_journal import Size, write_run
from experiments.load.scale import standings_s, timed
from populations.storage.database import JOURNAL

SIZE = Size(
    policies=10_000,
    assignments=2,
    ghosts=1,
    opponents=4,
    evaluations=1_667,
    pairings=12,
    matches=2,
)
"""Two matches of each pair at a time: 200,000 in 100,000 tallies."""

BOUNDS = {
    "start_s": 3.0,
    "standings_s": 1.0,
    "opponents_ms": 1.0,
    "memory_mb": 300.0,
}


def measured(run: Path) -> dict[str, float]:
    """Measure a run's start, standings, decision and memory."""
    wall_s, processor_s = standings_s(run)
    command = [sys.executable, "-m", "experiments.load.scale", "--controller", "--run", str(run)]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    controller = json.loads(text)
    return {
        "start_s": controller["ready_s"],
        "start_processor_s": controller["ready_processor_s"],
        "standings_s": wall_s,
        "standings_processor_s": processor_s,
        "opponents_ms": controller["decision_ms"],
        "memory_mb": controller["memory_mib"] * 2**20 / 1e6,
        "policies": SIZE.policies,
        "tallies": controller["tallies"],
    }


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run = arguments.run or Path(directory, "run")
        if not (run / JOURNAL).exists():
            seconds = timed(lambda: write_run(run, SIZE))
            sys.stderr.write(f"journal written in {seconds:.0f} s\n")
        figures = measured(run)
    shares = {name: figures[name] / bound for name, bound in BOUNDS.items()}
    if arguments.json:
        document = {"schema": 1, "measured": figures, "bounds": BOUNDS, "of_bound": shares}
        sys.stdout.write(json.dumps(document) + "\n")
        return
    for name, value in figures.items():
        of = f"  bound {BOUNDS[name]:g}: {shares[name]:.0%} of it" if name in BOUNDS else ""
        sys.stdout.write(f"{name} {value:.4g}{of}\n")


if __name__ == "__main__":
    main()
