"""Every failpoint of the product is exercised by a test that is named here; none is forgotten."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.failpoints import parse_rules

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NAMED: dict[str, str] = json.loads((HERE / "failpoints.json").read_text())
"""Which test file exercises each point."""

TRACED: dict[str, dict[str, int]] = json.loads((HERE / "nth_fault.json").read_text())
NTH_FAULT = "tests/faults/test_nth_fault.py"
PRODUCT = ("arena", "populations", "tools")


def points() -> Iterator[str]:
    """The argument of every call of `failpoint` in the product."""
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "failpoint":
                    (argument,) = node.args
                    assert isinstance(argument, ast.Constant), f"{path}: names are literals"
                    yield str(argument.value)


def test_every_point_names_the_test_that_exercises_it_and_no_other_is_named() -> None:
    assert sorted(set(points())) == sorted(NAMED)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_point_can_be_armed_and_its_test_speaks_of_it(name: str) -> None:
    (rule,) = parse_rules(f"{name}=kill@1")
    assert rule.pattern == name
    path = ROOT / NAMED[name]
    if NAMED[name] == NTH_FAULT:
        assert any(name in trace for trace in TRACED.values()), f"no scenario passes {name}"
    else:
        part = name.partition(".")[0]
        assert f"{part}." in path.read_text(), f"{path} does not arm {part}.*"
