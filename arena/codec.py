"""Typed values to bytes and back: msgpack and JSON, strict, bounded, checked both ways.

The bytes are read by the msgpack package and by Python's JSON, with hooks that refuse a repeated
key and count containers while they are parsed; msgspec compares what they hold with the type.
Nothing is checked when a value is made, so it is read back from its own bytes before it is sent.
No error quotes what it refuses: it names the field, or has a few bytes in hexadecimal. A deeply
nested document cannot even be printed, and a crafted one should not reach a terminal.

Tests: `tests/arena/wire/test_codec.py`, `tests/arena/checkpoints/test_files.py`.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_origin

import msgpack
import msgspec
from pydantic import BaseModel, ValidationError

from arena.errors import DecodeError
from arena.rules import broken_rules
from arena.types import FORMS, MAX_CHARACTERS, MAX_GAME_BYTES, Player

T = TypeVar("T")

Plain = Any
"""Parsed JSON or msgpack, which has no static type."""

MAX_ITEMS = 65536
MAX_ENTRIES = 4096
MAX_CONTAINERS = 60_000
"""Most maps and lists in one document; a 1 MiB frame of empty lists would take long to decode."""

MANY_ITEMS = 16
"""Length of a list from which on a repetitive one is written as its different items and an
index."""

_PREFIX_BYTES = 64
# Extension types are not allowed, because nothing on the wire needs them.
_LIMITS: Mapping[str, int] = {
    # msgpack counts bytes, and a UTF-8 character has up to four.
    "max_str_len": 4 * MAX_CHARACTERS,
    "max_bin_len": MAX_GAME_BYTES,
    "max_array_len": MAX_ITEMS,
    "max_map_len": MAX_ENTRIES,
    "max_ext_len": 0,
}
_REPEATED = Player | str | int | float
"""Items that a list may repeat: none with lists, which would grow by being unfolded twice."""

_NAMES = re.compile(r"\.(\w+)")
_PATTERN = re.compile(r"Expected `str` matching regex (.*)")
_BEYOND = (str(sys.float_info.max), str(-sys.float_info.max))
_WORDS = (
    ("Expected", "must be"),
    ("object", "a map"),
    ("array", "a list"),
    ("`", ""),
)


class _Hooks:
    """Hooks of a parser: no repeated key, and not too many containers."""

    def __init__(self, most: int, *, unfolds: bool) -> None:
        self._left = most
        self._unfolds = unfolds

    def map(self, pairs: list[tuple[Plain, Plain]]) -> Plain:
        self._take()
        data = dict(pairs)
        # With a repeated key, two readers could see different documents.
        if len(data) != len(pairs):
            raise DecodeError("a key occurs twice")
        if self._unfolds and len(data) == 2 and "index" in data and "items" in data:
            return _unfolded(**data)
        return data

    def list(self, items: list[Plain]) -> Plain:
        self._take()
        return items

    def _take(self) -> None:
        # Raising while parsing saves the work on the remaining bytes.
        self._left -= 1
        if self._left < 0:
            raise DecodeError(f"more than {MAX_CONTAINERS} maps and lists")


def _unfolded(items: Plain, index: Plain) -> Plain:
    """Return the list that is encoded as different items and an index."""
    if type(items) is not list or type(index) is not list:
        return {"items": items, "index": index}
    different = _checked(items, tuple[_REPEATED, ...])
    for place in index:
        if type(place) is not int or not 0 <= place < len(different):
            raise DecodeError(f"index: must be places among {len(different)} items")
    return [different[place] for place in index]


def _has_long_lists(value: msgspec.Struct) -> bool:
    """Return whether a Struct, or one in it, has a list that may be shorter in its other form."""
    lists = [items for name in _lists_of(type(value)) if (items := getattr(value, name))]
    return any(
        len(items) >= MANY_ITEMS
        if isinstance(items[0], _REPEATED)
        else isinstance(items[0], msgspec.Struct) and any(map(_has_long_lists, items))
        for items in lists
    )


@cache
def _lists_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields of a Struct that are lists."""
    return tuple(own.name for own in msgspec.structs.fields(kind) if get_origin(own.type) is tuple)


def _with_places(value: Plain) -> Plain:
    """Return the fields of a Struct, with repetitive lists in their shorter form."""
    if not isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_dumped)
    fields = msgspec.structs.asdict(value)
    for name, items in fields.items():
        if type(items) is tuple and items and isinstance(items[0], _REPEATED):
            fields[name] = folded(items) or items
    return fields


def folded(items: tuple[Any, ...]) -> dict[str, Sequence[Any]] | None:
    """Return a sequence as its different items and their places; None if it is written as it is."""
    if len(items) < MANY_ITEMS:
        return None
    # Most items are the same object, and hashing a Struct is slow, so identity is compared first.
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


def msgpack_bytes(value: msgspec.Struct, *, is_ours: bool = False) -> bytes:
    """Return a value as msgpack, whether or not it may be sent.

    Args:
        value: The value.
        is_ours: Whether another process of Arena will read it: see `from_msgpack`.

    Raises:
        DecodeError: If msgpack has no such values.
    """
    try:
        if _has_long_lists(value) and not is_ours:
            body: bytes = msgpack.packb(value, default=_with_places)
        else:
            # msgspec and msgpack encode in C, which is several times as fast.
            plain = msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_dumped)
            body = msgpack.packb(plain)
    except (OverflowError, TypeError, ValueError) as error:
        raise DecodeError(str(error)) from None
    return body


