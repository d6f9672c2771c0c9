"""Output of commands: JSON for programs, tables for people, logs on the other stream.

With ``--json`` standard output is one document, whatever users' code prints: a command runs with
standard error in its place, and the document goes to the descriptor that was there
(`set_output_aside`).

Tests: `tests/tools/test_main.py`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from .screen import Screen

SCHEMA = 1

_aside: list[TextIO] = []
"""Standard output where it was set aside."""


def set_output_aside(arguments: Sequence[str]) -> None:
    """Keep standard output for the document, if the arguments ask for one.

    Whatever else is written there from then on, also by C code, goes to standard error.
    """
    # After "--" it would be no option. In tests another object stands for standard output.
    if "--json" not in arguments or sys.stdout is not sys.__stdout__:
        return
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    # One of them is closed: nothing can be kept apart.
    except OSError:
        return
    _aside.append(os.fdopen(kept, "w", encoding="utf8"))


def document_stream() -> TextIO:
    """Return the stream of the document."""
    return _aside[-1] if _aside else sys.stdout


def document_text(document: Mapping[str, object], *, indent: int | None = None) -> str:
    """Return a document as JSON, with the version of its form.

    Raises:
        ValueError: If it holds a number that is not finite; JSON has none.
    """
    return json.dumps({"schema": SCHEMA, **document}, indent=indent, allow_nan=False)


def print_json(document: Mapping[str, object]) -> None:
    """Print one JSON document, and nothing else, on standard output.

    Raises:
        ValueError: If it holds a number that is not finite; JSON has none.
    """
    output = document_stream()
    # Indented for people only: of a large league, indenting takes longer than reading.
    indent = 2 if output.isatty() else None
    # Encoded as a whole before: a number that JSON lacks leaves nothing half written.
    output.write(f"{document_text(document, indent=indent)}\n")
    # Now, where a reader that has gone away is no error.
    output.flush()


def console() -> Screen:
    """Return the screen for results: standard output, without colours if it is no terminal."""
    from .screen import Screen

    # In a pipe lines are not folded, so that programs find one thing on one line.
    return Screen(sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def log_console() -> Screen:
    """Return the screen for progress: standard error."""
    from .screen import Screen

    return Screen(sys.stderr, highlight=False)


def say(text: str) -> None:
    """Print a line of results, which is not folded."""
    console().print(text, soft_wrap=True)


def tell(text: str) -> None:
    """Print a line on standard error, which is not folded."""
    log_console().print(text, soft_wrap=True)
