"""Strategies for values of any Struct, by the types and bounds of its fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NewType, TypeVar, get_args, get_origin

from hypothesis import strategies as st
from msgspec import Meta, Struct, structs

from populations.records.columns import is_union

StructT = TypeVar("StructT", bound=Struct)

TEXTS = (
    *("", "a", "b", "../../x", "<script>", "\u202e", "\x1b[31m", "x\0y", "'; --"),
    *("player/p000", "player/p000#1", "player/p000@000000000001", "bot:random", "k/1", "1.0"),
    *("a" * 64, "b" * 64, "outsider:exports/champion", "bot:package.module:Class"),
    *(
        "populations/player/p004/ghosts/000000120000-01234567",
        "2.13.0+cpu",
        "a-b.c_d",
        "stopped",
        "non_finite",
    ),
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def _texts(pattern: str | None) -> st.SearchStrategy[str]:
    if pattern is None:
        return st.sampled_from(TEXTS) | st.text(st.characters(codec="utf-8"), max_size=40)
    return st.sampled_from([text for text in TEXTS if re.search(pattern, text)])


def of_type(kind: Any, bounds: Meta | None = None) -> st.SearchStrategy[Any]:
    """A strategy for values of a type, within its bounds."""
    if isinstance(kind, NewType):
        return of_type(kind.__supertype__)
    arguments = get_args(kind)
    match get_origin(kind):
        case origin if origin is Annotated:
            return of_type(*arguments[:2])
        case origin if origin is Literal:
            return st.sampled_from(arguments)
        case origin if is_union(kind):
            return st.one_of([of_type(one) for one in arguments])
        case origin if origin is tuple:
            item = of_type(arguments[0])
            # A list of equal items is abbreviated, so it must be generated too.
            return st.lists(item, max_size=3).map(tuple) | item.map(lambda one: (one,) * 16)
        case origin if origin in (dict, Mapping):
            return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), max_size=3)
    bounds = bounds or Meta()
    simple: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(
            -(2**63) + 1 if bounds.ge is None else int(bounds.ge),
            2**63 - 1 if bounds.le is None else int(bounds.le),
        ),
        float: FLOATS if bounds.ge is None else st.floats(bounds.ge, bounds.le),
        bool: st.booleans(),
        str: _texts(bounds.pattern),
        bytes: st.binary(max_size=8),
        type(None): st.none(),
        Any: JSON,
    }
    return simple[kind] if kind in simple else instances(kind)


def instances(
    kind: type[StructT], /, **given_strategies: st.SearchStrategy[Any]
) -> st.SearchStrategy[StructT]:
    """A strategy for a Struct, by the types of its fields."""
    strategies = {field.name: of_type(field.type) for field in structs.fields(kind)}
    return st.builds(kind, **{**strategies, **given_strategies})
