"""What commands print: JSON for programs, tables for people, logs on the other stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = 1


def print_json(document: Mapping[str, object]) -> None:
    """Print one JSON document, and nothing else, on standard output.

    Raises:
        ValueError: If it holds a number that is not finite; JSON has none.
    """
    # Indented for people only: of a large league, indenting takes longer than reading.
    indent = 2 if sys.stdout.isatty() else None
    text = json.dumps({"schema": SCHEMA, **document}, indent=indent, allow_nan=False)
    sys.stdout.write(f"{text}\n")


def console() -> Console:
    """Where people read results: standard output, without colours if it is no terminal."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def log_console() -> Console:
    """Where progress goes: standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def exit_code(error: Exception) -> int:
    """The exit code for an error that a command let pass; 3 for one that nobody expected."""
    from arena.errors import AddressInUse, CheckpointError, ConfigError
    from populations.errors import ResumeRefused, RunInUse, StorageError

    if isinstance(error, (ConfigError, ResumeRefused)):
        return 2
    if isinstance(error, (RunInUse, AddressInUse)):
        return 4
    if isinstance(error, (StorageError, CheckpointError)):
        return 5
    return 3
