"""Mutants: what is mutated and what is not, and what a planted one does to the tests of a copy."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from experiments.faults.hosts.capture import FILE_HEADER, FRAME_HEADER, PROBE, search
from experiments.faults.hosts.sandbox import missing_tools, refusal
from experiments.faults.mutants.__main__ import FAULTS, PLANTED, faults, main
from experiments.faults.mutants.mutations import Edit, mutants, of_file, shares

ROOT = Path(__file__).parents[3]

SOURCE = '''"""Docstring with 1 number."""

from typing import TYPE_CHECKING, Literal

__all__ = ["f"]

if TYPE_CHECKING:
    SEEN = 1

Level = Literal[7]


def f(first: Literal[3], second: int, most: int = 10) -> list[int]:
    """Return 5 things."""
    found: list[int] = []
    for number in range(first, second):
        if number < most and number not in found:
            found.append(number + 2)
    if not found:
        raise ValueError(f"{first + 4} is 6 too many" + str(8))
    return found
'''


def edits() -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for statement in of_file(SOURCE.encode(), file="arena/f.py", package="arena"):
        for mutant in statement:
            found.setdefault((mutant.kind, mutant.before), []).append(mutant.after)
    return found


def test_each_kind_of_mutation() -> None:
    found = edits()
    assert found["comparison", "number < most"] == ["(number <= most)"]
    assert found["comparison", "number not in found"] == ["(number in found)"]
    assert found["comparison", "number < most and number not in found"] == [
        "(number < most or number not in found)"
    ]
    assert found["negated condition", "not found"] == ["not (not found)"]
    assert found["arithmetic", "number + 2"] == ["(number - 2)"]
    assert found["constant", "2"] == ["3", "(1)"]
    assert found["constant", "10"] == ["11", "(9)"]
    assert found["removed statement", "found.append(number + 2)"] == ["pass"]
    assert found["swapped arguments", "range(first, second)"] == ["range(second, first)"]
    assert found["returned default", "found"] == ["[]"]


def test_docstrings_types_and_messages_stay() -> None:
    constants = {before for kind, before in edits() if kind == "constant"}
    # 1, 3, 4, 5, 6, 7 and 8 are in a docstring, an annotation, a message or for type checkers.
    assert constants == {"10", "2"}
    assert not any("__all__" in before or '"f"' in before for _, before in edits())


def test_offsets_are_those_of_bytes() -> None:
    source = 'name = "é"; size = len("ü") + 1\n'.encode()
    (kinds,) = of_file(source, file="arena/f.py", package="arena")
    assert {mutant.before for mutant in kinds} == {'len("ü") + 1', "1"}


def checkout(root: Path) -> Path:
    """Make a checkout with one product module, half of which is tested."""
    files = {
        "arena/__init__.py": "",
        "arena/sums/__init__.py": "",
        "arena/sums/add.py": "def add(x: int, y: int) -> int:\n    return x + y\n\n\n"
        "def untested(x: int) -> bool:\n    return x > 1\n",
        "tools/__init__.py": "",
        "tools/show.py": "def show(x: int) -> int:\n    return x * 2\n",
        "tests/arena/sums/test_add.py": "from arena.sums.add import add\n\n\n"
        "def test_always_fails() -> None:\n    assert add(1, 1) == 3\n\n\n"
        "def test_add() -> None:\n    assert add(2, 3) == 5\n",
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n'
        'addopts = "--import-mode=importlib"\nmarkers = ["slow", "faults"]\n',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def test_the_same_seed_gives_the_same_mutants(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    drawn = mutants(root, number=3, seed=1)
    assert drawn == mutants(root, number=3, seed=1)
    assert {mutant.group for mutant in drawn} == {"arena/sums", "tools"}
    assert len({mutant.line for mutant in drawn if mutant.group == "arena/sums"}) == 2
    assert len({tuple(mutants(root, number=3, seed=seed)) for seed in range(8)}) > 1


def test_shares_are_in_proportion() -> None:
    assert shares({"a": 10, "b": 30, "c": 60}, 10) == {"a": 1, "b": 3, "c": 6}
    # Each share is 3.33; the first package gets the remaining mutant.
    assert shares({"c": 5, "b": 5, "a": 5}, 10) == {"a": 4, "b": 3, "c": 3}
    assert shares({"a": 1}, 5) == {"a": 1}


def test_an_id_changes_with_the_edit() -> None:
    edit = Edit(group="arena", kind="constant", file="f.py", line=1, start=0, before="1", after="2")
    assert edit.id == replace(edit, group="tools").id
    assert len({edit.id, replace(edit, after="(0)").id, replace(edit, start=4).id}) == 3
    assert replace(edit, kind="draws_count_twice", tests=()).id == "draws_count_twice"


@pytest.mark.slow
def test_planted_mutants_are_found_or_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = checkout(tmp_path / "checkout")
    before = {path: path.read_bytes() for path in root.rglob("*.py")}
    monkeypatch.chdir(root)
    out = tmp_path / "results"
    command = ["--number", "3", "--out", str(out)]
    main([*command, "--limit", "1"])
    first = json.loads(out.read_text())
    # A kill cut the last line short, so only that mutant is repeated.
    out.write_text(out.read_text() + '\n{"id": "a')
    main(command)
    lines = out.read_text().split("\n")
    results = [json.loads(line) for line in lines if line.endswith("}")]
    assert results[0] == first
    assert len({result["id"] for result in results}) == len(results) == 3
    found = {(result["file"], result["line"]): result for result in results}
    # A test that always fails must not count as finding a mutant.
    assert found["arena/sums/add.py", 2]["found_by"] == "tests/arena/sums/test_add.py::test_add"
    assert found["arena/sums/add.py", 6]["outcome"] == "lived"
    assert found["tools/show.py", 2]["outcome"] == "lived"
    assert "1 of    3 found" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in root.rglob("*.py")} == before


def test_each_described_fault_says_how_it_is_noticed_and_planted() -> None:
    described = yaml.safe_load((ROOT / FAULTS).read_text())
    assert len(described) == 60
    assert described.keys() == yaml.safe_load(PLANTED.read_text()).keys()
    for fault in described.values():
        assert fault.keys() == {"area", "breaks", "notice", "question"}
        assert fault["question"].endswith("?")
    for edit in faults(ROOT):
        assert edit.tests
        assert [test for test in edit.tests if not (ROOT / test.partition("::")[0]).exists()] == []


CURVE = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0")
NULL = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0")
REASON = refusal() or missing_tools()


def frame(text: bytes, *, port: int = 4000) -> bytes:
    """Return a TCP segment over IPv4 in an Ethernet frame, padded as Ethernet does."""
    segment = struct.pack(">HHIIBBHHH", port, 5555, 0, 0, 5 << 4, 0, 0, 0, 0) + text
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, 6, 0)
    packet = header + bytes([10, 77, 0, 2, 10, 77, 0, 1]) + segment
    return (bytes(12) + b"\x08\x00" + packet).ljust(60, b"\0")


def captured(path: Path, *frames: bytes) -> Path:
    data = FILE_HEADER.pack(0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 1)
    for one in (b"\0" * 12 + b"\x08\x06" + b"arp", *frames):
        data += FRAME_HEADER.pack(0, 0, len(one), len(one)) + one
    path.write_bytes(data)
    return path


def test_words_are_found_also_where_segments_tear_them(tmp_path: Path) -> None:
    frames = (frame(CURVE), frame(b"assign"), frame(b"other", port=1), frame(b"ment_id"))
    probe = frame(PROBE, port=2)
    found = search(captured(tmp_path / "a.pcap", *frames, probe), [b"assignment_id", b"absent"])
    assert found.cleartext == ["b'assignment_id'"]
    assert (found.frames, found.probes, found.mechanisms) == (6, 1, {"CURVE": 1})
    assert not found.is_secret


def test_a_capture_is_secret_only_if_it_could_be_searched_and_all_is_encrypted(
    tmp_path: Path,
) -> None:
    probe = frame(PROBE, port=2)
    path = tmp_path / "a.pcap"
    assert search(captured(path, frame(CURVE), probe), [b"absent"]).is_secret
    assert not search(captured(path, frame(CURVE)), [b"absent"]).is_secret
    assert not search(captured(path, frame(CURVE), frame(NULL, port=3), probe), []).is_secret


@pytest.mark.slow
# Root in a container may lack namespaces. If only tools are missing, the test fails and names them.
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_learners_of_two_hosts_train_and_nothing_is_lost_readable_or_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments.faults.hosts", "--regimes", "none"]
    ended = subprocess.run(
        [*command, "--minutes", "0.1"], capture_output=True, text=True, check=False, timeout=280
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    figures = json.loads(ended.stdout)
    assert figures["is_sound"]
    assert set(figures["assignments"]) == {"controller", "host1", "host2"}
    assert all(figures["assignments"].values())
    assert figures["traffic"]["fetched_bytes"] > 0 < figures["traffic"]["given_bytes"]
    assert figures["tallies"]["acknowledged"] == figures["tallies"]["in_journal"] > 0
    assert figures["capture"]["mechanisms"].keys() == {"CURVE"}
