"""Escaping of untrusted texts before they are shown, and parsing of times in documents.

Tests: `tests/tools/terminal/test_signals.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime


def plain(text: str, *, keep: str = "") -> str:
    """Return a text with control characters escaped, so that it cannot move the cursor, colour or
    reverse other text.

    Args:
        text: Text from a user, a file or another process.
        keep: Characters that are not escaped although they are not printable.
    """
    # Python counts control characters and marks that reverse text as not printable.
    if text.isprintable():
        return text
    # repr escapes a character, and the slice removes its quotes.
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def one_line(text: str, *, max_chars: int | None = None) -> str:
    """Return `plain` text on one line: white space becomes single blanks, and text beyond
    ``max_chars`` becomes "...".
    """
    line = plain(" ".join(text.split()))
    return line if max_chars is None or len(line) <= max_chars else f"{line[:max_chars]}..."


def moment(time: object) -> datetime | None:
    """Return a document's time as a datetime in UTC; None if it is no time."""
    try:
        found = datetime.fromisoformat(str(time))
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def seconds(begin: object, end: object) -> float | None:
    """Return the seconds between two times of documents, at least 0; None if either is no time."""
    first, last = moment(begin), moment(end)
    return None if first is None or last is None else max((last - first).total_seconds(), 0.0)


def texts(values: object) -> Iterator[str]:
    """Yield all texts in nested lists and mappings, including the keys of mappings."""
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping):
        yield from texts([*values.keys(), *values.values()])
    elif isinstance(values, Sequence):
        for one in values:
            yield from texts(one)
