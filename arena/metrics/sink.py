"""Where metrics go: the Sink Protocol, and the sinks that a configuration names.

Torch-free: the controller writes the metrics of what it has committed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, cast

from arena.errors import ConfigError


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


def make_sinks(names: Iterable[str], run_dir: Path) -> tuple[Sink, ...]:
    """Open the sinks that ``metrics.sinks`` names.

    Args:
        names: ``jsonl``, ``tensorboard`` or ``package.module:Name``.
        run_dir: Where they write.

    Raises:
        ConfigError: If a name is unknown or cannot be imported.
    """
    return tuple(_make_sink(name, run_dir) for name in names)


def _make_sink(name: str, run_dir: Path) -> Sink:
    if name == "jsonl":
        from arena.metrics.jsonl import JsonlSink

        return JsonlSink(run_dir / "metrics.jsonl")
    if name == "tensorboard":
        from arena.metrics.tensorboard import TensorboardSink

        return TensorboardSink(run_dir / "tensorboard")
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(
            f"metrics.sinks takes jsonl, tensorboard or package.module:Name, got {name!r}"
        )
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"metrics.sinks: {name!r} cannot be imported: {error}") from error
    return cast(Sink, factory(run_dir))
