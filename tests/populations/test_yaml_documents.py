from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import ConfigError
from arena.rules import nearest
from populations.yaml_documents import MAX_BYTES, read_document, write_document


def read(text: str) -> object:
    return read_document(text, name="here")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 0.0001),
        ("1.0e-4", 0.0001),
        ("2.5E+3", 2500.0),
        (".5", 0.5),
        (r'"\ud83d\udca5"', "💥"),
        ("-3.", -3.0),
        ("5e6", 5_000_000),
        ("5_000_000", 5_000_000),
        ("010", 10),
        ("no", "no"),
        ("1:30", "1:30"),
        ("2026-11-21", "2026-11-21"),
        (".nan", ".nan"),
        ("~", None),
        ("", None),
        ("true", True),
        ("'1e-4'", "1e-4"),
        ("[1, 2.0, {a: null}]", [1, 2.0, {"a": None}]),
    ],
)
def test_scalars_read_as_people_mean_them(text: str, value: object) -> None:
    read_value = read(text)
    assert read_value == value
    assert type(read_value) is type(value)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a: &x 1\nb: *x", "anchors and aliases"),
        ("a: *x", "anchors and aliases"),
        ("a: &x [*x]", "anchors and aliases"),
        ("!!python/object/apply:os.system ['true']", "tag"),
        ("!!binary aGk=", "tag"),
        ("a: 1\nb: 2\na: 3", "line 3: the key 'a' is there twice"),
        ("{x: {a: 1, a: 2}}", "'a' is there twice"),
        ("1: a", "a key must be text"),
        ("[" * 1000, "nested deeper"),
        ("a: 1e999", "not finite"),
        ("!!float .inf", "not finite|could not convert"),
        ("a: [1", "line"),
        ("9" * 5000, "digits"),
        ("--- 1\n--- 2", "document"),
    ],
)
def test_what_a_configuration_does_not_need_is_refused(text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule) as error_info:
        read(text)
    assert str(error_info.value).startswith("here")


def test_the_size_limit_is_exact() -> None:
    text = "#" * MAX_BYTES
    assert read(text) is None
    with pytest.raises(ConfigError, match=f"at most {MAX_BYTES} bytes, got {MAX_BYTES + 1}"):
        read(text + "#")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(ConfigError, match="here"):
        read_document(b"a: \xff", name="here")


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=20)
    | st.sampled_from(["1e6", "1e-4", "no", "010", "1_000", "null", "~", "*x", "&y", "<<", "2e1"])
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner),
    max_leaves=8,
)


@given(value=documents)
@pytest.mark.slow
def test_reading_gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "document.yaml"
    write_document(value, path)
    assert repr(read_document(path.read_bytes(), name="here")) == repr(value)


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.yaml"
    write_document({"a": 1}, path)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_document({"a": 2}, path)
    assert read_document(path.read_bytes(), name="here") == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.yaml"]
    assert stat.S_ISREG(path.stat().st_mode)


def test_nearest_always_names_one_of_those_there_are() -> None:
    assert nearest("sise", ["seed", "size"]) == "; did you mean 'size'?"
    assert nearest("sise", []) == ""
