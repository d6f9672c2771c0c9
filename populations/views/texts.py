"""Texts of users, files and other processes, made safe to show, and times that are read from them.

Tests: `tests/tools/terminal/test_signals.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime


def plain(text: str, *, keep: str = "") -> str:
    """Return a text that can be shown: characters that move the cursor, colour or reverse text are
    escaped.

    Args:
        text: Whatever a user, a file or another process wrote.
        keep: Characters that stay though they are not printable.
    """
    # Characters that control or turn round text are not printable in Python's sense.
    if text.isprintable():
        return text
    # repr writes "\x1b" for an escape; its quotes come off.
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def one_line(text: str, *, max_chars: int | None = None) -> str:
    """Return `plain` text with every run of white space as one blank, cut off where it is too
    long.
    """
    line = plain(" ".join(text.split()))
    return line if max_chars is None or len(line) <= max_chars else f"{line[:max_chars]}..."


def moment(time: object) -> datetime | None:
    """Return the moment of a document's time in UTC; None: there is none."""
    try:
        found = datetime.fromisoformat(str(time))
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def seconds(begin: object, end: object) -> float | None:
    """Return the seconds between two times of documents, at least 0; None if one is none."""
    first, last = moment(begin), moment(end)
    return None if first is None or last is None else max((last - first).total_seconds(), 0.0)


def texts(values: object) -> Iterator[str]:
    """Yield the texts of nested lists and objects, keys of objects among them."""
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping):
        yield from texts([*values.keys(), *values.values()])
    elif isinstance(values, Sequence):
        for one in values:
            yield from texts(one)
