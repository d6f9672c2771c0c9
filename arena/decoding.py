"""Decoders from plain data to frozen dataclasses, compiled once per annotated type.

A decoder accepts what the type declares and nothing else: a bool is no int, and an int stays an
int where the type says ``float`` (hyperparameters hold ``num_epochs: 4``, not 4.0), so a value read
back equals the written one. Messages and journals differ in their bounds, in their errors and in
whether fields may be missing; a `Dialect` holds these differences as data.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

T = TypeVar("T")

_LATER, _REPEATING = "later", "repeating"

MANY_ITEMS = 16
"""Items from which on a field that repeats them may be written as different ones and an index."""

Annotation = Any
"""Type expression; typing has no static type for those."""

Plain = Any
"""Parsed JSON or msgpack on the way in, a typed value on the way out."""

Decode = Callable[[Plain], Plain]

_UNIONS: tuple[object, ...] = (Union, types.UnionType)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dialect:
    """Rules of one kind of plain data.

    Attributes:
        leaf: Decoder of a type that is taken whole, a ``NewType`` with a form of its own too;
            None: its supertype or its parts decide.
        field: Decoder of a dataclass's field from class, name and type, where its name decides;
            None: the type alone decides.
        error: Exception that a decoder raises.
        is_quoting: Whether an error quotes the value that it refuses.
        needs_all_fields: Whether data without a field that has a default is refused, `later` ones
            excepted.
        removed_fields: Names of fields that are ignored, since older releases wrote them.
        max_items: Bound of a list's length.
        max_entries: Bound of a map's size.
    """

    leaf: Callable[[Annotation], Decode | None]
    field: Callable[[type, str, Annotation], Decode | None]
    error: type[Exception]
    is_quoting: bool
    needs_all_fields: bool
    removed_fields: frozenset[str]
    max_items: int
    max_entries: int

    def refusal(self, rule: str, value: Plain) -> Exception:
        """Return the error for a value that breaks a rule."""
        return self.error(f"{rule}, got {value!r:.100}" if self.is_quoting else rule)


@cache
def field_names(kind: Annotation) -> tuple[str, ...] | None:
    """Return the fields of a dataclass, in order; None for anything else."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(field.name for field in dataclasses.fields(kind))


def later(default: T) -> T:
    """Declare a field that came after its protocol version: it is not sent at its default.

    So a message that does not use it has the bytes that it always had, and older peers read it.
    """
    # A field for dataclasses, a value for type checkers.
    declared: T = dataclasses.field(default=default, metadata={_LATER: True})
    return declared


@cache
def later_defaults(kind: Annotation) -> Mapping[str, object]:
    """Return the defaults of a dataclass's fields that were declared with `later`."""
    return {one.name: one.default for one in dataclasses.fields(kind) if _LATER in one.metadata}


def repeating() -> tuple[Any, ...]:
    """Declare a field whose sequence may have few different items, each of them many times.

    It is written as ``{"items": [different ones], "index": [their places]}`` where it has at least
    `MANY_ITEMS`, at most half of them different: the seats of hundreds of agents have few players.
    """
    # A field for dataclasses, a value for type checkers.
    declared: tuple[Any, ...] = dataclasses.field(metadata={_REPEATING: True})
    return declared


@cache
def repeating_fields(kind: Annotation) -> frozenset[str]:
    """Return the names of a dataclass's fields that were declared with `repeating`."""
    return frozenset(one.name for one in dataclasses.fields(kind) if _REPEATING in one.metadata)


def folded(items: tuple[Any, ...]) -> Mapping[str, Sequence[Any]] | None:
    """Return a sequence as its different items and their places; None if it is written as it is."""
    if len(items) < MANY_ITEMS:
        return None
    # By identity first: most are the same object, and a hash of a dataclass takes its time.
    place_of: dict[int, int] = {}
    different: dict[Any, int] = {}
    index = []
    for item in items:
        place = place_of.get(id(item))
        if place is None:
            place = place_of[id(item)] = different.setdefault(item, len(different))
        index.append(place)
    if 2 * len(different) > len(items):
        return None
    return {"items": list(different), "index": index}


def origin_of(annotation: Annotation) -> object:
    """Return ``tuple`` of ``tuple[int, ...]``, ``Literal`` of a Literal, a union of ``X | Y``."""
    return get_origin(annotation)


