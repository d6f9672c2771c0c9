"""Conversion of frozen dataclasses to JSON text and back, without changing a number.

Integers stay integers where the type says ``float`` (``num_epochs: 4`` among hyperparameters), so a
message read back equals the written one. Non-finite numbers are refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

from arena.wire.typed import field_names

Annotation = Any
"""Type expression; typing has no static type for those."""

Plain = Any
"""Parsed JSON on the way in, a typed value on the way out."""

REMOVED_FIELDS = frozenset({"deadline_s"})
"""Fields of older releases that have no meaning any more."""

Decode = Callable[[Plain], Plain]

_UNIONS: tuple[object, ...] = (Union, types.UnionType)

_SCALARS: Mapping[object, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (float, int),
    str: (str,),
    type(None): (type(None),),
}


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
        return {name: getattr(value, name) for name in names}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


_ENCODER = json.JSONEncoder(default=_as_plain, allow_nan=False, separators=(",", ":"))


def origin_of(annotation: Annotation) -> object:
    """Return ``tuple`` of ``tuple[int, ...]``, ``Literal`` of a Literal, a union type of
    a union.
    """
    return get_origin(annotation)


def is_union(annotation: Annotation) -> bool:
    """Return whether an annotation is ``X | Y``."""
    return get_origin(annotation) in _UNIONS


@cache
def decoder(annotation: Annotation) -> Decode:
    """Return a function from parsed JSON to a value of the annotated type.

    The function raises ValueError or TypeError for other data.
    """
    while isinstance(annotation, typing.NewType):
        annotation = annotation.__supertype__
    if annotation in _SCALARS:
        return _scalar(annotation)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _dataclass(annotation)
    origin, arguments = origin_of(annotation), get_args(annotation)
    if origin is Literal:
        return _literal(frozenset(arguments))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(decoder(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(arguments[1])
    if is_union(annotation):
        return _optional(arguments)
    raise TypeError(f"no decoder for {annotation!r}")


def _scalar(kind: type) -> Decode:
    allowed = _SCALARS[kind]

    def decode(value: Plain) -> Plain:
        if type(value) not in allowed:
            raise ValueError(f"expected {kind.__name__}, got {value!r:.100}")
        return value

    return decode


def _literal(allowed: frozenset[object]) -> Decode:
    def decode(value: Plain) -> Plain:
        if value not in allowed:
            raise ValueError(f"expected one of {sorted(map(str, allowed))}, got {value!r:.100}")
        return value

    return decode


def _sequence(item: Decode) -> Decode:
    def decode(value: Plain) -> Plain:
        if not isinstance(value, list):
            raise ValueError(f"expected a list, got {value!r:.100}")
        return tuple(map(item, value))

    return decode


def _mapping(annotation: Annotation) -> Decode:
    # A union of all JSON types (the data of an event) needs no conversion.
    is_json = is_union(annotation)
    item = None if is_json else decoder(annotation)

    def decode(value: Plain) -> Plain:
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, got {value!r:.100}")
        return value if item is None else {key: item(entry) for key, entry in value.items()}

    return decode


def _optional(arguments: tuple[Annotation, ...]) -> Decode:
    kinds = [argument for argument in arguments if argument is not type(None)]
    if len(kinds) != 1 or len(arguments) != 2:
        raise TypeError(f"no decoder for a union of {arguments!r}")
    item = decoder(kinds[0])
    return lambda value: None if value is None else item(value)


def _dataclass(kind: type[Any]) -> Decode:
    hints = typing.get_type_hints(kind)
    decoders = {field.name: decoder(hints[field.name]) for field in dataclasses.fields(kind)}

    def decode(value: Plain) -> Plain:
        if not isinstance(value, dict):
            raise ValueError(f"expected a {kind.__name__}, got {value!r:.100}")
        try:
            return kind(
                **{
                    name: decoders[name](entry)
                    for name, entry in value.items()
                    if name not in REMOVED_FIELDS
                }
            )
        except KeyError as error:
            raise ValueError(f"a {kind.__name__} has no {error}") from error

    return decode


def require_finite(value: float, *, name: str) -> float:
    """Return a number that may be stored.

    Raises:
        ValueError: If it is a NaN or an infinity.
    """
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return value
