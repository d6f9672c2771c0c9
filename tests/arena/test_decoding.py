from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NewType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.decoding import Annotation, Decode, Dialect, Plain, decoder

Code = NewType("Code", str)


class RefusalError(Exception):
    """Error of the dialects here."""


@dataclass(frozen=True)
class Item:
    count: int
    code: Code | None
    name: str = "none"


@dataclass(frozen=True)
class Box:
    items: tuple[Item, ...]
    rates: Mapping[str, float]
    state: Literal["open", "shut"] = "open"
    limit_s: float | None = field(default=None)


def leaf(kind: type) -> Decode:
    def decode(value: Plain) -> Plain:
        if type(value) is not kind:
            raise RefusalError(f"must be {kind.__name__}")
        return value

    return decode


def code(value: Plain) -> Plain:
    if value != "c1":
        raise RefusalError("must be a code")
    return value


def no_rule(_kind: type, _name: str, _annotation: Annotation) -> Decode | None:
    return None


STRICT = Dialect(
    leaf={int: leaf(int), float: leaf(float), str: leaf(str), Code: code}.get,
    field=no_rule,
    error=RefusalError,
    is_quoting=False,
    needs_all_fields=True,
    removed_fields=frozenset(),
    max_items=2,
    max_entries=1,
)
LENIENT = replace(
    STRICT, needs_all_fields=False, removed_fields=frozenset({"colour"}), is_quoting=True
)
ITEM: dict[str, object] = {"count": 1, "code": "c1", "name": "a"}
BOX: dict[str, object] = {
    "items": [ITEM, ITEM],
    "rates": {"x": 0.5},
    "state": "shut",
    "limit_s": None,
}


@pytest.mark.parametrize("dialect", [STRICT, LENIENT])
def test_what_the_types_declare_is_decoded(dialect: Dialect) -> None:
    item = Item(1, Code("c1"), "a")
    assert decoder(Box, dialect)(BOX) == Box((item, item), {"x": 0.5}, "shut", None)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"items": [ITEM] * 3}, "items: must be a list of at most 2 items"),
        ({"items": (ITEM,)}, "items: must be a list"),
        ({"items": [ITEM | {"count": True}]}, "items: count: must be int"),
        ({"items": [ITEM | {"code": "c2"}]}, "items: code: must be a code"),
        ({"items": [[]]}, "items: must be a map"),
        ({"rates": {"x": 1.0, "y": 1.0}}, "rates: must be a map of at most 1 entries"),
        ({"rates": {1: 1.0}}, "rates: must be str"),
        ({"state": "ajar"}, "state: must be one of"),
        ({"state": ["open"]}, "state: must be one of"),
        ({"colours": 1}, "must have the fields of Box"),
        ({1: 1}, "must have the fields of Box"),
    ],
)
@pytest.mark.parametrize("dialect", [STRICT, LENIENT])
def test_other_data_is_refused_with_its_place(
    change: dict[object, object], error: str, dialect: Dialect
) -> None:
    with pytest.raises(RefusalError, match=error):
        decoder(Box, dialect)({**BOX, **change})


def test_an_error_quotes_the_value_where_that_is_allowed() -> None:
    with pytest.raises(RefusalError, match=r"^state: must be one of \['open', 'shut'\]$"):
        decoder(Box, STRICT)(BOX | {"state": "ajar"})
    with pytest.raises(RefusalError, match=r"^state: must be one of .*, got 'ajar'$"):
        decoder(Box, LENIENT)(BOX | {"state": "ajar"})


def test_a_field_with_a_default_is_missed_by_the_strict_alone() -> None:
    short = {"count": 1, "code": None}
    assert decoder(Item, LENIENT)(short) == Item(1, None)
    with pytest.raises(RefusalError):
        decoder(Item, STRICT)(short)
    for dialect in (STRICT, LENIENT):
        with pytest.raises(RefusalError):
            decoder(Item, dialect)({"code": None, "name": "a"})


def test_a_removed_field_is_ignored() -> None:
    old = ITEM | {"colour": object()}
    assert decoder(Item, LENIENT)(old) == Item(1, Code("c1"), "a")
    with pytest.raises(RefusalError):
        decoder(Item, STRICT)(old)


def test_a_field_may_have_a_rule_of_its_own() -> None:
    def doubled(kind: type, name: str, annotation: Annotation) -> Decode | None:
        is_it = (kind, name, annotation) == (Item, "count", int)
        return (lambda value: 2 * value) if is_it else None

    assert decoder(Item, replace(STRICT, field=doubled))(ITEM) == Item(2, Code("c1"), "a")


@pytest.mark.parametrize(
    "annotation", [int | str, set[int], tuple[int, str], bytes, int | str | None]
)
def test_a_type_without_a_decoder_is_told_at_once(annotation: object) -> None:
    with pytest.raises(TypeError, match="no decoder"):
        decoder(annotation, STRICT)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*BOX, *ITEM, "z"]) | st.integers(), inner)
        ),
    )
)
@pytest.mark.slow
def test_nothing_but_the_error_comes_out(value: object) -> None:
    for dialect in (STRICT, LENIENT):
        try:
            box = decoder(Box, dialect)(value)
        except RefusalError:
            continue
        assert isinstance(box, Box)
