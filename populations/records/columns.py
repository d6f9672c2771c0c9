"""Storage of the fields of rows: as native SQL values, packed numbers, or JSON text.

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
"""Type annotation of a field, as an object; Python has no static type for annotations."""

Plain = Any
"""Parsed JSON where a value is decoded, or a field's typed value where it is encoded."""

Value = None | int | float | str | bytes

_NATIVE: Mapping[object, str] = {
    bool: "INTEGER",
    int: "INTEGER",
    float: "REAL",
    str: "TEXT",
    bytes: "BLOB",
}
# An INTEGER of SQLite has 64 bits, sign included.
_MAX_INTEGER = 2**63 - 1
_UNIONS: tuple[object, ...] = (Union, types.UnionType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Storage of one field of a row as a column of SQLite.

    Attributes:
        name: Name of the field and of the column.
        declaration: SQL type and constraints.
        encode: Function from the field's value to the stored one; it raises ValueError for a value
            that must not be stored.
        decode: Function from the stored value to the field's; it raises ValueError or TypeError for
            a damaged value. None: both values are the same.
        decode_tagged: Function used in place of ``decode`` for a union of types; its second
            argument is the row's ``kind``, which selects the type.
    """

    name: str
    declaration: str
    encode: Callable[[Plain], Value]
    decode: Callable[[Plain], Plain] | None = None
    decode_tagged: Callable[[Plain, Plain], Plain] | None = None


def column_of(name: str, annotation: Annotation) -> Column:
    """Return the column that stores a field, by the field's name and type annotation."""
    kind, is_optional = _without_none(annotation)
    # Entrants are recognized before `bare` unwraps the NewType: their texts repeat the most, so
    # reading shares them.
    if kind is Entrant and not is_optional:
        return Column(name=name, declaration="TEXT NOT NULL", encode=str, decode=_shared)
    kind = bare(kind)
    if _origin(kind) is Literal:
        # Writing checks the word, too, because reading would refuse an unknown one.
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
        # The JSON of a union does not name the class of its value; the row's ``kind`` does.
        decode=None if is_union(kind) else json_reader(kind),
        decode_tagged=_tagged_json_decode(kind) if is_union(kind) else None,
    )


def _without_none(annotation: Annotation) -> tuple[Annotation, bool]:
    """Split ``X | None`` into X and True; any other annotation is returned with False."""
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
            # Adding 0.0 turns -0.0, which SQLite cannot store, into 0.0.
            return require_finite(float(value) + 0.0, name=name)
        if abs(int(value)) > _MAX_INTEGER:
            raise ValueError(f"{name} must fit 64 bits, got {value!r}")
        # SQLite has no bool, so True and False become 1 and 0.
        return int(value)

    return Column(
        name=name,
        declaration=_NATIVE[kind] + ("" if is_optional else " NOT NULL"),
        encode=encode,
        decode=_native_decode(kind, is_optional=is_optional),
    )


def _native_decode(kind: type, *, is_optional: bool) -> Callable[[Plain], Plain] | None:
    """Return the function that decodes a native value; None: no decoding is needed."""
    # A STRICT table has only values of the column's type, but a bool is stored as an integer.
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
    """Return the interned string of an entrant, so that equal names share one object in memory."""
    # Millions of pair rows may name the same few thousand entrants.
    return sys.intern(entrant)


def _pack_floats(values: Sequence[float], *, name: str) -> bytes:
    # The bytes are little-endian everywhere, because a run's directory may move to another machine.
    array = np.asarray(values, dtype="<f8")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite")
    return array.tobytes()


def _unpack_floats(data: bytes) -> tuple[float, ...]:
    values: list[float] = np.frombuffer(data, dtype="<f8").tolist()
    return tuple(values)


def _tagged_json_decode(kind: Annotation) -> Callable[[Plain, Plain], Plain]:
    """Return the decoder of a union of Structs: the row's ``kind`` selects one of them."""
    # The values of ``kind`` are the class names in lower case.
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
        # Fields with default values are written, too: a later release may have other defaults.
        return {name: _shorter(item) for name, item in msgspec.structs.asdict(value).items()}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


def _shorter(item: Plain) -> Plain:
    """Return a tuple with many equal items in the short form of `folded`; other values unchanged.

    An evaluation's message repeats its players hundreds of times, which would take a whole page.
    """
    if not isinstance(item, tuple):
        return item
    try:
        return folded(item) or item
    except TypeError:
        # Folding needs hashable items, and trainees have mappings of hyperparameters.
        return item


_ENCODER = json.JSONEncoder(default=_as_plain, allow_nan=False, separators=(",", ":"))


def json_reader(kind: Annotation) -> Callable[[str], Plain]:
    """Return a function from JSON text to a value of a type, compiled once.

    The function raises ValueError for text that is no such value.
    """
    read = msgspec.json.Decoder(kind).decode
    is_folded = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    # msgspec's own reader turns integers of more than 64 bits into floats. An event may have such
    # integers; hyperparameters cannot, because msgpack has none.
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
    """Return the generic behind an annotation: ``tuple`` for ``tuple[int, ...]``, and so on."""
    return get_origin(annotation)


def _unfolded(data: dict[str, Plain]) -> Plain:
    """Return the list that `folded` shortened to distinct items and indices; else the data itself.

    Raises:
        ValueError: If an index is not that of an item.
    """
    items, index = data.get("items"), data.get("index")
    if len(data) != 2 or type(items) is not list or type(index) is not list:
        return data
    if any(type(place) is not int or not 0 <= place < len(items) for place in index):
        raise ValueError(f"index: must be places among {len(items)} items")
    return [items[place] for place in index]


def bare(annotation: Annotation) -> Annotation:
    """Return the type behind ``NewType`` and ``Annotated``."""
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
    """Return a number unchanged after checking that it is finite.

    Raises:
        ValueError: If it is a NaN or an infinity.
    """
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return value
