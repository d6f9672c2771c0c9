"""Failpoints and rows of the matrix name the tests that exercise them; none is forgotten."""

from __future__ import annotations

import ast
import json
import re
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


NUM_ROWS = 47
_ROW = re.compile(r"\| (F\d+) \| [^|]+ \| (?P<does>[^|]+) \| (?P<tests>[^|]+) \|")
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
NOT_BUILT = "nothing to test:"


def rows() -> dict[str, re.Match[str]]:
    """The table in README.md, by number."""
    lines = (HERE / "README.md").read_text().splitlines()
    matches = [match for line in lines if (match := _ROW.fullmatch(line))]
    return {match[1]: match for match in matches}


def test_all_rows_are_there_in_order() -> None:
    assert list(rows()) == [f"F{number}" for number in range(1, NUM_ROWS + 1)]


@pytest.mark.parametrize("number", [f"F{number}" for number in range(1, NUM_ROWS + 1)])
def test_a_row_says_what_happens_and_names_tests_that_exist(number: str) -> None:
    row = rows()[number]
    assert len(row["does"]) > 1, f"{number} does not say what happens"
    named = _TEST.findall(row["tests"])
    assert named or row["tests"].startswith(NOT_BUILT), f"{number} names no test"
    for path, function in named:
        assert (ROOT / path).is_file(), f"{number}: there is no {path}"
        if function:
            assert function in functions_of(ROOT / path), f"{number}: no {function} in {path}"


def test_every_file_of_tests_here_is_named_by_a_row() -> None:
    named = {path for row in rows().values() for path, _ in _TEST.findall(row["tests"])}
    own = {str(path.relative_to(ROOT)) for path in HERE.rglob("test_*.py")}
    assert own <= named


def functions_of(path: Path) -> set[str]:
    """The functions that a file defines at its top level."""
    body = ast.parse(path.read_text()).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}
