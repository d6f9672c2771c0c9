"""How the fields of rows are stored: as native SQL values, packed numbers, or JSON text.

Tests: `tests/populations/records/test_tables.py` and `tests/populations/storage/test_journal.py`.
"""

from __future__ import annotations

import json
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import numpy as np

from arena.codec import folded
from arena.types import Entrant

Annotation = Any
"""Type expression; typing has no static type for those."""

Plain = Any
"""Parsed JSON on the way in, a typed value on the way out."""

Value = None | int | float | str | bytes

_NATIVE: Mapping[object, str] = {
    bool: "INTEGER",
    int: "INTEGER",
    float: "REAL",
    str: "TEXT",
    bytes: "BLOB",
}
# SQLite's INTEGER has 64 bits with the sign.
_MAX_INTEGER = 2**63 - 1
_UNIONS: tuple[object, ...] = (Union, types.UnionType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """How one field is stored.

    Attributes:
        name: Name of the field and of the column.
        declaration: SQL type and constraints.
        encode: To what SQLite takes; ValueError for what must not be stored.
        decode: Back, from the stored value; ValueError or TypeError for a damaged value. None:
            what SQLite gives is the value.
        decode_tagged: Instead of ``decode``, where the row's ``kind`` says what the value is.
    """

    name: str
    declaration: str
    encode: Callable[[Plain], Value]
    decode: Callable[[Plain], Plain] | None = None
    decode_tagged: Callable[[Plain, Plain], Plain] | None = None


def column_of(name: str, annotation: Annotation) -> Column:
    """Return how a field with a type is stored."""
    kind, is_optional = _without_none(annotation)
    # Before NewTypes are unwrapped below: no other text repeats so often.
    if kind is Entrant and not is_optional:
        return Column(name=name, declaration="TEXT NOT NULL", encode=str, decode=_shared)
    kind = bare(kind)
    if _origin(kind) is Literal:
        # Checked when it is written, too: a word that is not among them could not be read again.
        check = _word(frozenset(get_args(kind)))
        return Column(name=name, declaration="TEXT NOT NULL", encode=check, decode=check)
    if kind in _NATIVE:
        return _native_column(name, kind, is_optional=is_optional)
    if _origin(kind) is tuple and bare(get_args(kind)[0]) is float:
        return Column(
            name=name,
            declaration="BLOB NOT NULL",
            encode=lambda value: _pack_floats(value, name=name),
            decode=_unpack_floats,
        )
    return Column(
        name=name,
        declaration="TEXT NOT NULL",
        encode=to_json,
        # The JSON of a union does not name its class; the row's ``kind`` does.
        decode=None if is_union(kind) else json_reader(kind),
        decode_tagged=_tagged_json_decode(kind) if is_union(kind) else None,
    )


def _without_none(annotation: Annotation) -> tuple[Annotation, bool]:
    """Split ``X | None`` into X and whether None was there."""
    if is_union(annotation):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        if len(kinds) == 1:
            return kinds[0], True
    return annotation, False


def _native_column(name: str, kind: type, *, is_optional: bool) -> Column:
    def encode(value: Plain) -> Value:
        if value is None:
            if is_optional:
                return None
            raise ValueError(f"{name} must not be None")
        if kind is str:
            return str(value)
        if kind is bytes:
            return bytes(value)
        if kind is float:
            # Plus 0.0: SQLite has no -0.0.
            return require_finite(float(value) + 0.0, name=name)
        if abs(int(value)) > _MAX_INTEGER:
            raise ValueError(f"{name} must fit 64 bits, got {value!r}")
        # bool is stored as 0 or 1.
        return int(value)

    return Column(
        name=name,
        declaration=_NATIVE[kind] + ("" if is_optional else " NOT NULL"),
        encode=encode,
        decode=_native_decode(kind, is_optional=is_optional),
    )


def _native_decode(kind: type, *, is_optional: bool) -> Callable[[Plain], Plain] | None:
    """Return how a native value is read; None: it is the field's value as it is."""
    # STRICT tables hold no other type than the column's, but SQLite has no bool.
    if kind is bool:
        return lambda value: None if value is None else bool(value)
    return None


def _word(words: frozenset[str]) -> Callable[[Plain], Plain]:
    def check(value: Plain) -> Plain:
        if value not in words:
            raise ValueError(f"must be one of {sorted(words)}, got {value!r:.100}")
        return value

    return check


def _shared(entrant: str) -> str:
    """Return the one copy of an entrant's name."""
    # The rows of pairs name the same entrants again and again.
    return sys.intern(entrant)


def _pack_floats(values: Sequence[float], *, name: str) -> bytes:
    # Little-endian on every machine, for a run's directory may be moved.
    array = np.asarray(values, dtype="<f8")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite")
    return array.tobytes()


def _unpack_floats(data: bytes) -> tuple[float, ...]:
    values: list[float] = np.frombuffer(data, dtype="<f8").tolist()
    return tuple(values)


def _tagged_json_decode(kind: Annotation) -> Callable[[Plain, Plain], Plain]:
    """Decode JSON text of a union of Structs, told apart by the row's ``kind``."""
    # Names of the classes in lower case are the values of ``kind``.
    by_kind = {member.__name__.lower(): json_reader(member) for member in get_args(kind)}

    def decode(text: str, tag: Plain) -> Plain:
        if tag not in by_kind:
            raise ValueError(f"kind must be one of {sorted(by_kind)}, got {tag!r}")
        return by_kind[tag](text)

    return decode


def to_json(value: object) -> str:
    """Return compact JSON text of plain data and Structs.

    Raises:
        ValueError: If a number is not finite, or the value is not plain data.
    """
    try:
        return _ENCODER.encode(value)
    except TypeError as error:
        raise ValueError(f"cannot be stored: {error}") from error


def _as_plain(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        # All fields: a later release may have other defaults.
        return {name: _shorter(item) for name, item in msgspec.structs.asdict(value).items()}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


def _shorter(item: Plain) -> Plain:
    """Return a list of many equal players as a line: as it is, it takes a page of the journal."""
    if not isinstance(item, tuple):
        return item
    try:
        return folded(item) or item
    except TypeError:
        # Trainees have hyperparameters, which have no hash.
        return item


_ENCODER = json.JSONEncoder(default=_as_plain, allow_nan=False, separators=(",", ":"))


def json_reader(kind: Annotation) -> Callable[[str], Plain]:
    """Return a function from JSON text to a value of a type, compiled once.

    The function raises ValueError for other texts.
    """
    read = msgspec.json.Decoder(kind).decode
    is_folded = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    # To msgspec's own reader whole numbers of more than 64 bits are floats. Hyperparameters have
    # no such numbers, for msgpack has none; an event may.
    is_free = Any in get_args(kind)

    def decode(text: str) -> Plain:
        try:
            if is_folded or is_free:
                plain = json.loads(text, object_hook=_unfolded if is_folded else None)
                return msgspec.convert(plain, kind)
            return read(text)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from None

    return decode


def _origin(annotation: Annotation) -> object:
    """Return ``tuple`` of ``tuple[int, ...]``, ``Literal`` of a Literal, a union of ``X | Y``."""
    return get_origin(annotation)


def _unfolded(data: dict[str, Plain]) -> Plain:
    """Return the list that different items and their places stand for; anything else as it is."""
    items, index = data.get("items"), data.get("index")
    if len(data) != 2 or type(items) is not list or type(index) is not list:
        return data
    if any(type(place) is not int or not 0 <= place < len(items) for place in index):
        raise ValueError(f"index: must be places among {len(items)} items")
    return [items[place] for place in index]


def bare(annotation: Annotation) -> Annotation:
    """Return the type behind a ``NewType`` and behind bounds."""
    while True:
        if isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif _origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        else:
            return annotation


def is_union(annotation: Annotation) -> bool:
    """Return whether an annotation is ``X | Y``."""
    return _origin(annotation) in _UNIONS


def require_finite(value: float, *, name: str) -> float:
    """Return a number that may be stored.

    Raises:
        ValueError: If it is a NaN or an infinity.
    """
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return value
