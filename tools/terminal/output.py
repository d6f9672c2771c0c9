"""Output of commands: JSON for programs, tables for people, logs on the other stream.

With ``--json`` standard output is one document, whatever users' code prints: a command runs with
standard error in its place, and the document goes to the descriptor that was there
(`set_output_aside`).

Tests: `tests/tools/test_main.py`.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
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
    # After "--" the text would not be an option. In tests standard output is another object.
    if "--json" not in arguments or sys.stdout is not sys.__stdout__:
        return
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    # A closed stream cannot be separated from the other one.
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
    # Documents are indented for people only: indenting that of a large league takes longer than
    # reading.
    indent = 2 if output.isatty() else None
    # The whole document is encoded first, so that a number that JSON lacks leaves no partial
    # output.
    output.write(f"{document_text(document, indent=indent)}\n")
    # The flush happens here, where a closed reader is not an error.
    output.flush()


def console() -> Screen:
    """Return the screen for results: standard output, without colours if it is no terminal."""
    from .screen import Screen

    # Lines are not folded in a pipe, so that programs find one item per line.
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


def paragraphs(command: Callable[..., None]) -> str:
    """Return a command's docstring with each paragraph on one line, for a terminal to wrap."""
    text = inspect.cleandoc(command.__doc__ or "")
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def count(number: int) -> str:
    """Write a count in at most seven characters: 12,345 or 1.35M."""
    if number < 100_000:
        return f"{number:,}"
    # The limit is 999.5, because with three digits rounding would give 1e+03.
    for unit, size in (("k", 10**3), ("M", 10**6), ("G", 10**9)):
        if number < 1000 * size:
            return f"{number / size:.3g}{unit}" if number / size < 999.5 else f"1{_above(unit)}"
    return f"{number:.3g}"


def _above(unit: str) -> str:
    return {"k": "M", "M": "G", "G": "T"}[unit]


def duration(seconds: float) -> str:
    """Write a time as people say it: 95 s, 12 min 30 s, 3 h 05 min."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