def to_msgpack(value: msgspec.Struct, *, limit: int) -> bytes:
    """Return a value as msgpack that its reader accepts.

    Raises:
        DecodeError: If it breaks a rule of its type, or has more bytes.
    """
    body = msgpack_bytes(value)
    if len(body) > limit:
        raise DecodeError(f"it has {len(body)} bytes, more than {limit}")
    # The reader's own rules are applied, so that an invalid value fails where it is made.
    from_msgpack(body, type(value), limit=limit)
    return body


def from_msgpack(data: bytes, kind: type[T] | UnionType, *, limit: int, is_ours: bool = False) -> T:
    """Return the value in msgpack from an untrusted peer.

    Args:
        data: The msgpack.
        kind: Type of the value.
        limit: Most bytes.
        is_ours: Whether a process of our own wrote it: then nothing but ``limit`` bounds it, and
            no list is in its shorter form, which other data may have the looks of.

    Raises:
        DecodeError: If the bytes are anything else. No other error is raised, whatever they are.
    """
    # ZeroMQ has one limit for all frames (MAXMSGSIZE), and the in-memory transport has none.
    if len(data) > limit:
        raise DecodeError(f"{len(data)} bytes are more than {limit}")
    # Containers are counted while parsing, because afterwards the memory is allocated already.
    hooks = _Hooks(sys.maxsize if is_ours else MAX_CONTAINERS, unfolds=not is_ours)
    try:
        plain = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            use_list=True,
            object_pairs_hook=hooks.map,
            list_hook=hooks.list,
            **({} if is_ours else _LIMITS),
        )
    except DecodeError:
        raise
    except (ValueError, TypeError, RecursionError, OverflowError, msgpack.UnpackException):
        # The text of these errors is dropped, because it may quote the payload.
        raise DecodeError(f"no msgpack of ours: {prefix(data)}") from None
    return _checked(plain, kind, natives=(bytes,))


def plain(value: msgspec.Struct) -> dict[str, Any]:
    """Return a value as the dictionaries, sequences and scalars of its JSON."""
    document: dict[str, Any] = msgspec.to_builtins(value, enc_hook=_dumped)
    return document


def to_json(value: msgspec.Struct, *, indent: int | None = None) -> str:
    """Return a value as JSON that its reader accepts.

    Raises:
        DecodeError: If it breaks a rule of its type.
    """
    plain = msgspec.to_builtins(value, enc_hook=_dumped)
    _checked(plain, type(value))
    text = json.dumps(plain, allow_nan=False)
    # Python's own indentation is slow, because it is not in C.
    return text if indent is None else msgspec.json.format(text, indent=indent)


def from_json(data: bytes, kind: type[T]) -> T:
    """Return the value in JSON from an untrusted source.

    Raises:
        DecodeError: If the bytes are anything else.
    """
    hooks = _Hooks(MAX_CONTAINERS, unfolds=False)
    try:
        plain = json.loads(data, object_pairs_hook=hooks.map, parse_constant=_refuse)
    except DecodeError:
        raise
    except (ValueError, RecursionError):
        raise DecodeError(f"must be a JSON document, got {prefix(data)}") from None
    return _checked(plain, kind)


def _refuse(constant: str) -> Plain:
    raise DecodeError("a number is not finite")


def prefix(data: bytes) -> str:
    """Return the first bytes in hexadecimal, for logs."""
    return bytes(data[:_PREFIX_BYTES]).hex()


def _checked(plain: Plain, kind: type[T] | UnionType, *, natives: tuple[type, ...] = ()) -> T:
    """Return the value of a type that plain data describes."""
    try:
        return msgspec.convert(plain, kind, builtin_types=natives, dec_hook=_model)
    except msgspec.ValidationError as error:
        raise DecodeError(_rule(str(error))) from None
    except RecursionError:
        raise DecodeError("nested too deeply") from None


def _dumped(value: object) -> Plain:
    """Return a part that pydantic validates, a configuration, as plain data."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not plain data")


def _model(kind: type[T], plain: Plain) -> T:
    """Return the pydantic model that plain data describes."""
    if kind is object:
        return plain  # type: ignore[no-any-return]
    if not issubclass(kind, BaseModel):
        raise TypeError(f"{kind.__name__} is not plain data")
    try:
        return kind.model_validate(plain)
    except ValidationError as error:
        raise ValueError(broken_rules(error)[0]) from None


def _rule(text: str) -> str:
    """Return msgspec's message about a value, without its quotation of the value."""
    if text.startswith("Object contains unknown field"):
        # The place of the field is left out, too, because a crafted name may imitate it.
        return "must have the fields of its type, no others and all of them"
    rule, _, place = text.rpartition(" - at ")
    rule, names = rule or text, _NAMES.findall(place)
    if not rule.startswith(("Expected", "Object", "Invalid")):
        # This is a rule of a configuration.
        return ": ".join((*names, rule))
    if (form := _PATTERN.fullmatch(rule)) is not None:
        rule = f"must be {FORMS[ast.literal_eval(form[1])]}, in the form of one"
    elif rule.startswith("Invalid enum value"):
        rule = "must be one of the words for it"
    elif rule.endswith(_BEYOND):
        rule = "must be a finite number"
    elif rule.startswith("Object missing required field"):
        # The name is a field of Arena's, so it may be quoted.
        rule = f"{rule.split('`')[1]} is required"
    for theirs, ours in _WORDS:
        rule = rule.replace(theirs, ours)
    return ": ".join((*names, rule))
