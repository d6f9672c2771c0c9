"""The names of `arena`: what is promised, what type checkers read, and what is there."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import arena

STUB: dict[str, Any] = {"__name__": "arena"}
"""Names of the stub, whose annotations are texts as those of the modules are."""

TEXT = Path(arena.__file__).with_suffix(".pyi").read_text(encoding="utf8")
exec(compile(f"from __future__ import annotations\n{TEXT}", "arena.pyi", "exec"), STUB)

MADE_BY_FUNCTIONS = ("LaunchedRun", "Player")
"""Classes that users do not construct: the stub has no constructor of theirs."""


def functions_of(owner: type) -> Mapping[str, Any]:
    """Return the functions of a class that users call, properties and the constructor included."""
    return {
        name: value.fget if isinstance(value, property) else value
        for name, value in vars(owner).items()
        if (name == "__init__" or not name.startswith("_"))
        and (inspect.isfunction(value) or isinstance(value, property))
    }


def test_every_name_resolves_and_is_documented() -> None:
    for name in arena.__all__:
        found = getattr(arena, name)
        assert found.__name__ == name
        assert inspect.getdoc(found)
    assert set(arena.__all__) <= set(dir(arena))


def test_the_stub_has_the_same_names_and_signatures() -> None:
    assert sorted(STUB["__all__"]) == sorted(arena.__all__)
    checked = 0
    for name in arena.__all__:
        stub, found = STUB[name], getattr(arena, name)
        # The stub imports exceptions and writes out everything else.
        if isinstance(found, type) and issubclass(found, Exception):
            assert stub is found
            continue
        assert stub is not found
        is_class = isinstance(found, type)
        ours = dict(functions_of(found)) if is_class else {"": found}
        if name in MADE_BY_FUNCTIONS:
            ours.pop("__init__", None)
        theirs = functions_of(stub) if is_class else {"": stub}
        assert theirs.keys() == ours.keys(), name
        for member, function in theirs.items():
            assert inspect.signature(function) == inspect.signature(ours[member]), (name, member)
            checked += 1
    assert checked > 20


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'arena' has no attribute 'lunch'"):
        _ = arena.lunch  # type: ignore[attr-defined]


def test_a_name_is_the_one_of_its_home() -> None:
    home = importlib.import_module("populations.commands.api.runs")
    assert arena.open is home.open
