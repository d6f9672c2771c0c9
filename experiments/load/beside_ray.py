"""Arena beside Ray Tune's PBT: as many trials of a trainable that does nothing, as ratios.

    python3 -m venv /tmp/ray-venv && /tmp/ray-venv/bin/pip install 'ray[tune]'
    python -m experiments.load.beside_ray --trials 100 --python /tmp/ray-venv/bin/python

Both have as many policies (trials), as many of them at once, a step that takes no time, and a tiny
checkpoint on disk after each; Arena keeps three of them, Tune all, which is faster for it. A result
of Tune's is an assignment of Arena's: work was done, its figures came in, it was decided, and the
next went out. Compared: results per second, how long a worker waits from the end of one to the next
(median and 99 in 100), processor time of the process that decides per result, its memory, and
seconds from nothing, and from a stopped experiment, to the first result (of Arena: until its
controller listens; what a learner takes to start depends on what it learns).

Ray is no dependency of Arena: exit code 2 where the interpreter has none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from experiments.load.busy_controller import Figures, lines, make_run, measure

TUNE = Path(__file__).with_name("ray_tune.py")
TIMEOUT_S = 1800.0


def tune(python: str, *arguments: str) -> Figures:
    """Run Ray Tune in an environment of its own, and return its figures."""
    done = subprocess.run(
        [python, str(TUNE), *arguments], stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S
    )
    if done.returncode != 0:
        sys.exit(done.returncode)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def ratios(arena: Figures, fresh: Figures, restored: Figures) -> dict[str, float]:
    """Return ratios; above 1, Arena is so many times better."""
    rate = arena["busy"]["assignments_per_s"]
    controller = arena["controller"]
    return {
        "results_per_s": rate / fresh["results_per_s"],
        "p50": fresh["p50_ms"] / arena["busy"]["p50_ms"],
        "p99": fresh["p99_ms"] / arena["busy"]["p99_ms"],
        "processor_per_result": fresh["processor_ms_per_result"]
        / controller["processor_ms_per_assignment"],
        "memory": fresh["memory_mib"] / controller["rss_mib"]["end"],
        "start": fresh["first_result_s"] / arena["start"]["wall_s"],
        "resume": restored["first_result_s"] / arena["resume"]["wall_s"],
    }


def main() -> None:
    """Read the arguments and measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--trials", type=int, default=100, help="number of trials, or of Arena's policies"
    )
    parser.add_argument(
        "--at-once", type=int, default=8, help="trials at once, or Arena's learners"
    )
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--python", default=sys.executable, help="interpreter that has Ray")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        common = ["--trials", str(arguments.trials), "--at-once", str(arguments.at_once)]
        common += ["--directory", directory, "--seconds", str(arguments.seconds)]
        fresh = tune(arguments.python, *common)
        restored = tune(arguments.python, *common, "--resume")
        run_dir = Path(directory, "arena")
        make_run(run_dir, policies=arguments.trials, ghosts=arguments.trials)
        arena = measure(run_dir, learners=arguments.at_once, phase_s=arguments.seconds, share=0.5)
    document = {
        "schema": 1,
        "trials": arguments.trials,
        "ratios": ratios(arena, fresh, restored),
        "ray": {"fresh": fresh, "restored": restored},
        "arena": arena,
    }
    sys.stdout.write(
        (json.dumps(document) if arguments.json else "\n".join(lines(document))) + "\n"
    )


if __name__ == "__main__":
    main()
