"""The names of `arena`: what is promised, what type checkers read, and what is there."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import arena

STUB = ast.parse(Path(arena.__file__).with_suffix(".pyi").read_text(encoding="utf8"))
DEFINED = {
    node.name: node for node in STUB.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))
}
MADE_BY_FUNCTIONS = ("LaunchedRun", "Player")
"""Classes that users do not construct: the stub has no constructor of theirs."""


def test_every_name_resolves_and_is_documented() -> None:
    for name in arena.__all__:
        found = getattr(arena, name)
        assert found.__name__ == name
        assert inspect.getdoc(found)
    assert set(arena.__all__) <= set(dir(arena))


def test_the_stub_has_the_same_names() -> None:
    (exported,) = (
        ast.literal_eval(node.value)
        for node in STUB.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert sorted(exported) == sorted(arena.__all__)
    exceptions = {name for name in arena.__all__ if isinstance(getattr(arena, name), type)}
    exceptions = {name for name in exceptions if issubclass(getattr(arena, name), Exception)}
    # Exceptions are imported there, everything else is written out.
    assert set(DEFINED) | exceptions == set(arena.__all__)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'arena' has no attribute 'lunch'"):
        _ = arena.lunch  # type: ignore[attr-defined]


def parameters(function: ast.FunctionDef) -> list[tuple[str, str, str, object]]:
    """Name, kind, annotation and default of each parameter of a stub's function."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    missing = [None] * (len(plain) - len(given.defaults))
    pairs = list(zip(plain, [*missing, *given.defaults], strict=True))
    found = [(one, "POSITIONAL_OR_KEYWORD", default) for one, default in pairs]
    found += [
        (one, "KEYWORD_ONLY", default)
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.vararg is not None:
        found.append((given.vararg, "VAR_POSITIONAL", None))
    if given.kwarg is not None:
        found.append((given.kwarg, "VAR_KEYWORD", None))
    return [
        (
            one.arg,
            kind,
            "" if one.annotation is None else ast.unparse(one.annotation),
            inspect.Parameter.empty if default is None else ast.literal_eval(default),
        )
        for one, kind, default in found
    ]


def runtime_parameters(function: Any) -> list[tuple[str, str, str, object]]:
    return [
        (
            one.name,
            one.kind.name,
            "" if one.annotation is inspect.Parameter.empty else one.annotation,
            one.default,
        )
        for one in inspect.signature(function).parameters.values()
    ]


def functions() -> Iterator[tuple[str, ast.FunctionDef, Any]]:
    for name, node in DEFINED.items():
        found = getattr(arena, name)
        if isinstance(node, ast.FunctionDef):
            yield name, node, found
            continue
        for member in node.body:
            if isinstance(member, ast.FunctionDef):
                here = inspect.getattr_static(found, member.name)
                here = here.fget if isinstance(here, property) else here
                yield f"{name}.{member.name}", member, here


def test_the_stub_has_the_signatures() -> None:
    checked = 0
    for name, node, found in functions():
        assert parameters(node) == runtime_parameters(found), name
        assert node.returns is not None
        assert ast.unparse(node.returns) == inspect.signature(found).return_annotation, name
        checked += 1
    assert checked > 20


def test_the_stub_has_the_members() -> None:
    for name, node in DEFINED.items():
        if not isinstance(node, ast.ClassDef):
            continue
        written = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        here = {
            member
            for member, value in vars(getattr(arena, name)).items()
            if not member.startswith("_")
            and (inspect.isfunction(value) or isinstance(value, property))
        }
        assert {one for one in written if not one.startswith("_")} == here, name
        has_constructor = "__init__" in vars(getattr(arena, name)) and name not in MADE_BY_FUNCTIONS
        assert ("__init__" in written) == has_constructor, name


def test_a_name_is_the_one_of_its_home() -> None:
    home = importlib.import_module("populations.commands.api.runs")
    assert arena.open is home.open