def is_union(annotation: Annotation) -> bool:
    """Return whether an annotation is ``X | Y``."""
    return origin_of(annotation) in _UNIONS


@cache
def decoder(annotation: Annotation, dialect: Dialect) -> Decode:
    """Return a function from plain data to a value of the annotated type.

    The function raises the dialect's error for anything else.

    Raises:
        TypeError: If the type has no decoder.
    """
    # Before the supertype: a policy's id is a string of one form.
    while (leaf := dialect.leaf(annotation)) is None and isinstance(annotation, typing.NewType):
        annotation = annotation.__supertype__
    if leaf is not None:
        return leaf
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _dataclass(annotation, dialect)
    origin, arguments = origin_of(annotation), get_args(annotation)
    if origin is Literal:
        return _literal(frozenset(arguments), dialect)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(decoder(arguments[0], dialect), dialect)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(decoder(arguments[0], dialect), decoder(arguments[1], dialect), dialect)
    present = [argument for argument in arguments if argument is not type(None)]
    if origin in _UNIONS and len(arguments) == 2 and len(present) == 1:
        return optional(decoder(present[0], dialect))
    raise TypeError(f"no decoder for {annotation!r}")


def optional(item: Decode) -> Decode:
    """Return a decoder that passes None on."""
    return lambda value: None if value is None else item(value)


def _literal(allowed: frozenset[object], dialect: Dialect) -> Decode:
    rule = f"must be one of {sorted(map(str, allowed))}"

    def decode(value: Plain) -> Plain:
        # By type as well: True is 1, and a list has no hash.
        if type(value) is not str or value not in allowed:
            raise dialect.refusal(rule, value)
        return value

    return decode


def _sequence(item: Decode, dialect: Dialect) -> Decode:
    limit = dialect.max_items

    def decode(value: Plain) -> Plain:
        if type(value) is not list or len(value) > limit:
            raise dialect.refusal(f"must be a list of at most {limit} items", value)
        return tuple([item(element) for element in value])

    return decode


def _unfolded(sequence: Decode, dialect: Dialect) -> Decode:
    """Return a decoder of a `repeating` field, in both of its forms."""
    limit = dialect.max_items

    def decode(value: Plain) -> Plain:
        if type(value) is not dict:
            return sequence(value)
        if value.keys() != {"items", "index"}:
            raise dialect.refusal("must have items and an index", value)
        items, index = sequence(value["items"]), value["index"]
        if type(index) is not list or len(index) > limit:
            raise dialect.refusal(f"index: must be a list of at most {limit} items", index)
        for place in index:
            if type(place) is not int or not 0 <= place < len(items):
                raise dialect.refusal(f"index: must be places among {len(items)} items", place)
        return tuple([items[place] for place in index])

    return decode


def _mapping(key: Decode, item: Decode, dialect: Dialect) -> Decode:
    limit = dialect.max_entries

    def decode(value: Plain) -> Plain:
        if type(value) is not dict or len(value) > limit:
            raise dialect.refusal(f"must be a map of at most {limit} entries", value)
        return {key(name): item(element) for name, element in value.items()}

    return decode


def _dataclass(kind: type[Any], dialect: Dialect) -> Decode:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    decoders = {
        name: dialect.field(kind, name, hints[name]) or decoder(hints[name], dialect)
        for name in (field.name for field in fields)
    }
    for field in fields:
        if _REPEATING in field.metadata:
            decoders[field.name] = _unfolded(decoders[field.name], dialect)
    needed = {
        field.name
        for field in fields
        if _LATER not in field.metadata
        if dialect.needs_all_fields or field.default is field.default_factory is dataclasses.MISSING
    }
    removed = dialect.removed_fields - decoders.keys()
    names = decoders.keys()
    known = names | removed
    rule = f"must have the fields of {kind.__name__}, no others and all of them"
    error_type = dialect.error

    def decode(value: Plain) -> Plain:
        if type(value) is not dict:
            raise dialect.refusal("must be a map", value)
        if value.keys() != names and not needed <= value.keys() <= known:
            raise dialect.refusal(rule, value)
        if removed and not removed.isdisjoint(value):
            value = {name: element for name, element in value.items() if name in decoders}
        name = ""
        try:
            values = {}
            for name, element in value.items():
                values[name] = decoders[name](element)
        except error_type as error:
            raise error_type(f"{name}: {error}") from None
        return kind(**values)

    return decode
