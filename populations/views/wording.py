"""Templates of sentences: numbers, players and changes as people read them.

A template consists of pieces, separated by ``|``, with fields ``{key:form}``: a key of an event's
data (a dotted path for a nested value) and one of `FORMS`. A piece with an unknown field is left
out, because events of other releases have other data. A piece that begins with ``~`` replaces the
piece before it if that was left out. Braces and markup in values are not interpreted.

Tests: `tests/populations/views/test_sentences.py`.
"""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Callable, Iterable, Mapping, Sequence

from populations.records.rows import Json

MAX_CHARS = 300
"""Maximum length of a text in a sentence, in characters; the event's data have all of it."""

MAX_LISTED = 4
"""Number of a list's entries that a sentence names; the rest is counted."""

OTHERWISE = "~"
"""Beginning of a piece that is used only if the piece before it is left out."""

Data = Mapping[str, Json]
Name = Callable[[str], str]
"""Function from a player's id to the name that is shown."""


Parsed = tuple[tuple[str, str | None, str], ...]
"""Texts of a piece, each with the key and the form of the field after it."""


@functools.cache
def _parsed(template: str) -> tuple[tuple[bool, Parsed], ...]:
    """Return the pieces of a template, each with whether it replaces the piece before it."""
    # The result is cached, because a run has very many events of few kinds.
    return tuple(
        (
            piece.startswith(OTHERWISE),
            tuple(
                (text, key, form or "text")
                for text, key, form, _ in string.Formatter().parse(piece.removeprefix(OTHERWISE))
            ),
        )
        for piece in template.split("|")
    )


@functools.cache
def fields(template: str) -> frozenset[tuple[str, str]]:
    """Return the keys and forms of all fields of a template."""
    return frozenset(
        (key, form) for _, piece in _parsed(template) for _, key, form in piece if key is not None
    )


def told(template: str, data: Data, *, name: Name) -> str | None:
    """Return a template filled with data; None if a field of its first piece is unknown."""
    parts: list[str] = []
    is_shown = True
    for is_other, piece in _parsed(template):
        if is_other and is_shown:
            continue
        if not (is_other or is_shown or parts):
            return None
        part = _rendered(piece, data, name=name)
        is_shown = part is not None
        parts += [] if part is None else [part]
    return "".join(parts) or None


def _rendered(piece: Parsed, data: Data, *, name: Name) -> str | None:
    parts: list[str] = []
    for text, key, form in piece:
        parts.append(text)
        if key is not None:
            value = FORMS[form](_value(data, key), name)
            if value is None:
                return None
            parts.append(value)
    return "".join(parts)


def _value(data: Data, path: str) -> Json:
    # A key may contain dots, so look for the whole path first.
    if path in data:
        return data[path]
    value: Json = data
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def is_number(value: object) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def text(value: Json) -> str | None:
    """Return a value as text on one line, at most ``MAX_CHARS`` long; None if it is empty."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        shown = f"{value:.4g}" if isinstance(value, float) else f"{value}"
        return shown if is_number(value) else None
    if value is None or isinstance(value, Mapping):
        return None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return listed(text(one) or "-" for one in value)
    line = " ".join(str(value).split())
    if not line:
        return None
    return line if len(line) <= MAX_CHARS else f"{line[:MAX_CHARS]}..."


def listed(names: Iterable[str]) -> str | None:
    """Return names as a list in a sentence: ``a, b and c``, or ``a, b, c, d and 3 more``."""
    names = list(names)
    if len(names) > MAX_LISTED + 1:
        names = [*names[:MAX_LISTED], f"{len(names) - MAX_LISTED} more"]
    if len(names) < 2:
        return names[0] if names else None
    return f"{', '.join(names[:-1])} and {names[-1]}"


def changes(old: Json, new: Json) -> str | None:
    """Return the differences between two mappings in words; None if there are none."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return None
    return listed(
        f"{text(key)} {_side(old.get(key))} -> {_side(value)}"
        for key, value in new.items()
        if old.get(key) != value
    )


def _side(value: Json) -> str:
    """Return a value before or after a change as text, with all entries of a mapping."""
    if isinstance(value, Mapping) and value:
        return f"{{{', '.join(f'{text(key)}: {_side(one)}' for key, one in value.items())}}}"
    return text(value) or "none"


def _number(pattern: str) -> Callable[[Json, Name], str | None]:
    def render(value: Json, _: Name) -> str | None:
        if not is_number(value):
            return None
        shown = pattern.format(value)
        # A small negative number is rounded to "-0"; remove its sign.
        return shown[1:] if shown.startswith("-") and not shown.strip("-0.") else shown

    return render


def _percent(value: Json, _: Name) -> str | None:
    if not is_number(value):
        return None
    assert isinstance(value, int | float)
    # A rounded 100% or 0% would suggest certainty.
    if 0.999 < value <= 1.0:
        return "over 99.9%"
    if 0.0 <= value < 0.001:
        return "under 0.1%"
    return f"{100.0 * value:.1f}".removesuffix(".0") + "%"


def _player(value: Json, name: Name) -> str | None:
    found = text(value)
    return None if found is None or not isinstance(value, str) else name(found)


def _players(value: Json, name: Name) -> str | None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return _player(value, name)
    return listed(name(text(one) or "-") for one in value)


def _size(value: Json, _: Name) -> str | None:
    is_many = isinstance(value, Sequence | Mapping) and not isinstance(value, str)
    return f"{len(value):,}" if is_many and value else None  # type: ignore[arg-type]


def _values(value: Json, _: Name) -> str | None:
    if not isinstance(value, Mapping):
        return None
    return listed(f"{text(key)} {text(one) or 'none'}" for key, one in value.items())


def _pairs(value: Json, _: Name) -> str | None:
    """Return changes in words, from a mapping of keys to pairs of old and new value."""
    if not isinstance(value, Mapping):
        return None
    return listed(
        f"{text(key)} {_side(pair[0])} -> {_side(pair[1])}"
        for key, pair in value.items()
        if isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
    )


FORMS: Mapping[str, Callable[[Json, Name], str | None]] = {
    "text": lambda value, _: text(value),
    "count": _number("{:,.0f}"),
    "elo": _number("{:z,.0f}"),
    "number": _number("{:.3g}"),
    "seconds": _number("{:,.1f} s"),
    "percent": _percent,
    "player": _player,
    "players": _players,
    "size": _size,
    "values": _values,
    "pairs": _pairs,
    # This form adds no text; it makes the piece depend on a condition.
    "when": lambda value, _: "" if value else None,
}
"""Functions by form that render a field, from its value and the function for players' names; they
return None if the value is unknown.
"""
