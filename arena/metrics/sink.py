"""Where metrics go: the Sink Protocol, and the sinks that a configuration names.

Torch-free: the controller writes the metrics of what it has committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, cast

from arena.errors import ConfigError
from arena.metrics.jsonl import JsonlSink
from arena.metrics.tensorboard import TensorboardSink
from arena.resolve import resolve


class Sink(Protocol):
    """Takes metrics of policies. One owner, one thread; nothing is read back by Arena.

    A user's own sink is ``package.module:Name`` and is called with the run directory.
    """

    def write(self, policy: str, agent_steps: int, metrics: Mapping[str, float]) -> None:
        """Take what one committed assignment measured.

        Args:
            policy: Its id, ``player/p003``.
            agent_steps: The policy's count after the assignment: the metrics' position in time.
            metrics: Finite numbers by ``group/name``.
        """
        ...

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        ...

    def close(self) -> None:
        """Flush and release; the sink is not used again."""
        ...


def make_sinks(
    names: Iterable[str], run_dir: Path, *, launch_directory: str = ""
) -> tuple[Sink, ...]:
    """Open the sinks that ``metrics.sinks`` names.

    Args:
        names: ``jsonl``, ``tensorboard`` or ``package.module:Name``.
        run_dir: Where they write.
        launch_directory: Where user code is looked for first; empty: the working directory.

    Raises:
        ConfigError: If a name is unknown or cannot be imported.
    """
    return tuple(_make_sink(name, run_dir, launch_directory) for name in names)


def _make_sink(name: str, run_dir: Path, launch_directory: str) -> Sink:
    if name == "jsonl":
        return JsonlSink(run_dir / "metrics.jsonl")
    if name == "tensorboard":
        return TensorboardSink(run_dir / "tensorboard")
    if ":" not in name:
        raise ConfigError(
            f"metrics.sinks takes jsonl, tensorboard or package.module:Name, got {name!r}"
        )
    factory = resolve(name, launch_directory=launch_directory)
    if not callable(factory):
        raise ConfigError(f"metrics.sinks: {name} must be a class or function, got {factory!r}")
    return cast(Sink, factory(run_dir))
