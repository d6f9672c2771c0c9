"""Conversion of frozen dataclasses to JSON text and back, without changing a number.

Integers stay integers where the type says ``float`` (``num_epochs: 4`` among hyperparameters), so a
message read back equals the written one. Non-finite numbers are refused.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import get_args

from arena import decoding
from arena.decoding import (
    Annotation,
    Decode,
    Dialect,
    Plain,
    field_names,
    folded,
    is_union,
    origin_of,
    repeating_fields,
)


def to_json(value: object) -> str:
    """Return compact JSON text of plain data and dataclasses.

    Raises:
        ValueError: If a number is not finite, or the value is not plain data.
    """
    try:
        return _ENCODER.encode(value)
    except TypeError as error:
        raise ValueError(f"cannot be stored: {error}") from error


def _as_plain(value: object) -> object:
    kind: Annotation = type(value)
    names = field_names(kind)
    if names is not None:
        data = {name: getattr(value, name) for name in names}
        for name in repeating_fields(kind):
            # A list of many equal players takes a page of the journal, their places a line.
            data[name] = folded(data[name]) or data[name]
        return data
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


_ENCODER = json.JSONEncoder(default=_as_plain, allow_nan=False, separators=(",", ":"))


def decoder(annotation: Annotation) -> Decode:
    """Return a function from parsed JSON to a value of the annotated type, compiled once.

    The function raises ValueError for other data.

    Raises:
        TypeError: If the type has no decoder.
    """
    return decoding.decoder(annotation, JOURNAL)


def _whole(*allowed: type) -> Decode:
    rule = f"must be of type {' or '.join(kind.__name__ for kind in allowed)}"

    def decode(value: Plain) -> Plain:
        # Not isinstance: a bool is no int.
        if type(value) not in allowed:
            raise JOURNAL.refusal(rule, value)
        return value

    return decode


_SCALARS: Mapping[object, Decode] = {
    bool: _whole(bool),
    int: _whole(int),
    float: _whole(float, int),
    str: _whole(str),
}
_FREE_DATA = _whole(dict)


def _leaf(annotation: Annotation) -> Decode | None:
    # The data of an event is of all JSON types and needs no conversion.
    arguments = get_args(annotation)
    if origin_of(annotation) is Mapping and is_union(arguments[1]):
        return _FREE_DATA
    return _SCALARS.get(annotation)


def _by_type(_kind: type, _name: str, _annotation: Annotation) -> None:
    """Leave every field to its type."""


JOURNAL = Dialect(
    leaf=_leaf,
    field=_by_type,
    error=ValueError,
    is_quoting=True,
    needs_all_fields=False,
    removed_fields=frozenset(),
    max_items=sys.maxsize,
    max_entries=sys.maxsize,
)


def require_finite(value: float, *, name: str) -> float:
    """Return a number that may be stored.

    Raises:
        ValueError: If it is a NaN or an infinity.
    """
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return value
