"""Dataclasses of the wire as plain data, and back, checked against annotations.

Beside the declared types, `decoder` refuses numbers that are not finite, negative counts and
durations, malformed ids and digests, and directory keys that could leave the store. No message of
it quotes what it refuses. (pydantic's strict mode takes no list for a tuple in Python mode and
turns ``num_epochs: 4`` into ``4.0``.)
"""

from __future__ import annotations

import math
import re
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
    later_defaults,
    repeating_fields,
)
from arena.errors import DecodeError
from arena.types import (
    MAX_AGENT_STEPS,
    MAX_GAME_BYTES,
    MAX_GENERATION,
    MAX_UPDATES,
    CheckpointRef,
    Digest,
    Entrant,
    LearnerId,
    PackageVersion,
    PlayerId,
    PolicyId,
    WeightsRef,
)
from arena.wire.messages import Failed, Header
from arena.wire.store_messages import Fetch, Give

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

_NEVER = object()

_PATTERNS: Mapping[object, tuple[str, str]] = {
    Digest: ("a digest", _DIGEST),
    PolicyId: ("a policy", _POLICY),
    PlayerId: ("a player", rf"{_POLICY}(?:@[0-9]{{12,18}})?|{_BOT}|{_OUTSIDER}"),
    Entrant: ("an entrant", rf"{_DIGEST}|{_POLICY}#[0-9]{{1,12}}|{_BOT}|{_OUTSIDER}"),
    LearnerId: ("a learner", _NAME),
    PackageVersion: ("a version", r"[A-Za-z0-9.+!_-]{1,64}"),
}
_KEY = ("a key in the store", rf"(?=.{{1,512}}$){_SEGMENT}(?:/{_SEGMENT})*")
_FIELD_PATTERNS: Mapping[tuple[type, str], tuple[str, str]] = {
    (WeightsRef, "key"): _KEY,
    (CheckpointRef, "key"): _KEY,
    (Failed, "key"): _KEY,
    (Fetch, "key"): _KEY,
    (Give, "key"): _KEY,
    (Failed, "kind"): (
        "a kind",
        "stopped|making|environment|code|storage|place|checkpoint|message|non_finite|error",
    ),
    (Header, "run"): ("a run", _NAME),
}
_BOUNDS: Mapping[str, int] = {
    "generation": MAX_GENERATION,
    "agent_steps": MAX_AGENT_STEPS,
    "learner_updates": MAX_UPDATES,
}


def plain(value: object) -> Plain:
    """Return a dataclass as dictionaries, lists and scalars, fields in their order.

    Fields that were declared with `later` are left out at their default.
    """
    kind: Annotation = type(value)
    if kind in _SCALARS:
        return value
    names = field_names(kind)
    if names is not None:
        later = later_defaults(kind)
        repeats = repeating_fields(kind)
        return {
            name: _sequence(item) if name in repeats else plain(item)
            for name in names
            if (item := getattr(value, name)) != later.get(name, _NEVER)
        }
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return value


def _sequence(items: tuple[object, ...]) -> Plain:
    """Return a `repeating` field in the shorter of its forms."""
    parts = folded(items)
    if parts is None:
        return [plain(item) for item in items]
    return {"items": [plain(item) for item in parts["items"]], "index": parts["index"]}


def _integer(value: Plain) -> Plain:
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise DecodeError("must be an integer in [0, 2**63)")
    return value


def _count(most: int) -> Decode:
    def decode(value: Plain) -> Plain:
        if _integer(value) > most:
            raise DecodeError(f"must be at most {most}")
        return value

    return decode


def _number(value: Plain) -> Plain:
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


def _bytes(value: Plain) -> Plain:
    if type(value) is not bytes or len(value) > MAX_GAME_BYTES:
        raise DecodeError(f"must be at most {MAX_GAME_BYTES} bytes")
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
    bytes: _bytes,
}


def _text(name: str, pattern: str) -> Decode:
    matches = re.compile(pattern).fullmatch

    def decode(value: Plain) -> Plain:
        if type(value) is not str or matches(value) is None:
            raise DecodeError(f"must be {name}, in the form of one")
        return value

    return decode


def _field(kind: type, name: str, annotation: Annotation) -> Decode | None:
    if (kind, name) in _FIELD_PATTERNS:
        inner = _text(*_FIELD_PATTERNS[kind, name])
        return decoding.optional(inner) if type(None) in get_args(annotation) else inner
    if annotation is int and name in _BOUNDS:
        return _count(_BOUNDS[name])
    return _duration if annotation is float and name.endswith("_s") else None


WIRE = Dialect(
    leaf={**_SCALARS, **{kind: _text(*pattern) for kind, pattern in _PATTERNS.items()}}.get,
    field=_field,
    error=DecodeError,
    is_quoting=False,
    needs_all_fields=True,
    removed_fields=frozenset(),
    max_items=MAX_ITEMS,
    max_entries=MAX_ENTRIES,
)


def decoder(annotation: Annotation) -> Decode:
    """Return a function from plain data to a value of the annotated type, compiled once.

    The function raises DecodeError for anything else.
    """
    return decoding.decoder(annotation, WIRE)
