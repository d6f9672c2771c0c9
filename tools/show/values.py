"""How each kind of value is written for people.

Tests: `tests/tools/show/test_values.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from string import Formatter
from typing import cast

from populations.league.names import short_name, short_names
from populations.views.log import has_kinds
from populations.views.parts import MAX_CELL, Column, Kind, Line, Room, Row
from populations.views.run import title_of
from populations.views.sentences import FIXED
from populations.views.texts import moment, plain, seconds

from ..terminal.output import count, duration

DIGEST = re.compile("[0-9a-f]{64}")
"""Digest of weights, which is the name of players that nothing else names."""

DIGEST_CHARS = 8

MAX_DATUM = 60
"""Most characters of one datum of an event without a sentence."""

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-=+*%#"
COPIED, CHANGED = "c", "m"
CURVE = (16, 48)
"""Fewest and most characters of a curve."""

BESIDE_CURVE = 64
"""Characters of a line that figures beside a curve take."""


def name(player: object, room: Room) -> str:
    """Return a player's name as it is shown."""
    if player is None:
        return "-"
    text = plain(str(player))
    if room.is_wide:
        return text
    if DIGEST.fullmatch(text):
        return text[:DIGEST_CHARS]
    return room.cut(short_name(text, populations=room.populations), MAX_CELL)


def text_of(value: object) -> str:
    """Return any value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        # Decimals of Elo and returns are noise from 100 on; values below 0.001 consist of decimals
        # only.
        if abs(value) >= 100:
            return f"{value:z.0f}"
        if 0 < abs(value) < 0.01:
            return f"{value:.3g}"
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if value in ({}, [], ()):
        return "none"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={text_of(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(text_of(one) for one in value)
    # Names may come from another machine, so control characters are removed.
    return plain(str(value))


def _clock(time: object, room: Room) -> str:
    found = moment(time)
    return "-" if found is None else f"{found:%H:%M:%S}"


def _since(times: object, room: Room) -> str:
    both = cast("Row", times)
    passed_s = seconds(both["started"], both["began"])
    if passed_s is None:
        return "-"
    hours, rest = divmod(int(passed_s), 3600)
    minutes = f"{rest // 60:02d}:{rest % 60:02d}"
    return f"{hours}:{minutes}" if hours else minutes


def _sentence(value: object, room: Room) -> str:
    text = text_of(value)
    return text if room.is_wide else short_names(text, populations=room.populations)


def _event(value: object, room: Room) -> str:
    """Return an event's sentence; without one its kind, its subject and its data."""
    row = cast("Row", value)
    if row.get("sentence"):
        return _sentence(row["sentence"], room)
    data = [f"{key}={room.cut(text_of(row[key]), MAX_DATUM)}" for key in row if key not in FIXED]
    subject = name(row["subject"], room) if row["subject"] else ""
    # The kind is left out of the text if it has a column of its own.
    kind = "" if has_kinds(room) else str(row["kind"])
    return "  ".join(part for part in (kind, subject, *data) if part)


def _error(value: object, room: Room) -> str:
    point = cast("Mapping[str, float]", value)
    if point.get("open"):
        return f"{point['rating_low']:z.0f}+"
    half = point["rating"] - point["rating_low"]
    return f"{point['rating']:z.0f}{'+-' if room.is_ascii else '±'}{half:z.0f}"


def _ends(pattern: str) -> Callable[[object, Room], str]:
    def written(value: object, room: Room) -> str:
        low, high = cast("tuple[float, float | None]", value)
        return pattern.format(low) + ("+" if high is None else f"..{pattern.format(high)}")

    return written


def _ranks(value: object, room: Room) -> str:
    low, high = cast("tuple[int, int]", value)
    return f"{low}" if low == high else f"{low}..{high}"


def _curve(value: object, room: Room) -> str:
    """Return a policy's ratings as a line of blocks over agent steps."""
    of = cast("Mapping[str, float]", value)
    points = cast("Sequence[Row]", of["points"])
    width = max(CURVE[0], min(CURVE[1], room.width - BESIDE_CURVE))
    blocks = ASCII_BLOCKS if room.is_ascii else BLOCKS
    drawn: list[str] = []
    generation = points[0]["generation"]
    for point in points:
        place = round(cast("int", point["agent_steps"]) / max(of["most"], 1) * (width - 1))
        level = (cast("float", point["rating"]) - of["low"]) / max(of["high"] - of["low"], 1e-9)
        block = blocks[min(int(level * len(blocks)), len(blocks) - 1)]
        # A checkpoint without a rating repeats the height of the one before it.
        drawn += [drawn[-1] if drawn and drawn[-1] in blocks else block] * (place - len(drawn))
        character = block
        if point["generation"] != generation:
            generation = point["generation"]
            character = COPIED if point["cause"] == "exploit" else CHANGED
        if len(drawn) <= place:
            drawn.append(character)
        elif drawn[place] in blocks:
            drawn[place] = character
        elif character == COPIED:
            drawn[place] = COPIED
    return "".join(drawn)


