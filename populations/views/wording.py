"""Templates of sentences: numbers, players and changes as people read them.

A template has fields ``{key:form}``: a key of an event's data (of a part by its dotted path), and
one of `FORMS`, and is divided into pieces by ``|``. A piece with a field that is unknown is left
out, because events of other releases have other data; a piece that begins with ``~`` stands only
where the one before it is left out. Values are put in as they are: what a value has of braces or
markup is no template.

Tests: `tests/populations/views/test_sentences.py`.
"""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Callable, Iterable, Mapping, Sequence

from populations.records.rows import Json

MAX_CHARS = 300
"""Characters of one text in a sentence; the event's data have all of it."""

MAX_LISTED = 4
"""Entries of a list that a sentence names; of more it says the number."""

OTHERWISE = "~"
"""Beginning of a piece that stands only where the piece before it is left out."""

Data = Mapping[str, Json]
Name = Callable[[str], str]
"""Function that returns how a player is called."""


Parsed = tuple[tuple[str, str | None, str], ...]
"""Texts of a piece, each with the key and form of the field behind it."""


@functools.cache
def _parsed(template: str) -> tuple[tuple[bool, Parsed], ...]:
    """Return the pieces of a sentence, each with whether it replaces the one before."""
    # The parts are kept, because a run has very many events of few kinds.
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
    """Return the keys that a sentence asks for, with their forms."""
    return frozenset(
        (key, form) for _, piece in _parsed(template) for _, key, form in piece if key is not None
    )


def told(template: str, data: Data, *, name: Name) -> str | None:
    """Return a sentence with its values, or None if not even its beginning is known."""
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
    # Keys may have dots themselves, so the whole path comes first.
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
    """Return a value on one line, cut off where it is too long; None if there is nothing."""
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
    """Return names as a sentence lists them: ``a, b and c``, or ``a, b, c, d and 3 more``."""
    names = list(names)
    if len(names) > MAX_LISTED + 1:
        names = [*names[:MAX_LISTED], f"{len(names) - MAX_LISTED} more"]
    if len(names) < 2:
        return names[0] if names else None
    return f"{', '.join(names[:-1])} and {names[-1]}"


def changes(old: Json, new: Json) -> str | None:
    """Return what differs between two mappings; None if nothing does, or they are none."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return None
    return listed(
        f"{text(key)} {_side(old.get(key))} -> {_side(value)}"
        for key, value in new.items()
        if old.get(key) != value
    )


def _side(value: Json) -> str:
    """Return a value before or after a change; a mapping with all that it has."""
    if isinstance(value, Mapping) and value:
        return f"{{{', '.join(f'{text(key)}: {_side(one)}' for key, one in value.items())}}}"
    return text(value) or "none"


def _number(pattern: str) -> Callable[[Json, Name], str | None]:
    def render(value: Json, _: Name) -> str | None:
        if not is_number(value):
            return None
        shown = pattern.format(value)
        # Rounding leaves a sign and no digit of a small negative number.
        return shown[1:] if shown.startswith("-") and not shown.strip("-0.") else shown

    return render


def _percent(value: Json, _: Name) -> str | None:
    if not is_number(value):
        return None
    assert isinstance(value, int | float)
    # A probability of 1 or 0 is never certain.
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
    """Return values that are pairs of before and after."""
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
    # A condition, which adds no text.
    "when": lambda value, _: "" if value else None,
}
"""Forms of a field: functions of its value and of the name of a player; None: unknown."""
