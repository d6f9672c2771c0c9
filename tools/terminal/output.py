"""Output of commands: JSON for programs, tables for people, logs on the other stream.

Tests: `tests/tools/test_main.py`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .screen import Screen

SCHEMA = 1


def print_json(document: Mapping[str, object]) -> None:
    """Print one JSON document, and nothing else, on standard output.

    Raises:
        ValueError: If it holds a number that is not finite; JSON has none.
    """
    # Indented for people only: of a large league, indenting takes longer than reading.
    indent = 2 if sys.stdout.isatty() else None
    text = json.dumps({"schema": SCHEMA, **document}, indent=indent, allow_nan=False)
    # Encoded as a whole before: a number that JSON lacks leaves nothing half written.
    sys.stdout.write(f"{text}\n")


def console() -> Screen:
    """Return the screen for results: standard output, without colours if it is no terminal."""
    from .screen import Screen

    # In a pipe lines are not folded, so that programs find one thing on one line.
    return Screen(sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def log_console() -> Screen:
    """Return the screen for progress: standard error."""
    from .screen import Screen

    return Screen(sys.stderr, highlight=False)