def _lines(value: object, room: Room, *, between: str = ", ") -> str:
    return between.join(line_text(line, room) for line in cast("Sequence[Line]", value))


def _names(value: object, room: Room, *, between: str = ", ") -> str:
    return between.join(name(one, room) for one in cast("Sequence[object]", value))


def _exact(value: object, room: Room) -> str:
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _formatted(pattern: str) -> Callable[[object, Room], str]:
    return lambda value, room: (
        pattern.format(value) if isinstance(value, int | float) else text_of(value)
    )


WRITTEN: Mapping[Kind, Callable[[object, Room], str]] = {
    "value": lambda value, room: text_of(value),
    "word": lambda value, room: text_of(value),
    "mark": lambda value, room: text_of(value or ""),
    "player": name,
    "game": lambda value, room: text_of(value),
    "players": _names,
    "versus": lambda value, room: _names(value, room, between=" v "),
    "elo": _formatted("{:z.0f}"),
    "signed": _formatted("{:+z.0f}"),
    "interval": _ends("{:z.0f}"),
    "error": _error,
    "ranks": _ranks,
    "count": lambda value, room: count(round(cast("float", value))),
    "share": _formatted("{:.3f}"),
    "shares": _ends("{:.3f}"),
    "percent": _formatted("{:.1%}"),
    "percents": _formatted("{:.0%}"),
    "parameter": lambda value, room: f"{value:.4g}" if type(value) is float else text_of(value),
    "duration": lambda value, room: duration(cast("float", value)),
    "time": _clock,
    "since": _since,
    "digest": lambda value, room: plain(str(value))[:DIGEST_CHARS],
    "exact": _exact,
    "listed": lambda value, room: ", ".join(
        f"{title_of(key)} {text_of(one)}" for key, one in cast("Row", value).items()
    ),
    "sentence": _sentence,
    "event": _event,
    "curve": _curve,
    "lines": _lines,
    "path": lambda value, room: _lines(value, room, between=" > " if room.is_ascii else " → "),
}
"""Text of a value of each kind that there is."""

LEFT: frozenset[Kind] = frozenset(
    {
        *("word", "mark", "player", "game", "players", "versus", "digest", "exact", "sentence"),
        *("event", "curve"),
    }
)
"""Kinds that begin at the left, as texts do."""

SHOWN_NULL: frozenset[Kind] = frozenset({"exact", "mark"})
"""Kinds of which null is a value."""

FLOWING: frozenset[Kind] = frozenset({"sentence", "event"})
"""Kinds that take the room that is left, in several lines if need be."""


def value_of(key: str, kind: Kind, row: Row) -> object:
    """Return a row's value of a kind; None: it has none."""
    if kind in ("interval", "shares", "ranks"):
        low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
        is_open = kind == "interval" and row.get(f"{key.removesuffix('rating')}open")
        if is_open and isinstance(low, int | float):
            return low, None
        return None if low is None or high is None else (low, high)
    return row if kind == "event" else row.get(key)


def text(value: object, kind: Kind, room: Room) -> str:
    """Return a value as people read it.

    Args:
        value: Value as `value_of` returns it.
        kind: Its kind.
        room: Room for it.
    """
    return "-" if value is None and kind not in SHOWN_NULL else WRITTEN[kind](value, room)


def cell_text(column: Column, row: Row, room: Room) -> str:
    """Return a cell of a table."""
    written = text(value_of(column.key, column.kind, row), column.kind, room)
    return written if column.kind in FLOWING else room.cut(written, column.most)


def fields_of(line: Line) -> Iterator[tuple[str, str, Kind]]:
    """Yield the text before each field of a line, and the field's key and kind; no key: none."""
    head, *pieces = line.template.split("|")
    known = (piece for piece in pieces if _is_known(piece, line.row))
    yield from _fields("".join((head, *known)))


def _fields(template: str) -> Iterator[tuple[str, str, Kind]]:
    for before, key, kind, _ in Formatter().parse(template):
        yield before, key or "", cast("Kind", kind or "value")


def _is_known(piece: str, row: Row) -> bool:
    return None not in (value_of(key, kind, row) for _, key, kind in _fields(piece) if key)


def line_text(line: Line, room: Room) -> str:
    """Return a line with its values."""
    parts = []
    for before, key, kind in fields_of(line):
        parts.append(before.replace("→", "->") if room.is_ascii else before)
        if key:
            parts.append(text(value_of(key, kind, line.row), kind, room))
    written = "".join(parts) + (f" ({line.hint})" if line.hint else "")
    return room.cut(written, line.most_lines * room.width) if line.most_lines else written
