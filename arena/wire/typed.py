"""Decoders from plain data to the frozen dataclasses of the wire, checked against annotations.

A decoder is compiled once per type. It accepts only what the type declares, and refuses unknown or
missing fields, other types (a bool is no int), numbers that are not finite, negative counts and
durations, malformed ids and digests, and directory keys that could leave the store. No message of
it quotes what it refuses. (pydantic's strict mode takes no list for a tuple in Python mode and
turns ``num_epochs: 4`` into ``4.0``.)
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Union, get_args, get_origin

from arena.errors import DecodeError
from arena.types import (
    CheckpointRef,
    Digest,
    Entrant,
    LearnerId,
    PlayerId,
    PolicyId,
    WeightsRef,
)
from arena.wire.messages import Failed, Header

Annotation = Any
"""Type expression; typing has no static type for those."""

Plain = Any
"""Decoded msgpack on the way in, a typed value on the way out."""

Decode = Callable[[Plain], Plain]

_UNIONS: tuple[object, ...] = (Union, types.UnionType)

MAX_INTEGER = 2**63 - 1
MAX_CHARACTERS = 16384
MAX_ITEMS = 65536
MAX_ENTRIES = 4096

_POLICY = r"[a-z][a-z0-9_]{0,31}/p[0-9]{3,12}"
_BOT = r"bot:(?=.{1,396}$)[A-Za-z0-9_.:@/-]+(?:\([ -~]*\))?"
_OUTSIDER = r"outsider:[A-Za-z0-9_.:@/-]{1,200}"
_DIGEST = r"[0-9a-f]{64}"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_SEGMENT = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9@._-]+"

_PATTERNS: Mapping[object, tuple[str, str]] = {
    Digest: ("a digest", _DIGEST),
    PolicyId: ("a policy", _POLICY),
    PlayerId: ("a player", rf"{_POLICY}(?:@[0-9]{{12,18}})?|{_BOT}|{_OUTSIDER}"),
    Entrant: ("an entrant", rf"{_DIGEST}|{_POLICY}#[0-9]{{1,12}}|{_BOT}"),
    LearnerId: ("a learner", _NAME),
}
_KEY = ("a key in the store", rf"(?=.{{1,512}}$){_SEGMENT}(?:/{_SEGMENT})*")
_FIELD_PATTERNS: Mapping[tuple[type, str], tuple[str, str]] = {
    (WeightsRef, "key"): _KEY,
    (CheckpointRef, "key"): _KEY,
    (Failed, "key"): _KEY,
    (Failed, "kind"): ("a kind", "stopped|non_finite|checkpoint|environment|storage|error"),
    (Header, "run"): ("a run", _NAME),
}


def plain(value: object) -> Plain:
    """Return a dataclass as dictionaries, lists and scalars, fields in their order."""
    kind: Annotation = type(value)
    if kind in _SCALARS:
        return value
    names = field_names(kind)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value


@cache
def field_names(kind: Annotation) -> tuple[str, ...] | None:
    """Return the fields of a dataclass, in order; None for anything else."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(field.name for field in dataclasses.fields(kind))


def decoder(annotation: Annotation) -> Decode:
    """Return a function from plain data to a value of the annotated type, compiled once.

    The function raises DecodeError for anything else.
    """
    return _compile(annotation)


@cache
def _compile(annotation: Annotation) -> Decode:
    if annotation in _PATTERNS:
        return _text(*_PATTERNS[annotation])
    while isinstance(annotation, typing.NewType):
        annotation = annotation.__supertype__
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _dataclass(annotation)
    origin: object = get_origin(annotation)
    arguments = get_args(annotation)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(decoder(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(decoder(arguments[1]))
    if origin in _UNIONS:
        return _optional(arguments)
    raise TypeError(f"no decoder for {annotation!r}")


def _integer(value: Plain) -> Plain:
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise DecodeError("must be an integer in [0, 2**63)")
    return value


def _number(value: Plain) -> Plain:
    # An int stays an int where the type says float: hyperparameters hold num_epochs 4, not 4.0.
    if type(value) not in (int, float) or not math.isfinite(value):
        raise DecodeError("must be a finite number")
    return value


def _duration(value: Plain) -> Plain:
    if _number(value) < 0:
        raise DecodeError("must not be negative")
    return value


def _string(value: Plain) -> Plain:
    if type(value) is not str or len(value) > MAX_CHARACTERS:
        raise DecodeError(f"must be text of at most {MAX_CHARACTERS} characters")
    return value


def _boolean(value: Plain) -> Plain:
    if type(value) is not bool:
        raise DecodeError("must be true or false")
    return value


_SCALARS: Mapping[object, Decode] = {
    int: _integer,
    float: _number,
    str: _string,
    bool: _boolean,
}


def _text(name: str, pattern: str) -> Decode:
    matches = re.compile(pattern).fullmatch

    def decode(value: Plain) -> Plain:
        if type(value) is not str or matches(value) is None:
            raise DecodeError(f"must be {name}, in the form of one")
        return value

    return decode


def _sequence(item: Decode) -> Decode:
    def decode(value: Plain) -> Plain:
        if type(value) is not list or len(value) > MAX_ITEMS:
            raise DecodeError(f"must be a list of at most {MAX_ITEMS} items")
        return tuple([item(element) for element in value])

    return decode


def _mapping(item: Decode) -> Decode:
    def decode(value: Plain) -> Plain:
        if type(value) is not dict or len(value) > MAX_ENTRIES:
            raise DecodeError(f"must be a map of at most {MAX_ENTRIES} entries")
        return {_string(key): item(element) for key, element in value.items()}

    return decode


def _optional(arguments: tuple[Annotation, ...]) -> Decode:
    (present,) = (argument for argument in arguments if argument is not type(None))
    inner = decoder(present)
    return lambda value: None if value is None else inner(value)


def _dataclass(kind: type) -> Decode:
    hints = typing.get_type_hints(kind)
    fields = {name: _field(kind, name, hints[name]) for name in field_names(kind) or ()}

    def decode(value: Plain) -> Plain:
        if type(value) is not dict:
            raise DecodeError("must be a map")
        if value.keys() != fields.keys():
            raise DecodeError(f"must have the fields of {kind.__name__}, no others and all of them")
        values = {}
        for name, item in fields.items():
            try:
                values[name] = item(value[name])
            except DecodeError as error:
                raise DecodeError(f"{name}: {error}") from None
        return kind(**values)

    return decode


def _field(kind: type, name: str, annotation: Annotation) -> Decode:
    pattern = _FIELD_PATTERNS.get((kind, name))
    if pattern is not None:
        inner = _text(*pattern)
        if type(None) in get_args(annotation):
            return lambda value: None if value is None else inner(value)
        return inner
    if annotation is float and name.endswith("_s"):
        return _duration
    return decoder(annotation)
