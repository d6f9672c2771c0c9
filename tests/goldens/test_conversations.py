"""The smallest stored conversation as it is played; and that a difference is found and explained.

All of them, with all that users see of them: `make goldens`.
"""

from __future__ import annotations

import pytest

from tests.goldens.conversations.golden import NAMES, TALK, parting, stored
from tests.goldens.conversations.looks import compare
from tests.goldens.conversations.script import Parted, Script
from tests.goldens.forms import Document

SMALLEST = "cooperation"


def test_all_are_stored_whole() -> None:
    assert len(NAMES) == 6
    for name in NAMES:
        for file in (TALK, "middle.json", "end.json", "end.csv", "end.80.txt", "end.140.txt"):
            assert stored(name, file), f"{name} has no {file}"


def test_the_smallest_is_as_it_was() -> None:
    assert parting(SMALLEST, is_quick=True) == []


TOLD: Document = {"at": 1.0, "to": "host-1", "Acknowledge": {"assignment_id": 3, "attempt": 1}}
CAME: Document = {"at": 2.0, "ends": 0, "code": 0}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([], ["after line 1", "to host-2", "+nothing", '"assignment_id": 3']),
        ([{**TOLD, "at": 1.5}], ['- "at": 1.0', '+ "at": 1.5']),
        ([TOLD, {**TOLD, "to": "host-3"}], ["says to host-3", "-nothing"]),
    ],
)
def test_a_parting_names_its_place_and_both_sides(said: list[Document], words: list[str]) -> None:
    lines = [CAME, {**TOLD, "to": "host-2"}, CAME]
    script = Script(lines)
    assert script.next(before_s=2.0) == CAME
    for line in said:
        script.hear({**line, "to": "host-2" if line is said[0] else line["to"]}, None)
    with pytest.raises(Parted) as parted:
        script.next(before_s=2.0)
    assert [word for word in words if word not in str(parted.value)] == []


def test_a_run_that_goes_on_after_its_record_has_parted() -> None:
    script = Script([CAME])
    assert script.next(before_s=2.0) == CAME
    assert script.next(before_s=100.0) is None
    with pytest.raises(Parted, match="the record is over"):
        script.next(before_s=500.0)


@pytest.mark.parametrize(
    ("file", "one", "other", "said"),
    [
        ("end.json", '{"a": [1.0, "x"]}', '{"a": [1.0000001, "x"]}', []),
        (
            "end.json",
            '{"a": [1.0]}',
            '{"a": [1.001, 2]}',
            [".a[0]: stored 1.0, found 1.001", ".a[1]: only found: 2"],
        ),
        ("end.json", '{"a": 1}', '{"a": 2}', [".a: stored 1, found 2"]),
        ("end.csv", "==== x\na,1.5\n", "==== x\na,1.50000001\n", []),
        ("end.csv", "==== x\na,1\n", "==== x\na,2\n", ['.==== x[0][1]: stored "1", found "2"']),
        ("end.80.txt", "a\n", "b\n", ["--- stored", "+++ found", "@@ -1 +1 @@", "-a", "+b"]),
    ],
)
def test_differences_are_named(file: str, one: str, other: str, said: list[str]) -> None:
    assert list(compare(file, one, other)) == said
