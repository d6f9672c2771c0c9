"""Each row of docs/required_features.md names files and tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENT = "docs/required_features.md"
SECTIONS = ("Sample Factory", "Coach / DeepRacer", "ML-Agents", "TF-Agents")
NUM_FEATURES = 157
NUM_BUGS = 50
VERDICTS = ("MUST", "NICE", "OBSOLETE")
SIGNS = ("works", "other design", "partly", "missing", "not wanted")
BUG_SIGNS = ("tested", "missing")
# These marks claim a feature, so the row needs a file and a test.
SHOWN = ("works", "other design", "tested")
# These marks need an explanation: another mechanism, what is missing, or a reason.
EXPLAINED = ("other design", "partly", "not wanted")
NOTHING = "-"
_CODE = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """A row of one of the two tables; a bug has no verdict and no files."""

    section: str
    number: int
    name: str
    verdict: str
    sign: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    note: str


def parse(text: str) -> tuple[list[Row], list[Row]]:
    """Return features and bugs. Raises ValueError on a row of another form."""
    features: list[Row] = []
    bugs: list[Row] = []
    section = ""
    for line in text.splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or not cells[0].isdigit():
            continue
        number = int(cells[0])
        if len(cells) == 7:
            _, name, verdict, sign, files, tests, note = cells
            features.append(
                Row(section, number, name, verdict, sign, codes(files), codes(tests), note)
            )
        elif len(cells) == 4:
            _, name, sign, tests = cells
            bugs.append(Row(section, number, name, "", sign, (), codes(tests), ""))
        else:
            raise ValueError(f"{DOCUMENT}: row {number} has {len(cells)} cells")
    return features, bugs


def codes(cell: str) -> tuple[str, ...]:
    """Return what a cell names in backticks. Raises ValueError if it holds anything else."""
    found = tuple(_CODE.findall(cell))
    rest = _CODE.sub("", cell).replace(",", "").strip()
    if rest not in ("", NOTHING) or (rest == NOTHING and found):
        raise ValueError(f"{DOCUMENT}: a cell of names has {rest!r}")
    return found


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Return the functions that a file defines at its top level."""
    body = ast.parse(path.read_text(encoding="utf8")).body
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef))


def faults_of(row: Row) -> list[str]:
    """Return what is wrong with a row."""
    faults = []
    if row.section not in SECTIONS:
        faults.append(f"section {row.section!r}")
    if not row.name:
        faults.append("no name")
    is_bug = not row.verdict
    if not is_bug and row.verdict not in VERDICTS:
        faults.append(f"verdict {row.verdict!r}")
    if row.sign not in (BUG_SIGNS if is_bug else SIGNS):
        faults.append(f"sign {row.sign!r}")
    if row.sign in SHOWN:
        if not row.tests:
            faults.append("no test")
        if not row.files and not is_bug:
            faults.append("no file")
    if row.sign in EXPLAINED and not row.note:
        faults.append(f"{row.sign} without an explanation")
    if row.sign == "not wanted" and row.verdict == "MUST":
        faults.append("a requirement that is not wanted")
    faults += [f"no file {name}" for name in row.files if not (ROOT / name).is_file()]
    for test in row.tests:
        path, _, function = test.partition("::")
        is_test = path.startswith("tests/") and function.startswith("test_")
        if not is_test or not (ROOT / path).is_file():
            faults.append(f"no test file for {test}")
        elif function not in functions_of(ROOT / path):
            faults.append(f"no test {test}")
    return faults


@cache
def table() -> tuple[list[Row], list[Row]]:
    return parse((ROOT / DOCUMENT).read_text(encoding="utf8"))


@pytest.mark.parametrize("index", [0, 1], ids=["features", "bugs"])
def test_numbers_are_complete(index: int) -> None:
    total = (NUM_FEATURES, NUM_BUGS)[index]
    assert sorted(row.number for row in table()[index]) == list(range(1, total + 1))


@pytest.mark.parametrize("index", [0, 1], ids=["features", "bugs"])
def test_every_row_names_what_exists(index: int) -> None:
    rows = table()[index]
    assert {row.section for row in rows} == set(SECTIONS)
    assert {row.number: faults for row in rows if (faults := faults_of(row))} == {}


def test_no_feature_is_missing() -> None:
    rows = [row for table_rows in table() for row in table_rows]
    assert [(row.number, row.name) for row in rows if row.sign in ("missing", "partly")] == []


GOOD = Row(
    section="ML-Agents",
    number=1,
    name="tests of tables",
    verdict="MUST",
    sign="works",
    files=("tests/test_required_features.py",),
    tests=("tests/test_required_features.py::test_a_wrong_row_is_found",),
    note="",
)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, None),
        ({"sign": "missing", "files": (), "tests": ()}, None),
        ({"sign": "tested", "verdict": "", "files": ()}, None),
        ({"section": "Elsewhere"}, "section 'Elsewhere'"),
        ({"name": ""}, "no name"),
        ({"verdict": "SHOULD"}, "verdict 'SHOULD'"),
        ({"sign": ""}, "sign ''"),
        ({"sign": "works", "verdict": ""}, "sign 'works'"),
        ({"tests": ()}, "no test"),
        ({"files": ()}, "no file"),
        ({"sign": "tested", "verdict": "", "files": (), "tests": ()}, "no test"),
        ({"sign": "other design"}, "other design without an explanation"),
        ({"sign": "not wanted", "note": "no"}, "a requirement that is not wanted"),
        ({"files": ("arena/gone.py",)}, "no file arena/gone.py"),
        ({"tests": ("tests/gone.py::test_a",)}, "no test file for tests/gone.py::test_a"),
        (
            {"tests": ("tests/test_required_features.py::faults_of",)},
            "no test file for tests/test_required_features.py::faults_of",
        ),
        (
            {"tests": ("tests/test_required_features.py::test_gone",)},
            "no test tests/test_required_features.py::test_gone",
        ),
    ],
)
def test_a_wrong_row_is_found(changes: dict[str, object], fault: str | None) -> None:
    row = GOOD._replace(**changes)  # type: ignore[arg-type]
    assert faults_of(row) == ([] if fault is None else [fault])


def test_a_row_of_another_form_is_refused() -> None:
    text = "## ML-Agents\n| 1 | a | MUST | works | `x.py` | `y.py::test_z` | |\n"
    ((row,), bugs) = parse(text)
    assert (row.section, row.files, row.tests, bugs) == (
        "ML-Agents",
        ("x.py",),
        ("y.py::test_z",),
        [],
    )
    with pytest.raises(ValueError, match="row 1 has 6 cells"):
        parse("| 1 | a | MUST | works | `x.py` | `y.py::test_z` |\n")
    with pytest.raises(ValueError, match=r"'x\.py'"):
        parse("| 1 | a | MUST | works | x.py | `y.py::test_z` | |\n")
