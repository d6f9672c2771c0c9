"""Controller under load: many learners, many policies, many more ghosts.

    python -m experiments.load.busy_controller --learners 1000 --policies 10000 --ghosts 200000
    python -m experiments.load.busy_controller ... --run DIR    # a run to keep and use again

The controller is the product's, in a process of its own: its journal on disk, store and socket.
The learners are simulated, on the real wire, in two other processes. Two phases: ``busy``, where
learners work in no time, so that the controller does as much as it can; and ``paced``, at half of
that, where the time from a Finished to the next assignment says how long a learner waits. Prints,
beside these: how evenly policies and learners were served, for how long the controller's loop was
away from its socket, what it queued, its memory and how that grows, and its start before and after.

Wall clock and processor time: on a busy machine only the latter, and ratios, mean something.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.harness import parser_of
from experiments.load.run import write_loaded_run
from populations.storage.database import JOURNAL

NUM_PROCESSES = 2
END_S = 120.0

Figures = dict[str, Any]


def note(line: str) -> None:
    """Say how far it is, on standard error."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


@contextmanager
def started(module: str, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process of this project; it ends with the block, whatever happens."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"experiments.{module}", *map(str, arguments)],
        stdin=subprocess.PIPE,
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


def heard(process: subprocess.Popen[str]) -> Figures:
    """Read the next line of a process."""
    assert process.stdout is not None, "it is a pipe"
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with code {process.wait()}")
    return dict(json.loads(line))


def measure(
    run_dir: Path, *, learners: int, phase_s: float, share: float, profile: Path | None = None
) -> Figures:
    """Put a run's controller under load, stop it, and start it once more."""
    more = () if profile is None else ("--profile", profile)
    with start_controller(run_dir, *more) as (controller, start):
        note(f"the controller listens after {start['wall_s']:.1f} s")
        swarms = serve_swarms(
            run_dir, start["endpoint"], learners=learners, phase_s=phase_s, share=share
        )
        with swarms as figures:
            note("the controller is told to stop")
            stopping_s = time.monotonic()
            controller.terminate()
            ended = heard(controller)
            stop_s = time.monotonic() - stopping_s
    with start_controller(run_dir) as (controller, resume):
        controller.terminate()
        heard(controller)
    del start["endpoint"], resume["endpoint"]
    return {
        "learners": learners,
        **figures,
        "controller": ended,
        "start": start,
        "stop_s": stop_s,
        "resume": resume,
    }


@contextmanager
def start_controller(
    run_dir: Path, *more: str | Path
) -> Iterator[tuple[subprocess.Popen[str], Figures]]:
    """Start a controller, and return it with the seconds until it listens."""
    before_s = time.monotonic()
    with started("load.controller_process", run_dir, *more) as process:
        ready = heard(process)
        yield process, {**ready, "wall_s": time.monotonic() - before_s}


@contextmanager
def serve_swarms(
    run_dir: Path, endpoint: str, *, learners: int, phase_s: float, share: float
) -> Iterator[Figures]:
    """Run learners until the block is over, and collect what they have measured."""
    each = -(-learners // NUM_PROCESSES)
    options = ("--phase-s", str(phase_s), "--share", str(share))

    def swarm(index: int) -> Any:
        count = min(each, learners - index * each)
        first = ("--first", str(index * each), "--learners", str(count))
        return started("load.learner_process", run_dir, endpoint, *first, *options)

    with swarm(0) as one, swarm(1) as other:
        for process in (one, other):
            heard(process)
        note("every learner has work")
        for process in (one, other):
            assert process.stdin is not None, "it is a pipe"
            process.stdin.write("go\n")
            process.stdin.flush()
        yield merged([heard(one), heard(other)])
        for process in (one, other):
            process.wait(END_S)


def merged(swarms: Sequence[Figures]) -> Figures:
    """Merge figures of all learners: counts add up, of times the longest counts."""
    phases = {
        phase: {
            name: (max if name.endswith("_ms") else sum)(swarm[phase][name] for swarm in swarms)
            for name in swarms[0][phase]
        }
        for phase in ("busy", "paced")
    }
    given = [count for swarm in swarms for count in swarm["given"]]
    fairness = {"least": min(given), "most": max(given)}
    return {
        **phases,
        "work_s": max(swarm["work_s"] for swarm in swarms),
        "by_learner": fairness,
        "lost": sum(swarm["lost"] for swarm in swarms),
    }


def lines(figures: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Return the figures by dotted name."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from lines(value, f"{prefix}{name}.")
        else:
            yield (
                f"{prefix}{name} {value:.5g}"
                if isinstance(value, float)
                else (f"{prefix}{name} {value}")
            )


def make_run(run_dir: Path, *, policies: int, ghosts: int) -> None:
    """Make a run, unless it is there."""
    if (run_dir / JOURNAL).exists():
        return
    note(f"writing a run of {policies:,} policies and {ghosts:,} ghosts")
    before_s = time.monotonic()
    write_loaded_run(run_dir, policies=policies, ghosts=ghosts)
    note(f"written in {time.monotonic() - before_s:.0f} s")


def main() -> None:
    """Read the arguments and measure."""
    parser = parser_of(__doc__)
    parser.add_argument("--learners", type=int, default=1000)
    parser.add_argument("--policies", type=int, default=10_000)
    parser.add_argument("--ghosts", type=int, default=200_000)
    parser.add_argument(
        "--phase-s", type=float, default=30.0, help="seconds of each of the two phases"
    )
    parser.add_argument(
        "--share", type=float, default=0.5, help="share of the busy rate, when paced"
    )
    parser.add_argument("--run", type=Path, help="directory that stays")
    parser.add_argument("--profile", type=Path, help="file for cProfile's statistics")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run_dir = arguments.run or Path(directory, "run")
        make_run(run_dir, policies=arguments.policies, ghosts=arguments.ghosts)
        figures = measure(
            run_dir,
            learners=arguments.learners,
            phase_s=arguments.phase_s,
            share=arguments.share,
            profile=arguments.profile,
        )
    size = {"schema": 1, "policies": arguments.policies, "ghosts": arguments.ghosts}
    document = {**size, **figures}
    text = json.dumps(document) if arguments.json else "\n".join(lines(document))
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
