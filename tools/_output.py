"""What commands print: JSON for programs, tables for people, logs on the other stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._screen import Screen

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


def console() -> Screen:
    """Where people read results: standard output, without colours if it is no terminal."""
    from ._screen import Screen

    return Screen(sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def log_console() -> Screen:
    """Where progress goes: standard error."""
    from ._screen import Screen

    return Screen(sys.stderr, highlight=False)


def plain(text: str, *, keep: str = "") -> str:
    """A text that can be shown: what moves the cursor, colours or turns round is written out.

    Args:
        text: Whatever a user, a file or another process wrote.
        keep: Characters that stay though they are not printable.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def one_line(text: str, *, max_chars: int | None = None) -> str:
    """As `plain`, with every run of white space as one blank, cut off where it is too long."""
    line = plain(" ".join(text.split()))
    return line if max_chars is None or len(line) <= max_chars else f"{line[:max_chars]}..."


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
