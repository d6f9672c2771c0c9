"""The contract of `arena.metrics.sink.Sink`."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from arena.contracts.contract import Subject, name_of
from arena.metrics.sink import RUN, Sink, find_sinks
from arena.metrics.tracker import TRACKERS

Point = tuple[str, int, Mapping[str, float]]

FIRST = "the points of a run"

POINTS: Mapping[str, tuple[Point, ...]] = {
    FIRST: (
        ("player/p000", 128, {"loss/policy": -0.5, "episode/count": 3.0}),
        ("player/p001", 128, {"loss/policy": 0.25, "episode/count": 5.0}),
        (RUN, 256, {"run/ghosts_count": 1.0}),
    ),
    "names that were not there before": (
        ("player/p000", 256, {"loss/policy": -0.25, "rating/mean_elo": 12.0}),
    ),
    "names that are missing now": (("player/p000", 384, {"rating/mean_elo": 14.0}),),
    "a step before the last one (ratings are of older weights)": (
        ("player/p000", 200, {"rating/mean_elo": 16.0}),
    ),
    "no point at all": (("player/p000", 512, {}),),
    "very large, very small and whole numbers": (
        ("player/p000", 10**15, {"loss/value": 1e300, "loss/policy": -1e-300, "episode/count": 7}),
    ),
    "names that users chose": (
        ("team_one/p1000", 1, {"environment/goals-scored.left_mean": 1.0, "a/größe": 2.0}),
    ),
}


def check_sink(sink: Callable[[Path], Sink] | str, *, launch_directory: str = "") -> None:
    """Check that a sink takes all metrics of a run, and of its resume, and closes.

    Args:
        sink: Class, or an entry of ``metrics.sinks``: ``package.module:Class`` or a name of
            Arena's.
        launch_directory: Directory where ``package`` is looked for first; empty: where the process
            is.

    Raises:
        ContractBroken: With the first rule that it breaks.
    """
    subject = Subject(name_of(sink))
    with tempfile.TemporaryDirectory(prefix="arena-sink-") as directory:
        run_dir = Path(directory)
        make = _maker(subject, sink, run_dir, launch_directory)
        rule = "it must be made with the run's directory"
        _session(subject, make, rule=rule, points=POINTS)
        before = _files(run_dir)
        rule = "it must be made again in the same directory by a resume"
        # The second session writes fewer points, so a file that begins anew is shorter.
        _session(subject, make, rule=rule, points={FIRST: POINTS[FIRST]})
        after = _files(run_dir)
        lost = [name for name, size in before.items() if after.get(name, -1) < size]
        subject.must("a resume must keep what an earlier process has written", not lost, got=lost)


def _maker(
    subject: Subject, sink: Callable[[Path], Sink] | str, run_dir: Path, launch_directory: str
) -> Callable[[], Sink]:
    if not isinstance(sink, str):
        return lambda: sink(run_dir)
    rule = "it must be a sink; a tracker has none, and reads metrics.jsonl (check jsonl)"
    subject.must(rule, sink not in TRACKERS, got=sink)
    with subject.obeying("it must be found by its name in metrics.sinks"):
        (make,) = find_sinks([sink], run_dir, launch_directory=launch_directory).values()
    return make


def _session(
    subject: Subject,
    make: Callable[[], Sink],
    *,
    rule: str,
    points: Mapping[str, tuple[Point, ...]],
) -> None:
    """Use a sink as one process of a run does."""
    open_before, threads = _open_files(), set(threading.enumerate())
    made = subject.made(make, rule)
    subject.takes(made, "write", "", 0, {})
    for method in ("flush", "close"):
        subject.takes(made, method)
    with subject.obeying("flush must do nothing before the first point"):
        made.flush()
    for name, group in points.items():
        for policy, agent_steps, metrics in group:
            given = dict(metrics)
            with subject.obeying(f"write must take {name}"):
                made.write(policy, agent_steps, given)
            # All sinks of a run get the same mapping.
            subject.must("write must not change metrics", given == metrics, got=given)
    for method, number in (("flush", 2), ("close", 1)):
        for _ in range(number):
            with subject.obeying(f"{method} must not raise"):
                getattr(made, method)()
    left = sorted(_open_files() - open_before)
    subject.must("close must close every file", not left, got=left)
    running = [one.name for one in threading.enumerate() if one not in threads and one.is_alive()]
    subject.must("close must end every thread", not running, got=running)


def _files(run_dir: Path) -> dict[str, int]:
    return {
        str(path.relative_to(run_dir)): path.stat().st_size
        for path in run_dir.rglob("*")
        if path.is_file()
    }


def _open_files() -> set[str]:
    return {file.path for file in psutil.Process().open_files()}
