"""The Sink Protocol, and the lookup of the sinks that a configuration names.

Torch-free: the controller writes metrics itself, after it has committed what they describe.

Tests: `tests/arena/metrics/test_sinks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol, cast

from arena.errors import ConfigError
from arena.metrics.jsonl import JsonlSink
from arena.metrics.rotation import Rotation
from arena.metrics.tensorboard import TensorboardSink
from arena.metrics.tracker import TRACKERS, require_installed
from arena.processes.settings import SETTINGS
from arena.resolve import resolve

BYTES_PER_MB = 10**6

JSONL = "jsonl"
"""Sink that trackers read, too."""

METRICS_FILE = "metrics.jsonl"
"""Its file in a run directory."""

RUN = "run"
"""Placeholder for the policy in metrics of the whole run, whose step is the run's agent steps."""


class Sink(Protocol):
    """Destination for metrics. One owner, one thread; Arena reads nothing back.

    A user's sink is ``package.module:Name`` and is called with the run directory. Metrics are only
    shown: nothing decides by them, so a crash may lose the last ones.
    """

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        """Add points to curves, all at one step.

        Args:
            policy: Policy's id, ``player/p003``, or ``run`` for the whole run.
            agent_steps: Step of the points: the policy's count, or the run's.
            metrics: Finite numbers by ``group/name_unit``; `docs/reference/metrics.md` lists them.
        """

    def flush(self) -> None:
        """Hand all points to the operating system."""

    def close(self) -> None:
        """Flush and release; the sink is not used again."""


def find_sinks(
    names: Iterable[str],
    run_dir: Path,
    *,
    rotate_mb: int | None = None,
    keep_mb: int | None = None,
    launch_directory: str = "",
) -> dict[str, Callable[[], Sink]]:
    """Find the sinks that ``metrics.sinks`` names, without opening any.

    A tracker reads ``metrics.jsonl`` in a process of its own, so it stands for ``jsonl`` here.

    Args:
        names: ``jsonl``, ``tensorboard``, a tracker's name or ``package.module:Name``.
        run_dir: Directory that they write to.
        rotate_mb: Size at which ``jsonl`` and ``tensorboard`` begin new files, in 10^6 bytes;
            None: never.
        keep_mb: Size of the older files that stay, of each of the two; None: all stay.
        launch_directory: Directory searched first for user code; empty: the working directory.

    Returns:
        Factory of each sink, by its name.

    Raises:
        ConfigError: If a name is unknown, cannot be imported or is not installed.
    """
    rotation = Rotation(file_bytes=_bytes(rotate_mb), keep_bytes=_bytes(keep_mb))
    found = {}
    for name in names:
        if name in TRACKERS:
            require_installed(name)
            if rotate_mb is not None and keep_mb is not None and keep_mb <= rotate_mb:
                raise ConfigError(
                    f"metrics.keep_mb must be more than metrics.rotate_mb with {name}, which reads "
                    f"what was set aside, got {keep_mb} and {rotate_mb}"
                )
        own = JSONL if name in TRACKERS else name
        found[own] = _find_sink(own, run_dir, rotation, launch_directory)
    return found


def _bytes(megabytes: int | None) -> int | None:
    return None if megabytes is None else megabytes * BYTES_PER_MB


def _find_sink(
    name: str, run_dir: Path, rotation: Rotation, launch_directory: str
) -> Callable[[], Sink]:
    if name == JSONL:
        return lambda: JsonlSink(run_dir / METRICS_FILE, rotation=rotation)
    if name == "tensorboard":
        return lambda: TensorboardSink(run_dir / "tensorboard", rotation=rotation)
    if ":" not in name:
        raise ConfigError(
            f"metrics.sinks takes jsonl, tensorboard, {', '.join(TRACKERS)} or "
            f"package.module:Name, got {name!r}"
        )
    factory = resolve(name, launch_directory=launch_directory)
    if not callable(factory):
        raise ConfigError(f"metrics.sinks: {name} must be a class or function, got {factory!r}")
    make = cast(Callable[[Path], Sink], factory)
    return lambda: _UsersSink(SETTINGS.run(make, run_dir))


class _UsersSink:
    """A user's sink, called with the settings of users' code."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        SETTINGS.run(self._sink.write, policy, agent_steps, metrics)

    def flush(self) -> None:
        SETTINGS.run(self._sink.flush)

    def close(self) -> None:
        SETTINGS.run(self._sink.close)
