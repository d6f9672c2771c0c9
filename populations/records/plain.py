"""Conversion of rows to JSON text and back, without changing a number.

What is read is what a type declares and nothing else: a bool is no int. Fields with a default may
be missing. Non-finite numbers are refused.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from arena.codec import folded, from_json
from arena.errors import DecodeError

Annotation = Any
"""Type expression; typing has no static type for those."""

Plain = Any
"""Parsed JSON on the way in, a typed value on the way out."""

_UNIONS: tuple[object, ...] = (Union, types.UnionType)


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
        # All fields: a later release may have other defaults. A list of many equal players takes a
        # page of the journal, their places a line.
        return {
            name: (isinstance(item, tuple) and folded(item)) or item
            for name, item in msgspec.structs.asdict(value).items()
        }
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


_ENCODER = json.JSONEncoder(default=_as_plain, allow_nan=False, separators=(",", ":"))


def json_reader(kind: Annotation) -> Callable[[str], Plain]:
    """Return a function from JSON text to a value of a type.

    The function raises ValueError for other texts.
    """
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return lambda text: converted(json.loads(text), kind)

    def decode(text: str) -> Plain:
        try:
            return from_json(text, kind, unfolds=True)
        except DecodeError as error:
            raise ValueError(str(error)) from None

    return decode


def converted(value: Plain, kind: Annotation) -> Plain:
    """Return plain data as a value of a type.

    Raises:
        ValueError: If it is none.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def bare(annotation: Annotation) -> Annotation:
    """Return the type behind a ``NewType`` and behind bounds."""
    while True:
        if isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif origin_of(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        else:
            return annotation


def origin_of(annotation: Annotation) -> object:
    """Return ``tuple`` of ``tuple[int, ...]``, ``Literal`` of a Literal, a union of ``X | Y``."""
    return get_origin(annotation)


def is_union(annotation: Annotation) -> bool:
    """Return whether an annotation is ``X | Y``."""
    return origin_of(annotation) in _UNIONS


def require_finite(value: float, *, name: str) -> float:
    """Return a number that may be stored.

    Raises:
        ValueError: If it is a NaN or an infinity.
    """
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return value
