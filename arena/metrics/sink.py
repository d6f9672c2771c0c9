"""Where metrics go: the Sink Protocol, and how the sinks that a configuration names are found.

Torch-free: the controller writes the metrics of what it has committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol, cast

from arena.errors import ConfigError
from arena.metrics.jsonl import JsonlSink
from arena.metrics.tensorboard import TensorboardSink
from arena.resolve import resolve

RUN = "run"
"""In the place of a policy: figures of the whole run, by the run's agent steps."""


class Sink(Protocol):
    """Takes metrics of policies. One owner, one thread; nothing is read back by Arena.

    A user's own sink is ``package.module:Name`` and is called with the run directory.
    """

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        """Take some points of curves, all at one place.

        Args:
            policy: Its id, ``player/p003``, or ``run`` for the run's own.
            agent_steps: The policy's count, or the run's: where on the curves.
            metrics: Finite numbers by ``group/name_unit``; `populations/README.md` lists them.
        """
        ...

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        ...

    def close(self) -> None:
        """Flush and release; the sink is not used again."""
        ...


def find_sinks(
    names: Iterable[str], run_dir: Path, *, launch_directory: str = ""
) -> dict[str, Callable[[], Sink]]:
    """Find the sinks that ``metrics.sinks`` names; nothing is opened before they are called.

    Args:
        names: ``jsonl``, ``tensorboard`` or ``package.module:Name``.
        run_dir: Where they write.
        launch_directory: Where user code is looked for first; empty: the working directory.

    Returns:
        What makes each sink, by its name.

    Raises:
        ConfigError: If a name is unknown or cannot be imported.
    """
    return {name: _find_sink(name, run_dir, launch_directory) for name in names}


def _find_sink(name: str, run_dir: Path, launch_directory: str) -> Callable[[], Sink]:
    if name == "jsonl":
        return lambda: JsonlSink(run_dir / "metrics.jsonl")
    if name == "tensorboard":
        return lambda: TensorboardSink(run_dir / "tensorboard")
    if ":" not in name:
        raise ConfigError(
            f"metrics.sinks takes jsonl, tensorboard or package.module:Name, got {name!r}"
        )
    factory = resolve(name, launch_directory=launch_directory)
    if not callable(factory):
        raise ConfigError(f"metrics.sinks: {name} must be a class or function, got {factory!r}")
    make = cast(Callable[[Path], Sink], factory)
    return lambda: make(run_dir)
