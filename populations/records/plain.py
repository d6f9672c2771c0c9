"""Conversion of rows to JSON text and back, without changing a number.

A decoder accepts what a type declares and nothing else: a bool is no int, and an integer stays one
where the type says ``float`` (``num_epochs: 4`` among hyperparameters), so a row read back equals
the written one. Fields with a default may be missing. Non-finite numbers are refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

from arena.codec import folded

Annotation = Any
"""Type expression; typing has no static type for those."""

Plain = Any
"""Parsed JSON on the way in, a typed value on the way out."""

Decode = Callable[[Plain], Plain]

_UNIONS: tuple[object, ...] = (Union, types.UnionType)


@cache
def fields_of(kind: Annotation) -> tuple[FieldInfo, ...]:
    """Return the fields of a dataclass or Struct, in order; none of anything else."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return msgspec.structs.fields(kind)
    if not dataclasses.is_dataclass(kind):
        return ()
    # Annotations are texts here; hints are the types.
    hints = typing.get_type_hints(kind)
    return tuple(
        FieldInfo(
            name=field.name,
            encode_name=field.name,
            type=hints[field.name],
            default=_present(field.default),
            default_factory=_present(field.default_factory),
        )
        for field in dataclasses.fields(kind)
    )


def _present(default: Plain) -> Plain:
    return msgspec.NODEFAULT if default is dataclasses.MISSING else default


def to_json(value: object) -> str:
    """Return compact JSON text of plain data, dataclasses and Structs.

    Raises:
        ValueError: If a number is not finite, or the value is not plain data.
    """
    try:
        return _ENCODER.encode(value)
    except TypeError as error:
        raise ValueError(f"cannot be stored: {error}") from error


def _as_plain(value: object) -> object:
    kind: Annotation = type(value)
    if fields := fields_of(kind):
        data = {field.name: getattr(value, field.name) for field in fields}
        if isinstance(value, msgspec.Struct):
            for name, item in data.items():
                # A list of many equal players takes a page of the journal, their places a line.
                data[name] = (isinstance(item, tuple) and folded(item)) or item
        return data
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


_ENCODER = json.JSONEncoder(default=_as_plain, allow_nan=False, separators=(",", ":"))


def bare(annotation: Annotation) -> Annotation:
    """Return the type behind a ``NewType`` and behind bounds, which a journal does not check."""
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


@cache
def decoder(annotation: Annotation) -> Decode:
    """Return a function from parsed JSON to a value of the annotated type, compiled once.

    The function raises ValueError for other data.

    Raises:
        TypeError: If the type has no decoder.
    """
    annotation = bare(annotation)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if fields_of(annotation):
        return _fields(annotation)
    origin, arguments = origin_of(annotation), get_args(annotation)
    if origin is Literal:
        return _literal(frozenset(arguments))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(decoder(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        # The data of an event is of all JSON types and needs no conversion.
        if is_union(arguments[1]) and len(get_args(arguments[1])) > 2:
            return _whole(dict)
        return _mapping(decoder(arguments[0]), decoder(arguments[1]))
    present = [bare(argument) for argument in arguments if argument is not type(None)]
    if origin in _UNIONS and present == [int, float]:
        return _SCALARS[float]
    if origin in _UNIONS and len(present) == 1 < len(arguments):
        item = decoder(present[0])
        return lambda value: None if value is None else item(value)
    raise TypeError(f"no decoder for {annotation!r}")


def _refusal(rule: str, value: Plain) -> ValueError:
    return ValueError(f"{rule}, got {value!r:.100}")


def _whole(*allowed: type) -> Decode:
    rule = f"must be of type {' or '.join(kind.__name__ for kind in allowed)}"

    def decode(value: Plain) -> Plain:
        # Not isinstance: a bool is no int.
        if type(value) not in allowed:
            raise _refusal(rule, value)
        return value

    return decode


_SCALARS: Mapping[object, Decode] = {
    bool: _whole(bool),
    int: _whole(int),
    float: _whole(float, int),
    str: _whole(str),
}


def _literal(allowed: frozenset[object]) -> Decode:
    rule = f"must be one of {sorted(map(str, allowed))}"

    def decode(value: Plain) -> Plain:
        # By type as well: True is 1, and a list has no hash.
        if type(value) is not str or value not in allowed:
            raise _refusal(rule, value)
        return value

    return decode


def _sequence(item: Decode) -> Decode:
    """Return a decoder of a list, in both of its forms."""

    def decode(value: Plain) -> Plain:
        if type(value) is dict and value.keys() == {"items", "index"}:
            items, index = decode(value["items"]), value["index"]
            rule = f"index: must be places among {len(items)} items"
            if type(index) is not list:
                raise _refusal(rule, index)
            for place in index:
                if type(place) is not int or not 0 <= place < len(items):
                    raise _refusal(rule, place)
            return tuple([items[place] for place in index])
        if type(value) is not list:
            raise _refusal("must be a list", value)
        return tuple([item(element) for element in value])

    return decode


def _mapping(key: Decode, item: Decode) -> Decode:
    def decode(value: Plain) -> Plain:
        if type(value) is not dict:
            raise _refusal("must be a map", value)
        return {key(name): item(element) for name, element in value.items()}

    return decode


def _fields(kind: Annotation) -> Decode:
    fields = fields_of(kind)
    decoders = {field.name: decoder(field.type) for field in fields}
    needed = {field.name for field in fields if field.required}
    rule = f"must have the fields of {kind.__name__}, no others and all of them"

    def decode(value: Plain) -> Plain:
        if type(value) is not dict:
            raise _refusal("must be a map", value)
        if not needed <= value.keys() <= decoders.keys():
            raise _refusal(rule, value)
        name = ""
        try:
            values = {}
            for name, element in value.items():
                values[name] = decoders[name](element)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return kind(**values)

    return decode


def require_finite(value: float, *, name: str) -> float:
    """Return a number that may be stored.

    Raises:
        ValueError: If it is a NaN or an infinity.
    """
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return value
