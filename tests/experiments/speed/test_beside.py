"""Two checkouts are measured in turn, in pairs, and a comparison that was ended goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.speed.beside import Checkout, Figures, compared, main, measure, table, turns

PYTHON = """#!/bin/sh
cat << END
{"speed, $PWD": 1, "arguments, $*": 2, "path, $PYTHONPATH": 3, "count": COUNT}
END
"""


def git(root: Path, *arguments: str) -> None:
    author = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    subprocess.run(["git", *author, *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path, message: str) -> None:
    git(root, "commit", "--allow-empty", "-m", message)


@pytest.fixture
def roots(tmp_path: Path) -> dict[str, Path]:
    """Return two checkouts whose interpreter prints what it was asked."""
    found = {}
    for side, count in (("before", 20), ("after", 30)):
        root = found[side] = tmp_path / side
        python = root / ".venv/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON.replace("COUNT", str(count)))
        python.chmod(0o700)
        (root / ".gitignore").write_text(".venv\n")
        git(root, "init", "-q")
        git(root, "add", ".gitignore")
        commit(root, side)
    return found


@pytest.fixture
def checkouts(roots: dict[str, Path], tmp_path: Path) -> dict[str, Checkout]:
    return {
        side: Checkout(side=side, root=root, scratch=tmp_path / "scratch")
        for side, root in roots.items()
    }


def recording(asked: list[tuple[str, int]], *, fails_at: int = -1) -> Callable[..., Figures]:
    """Return a part that notes which checkout is measured in which round."""

    def part(checkout: Checkout, number: int) -> Figures:
        if len(asked) == fails_at:
            raise KeyboardInterrupt
        asked.append((checkout.side, number))
        return {"s": 1.0 + len(asked)}

    return part


def test_the_side_that_begins_changes_from_round_to_round() -> None:
    order = [(side, number) for _, number, side in turns(["bench"], rounds=3)]
    assert order == [
        *(("before", 0), ("after", 0)),
        *(("after", 1), ("before", 1)),
        *(("before", 2), ("after", 2)),
    ]


def result(side: str, number: int, **figures: float) -> dict[str, Any]:
    return {"part": "bench", "side": side, "round": number, "figures": figures}


def test_ratios_are_of_the_two_sides_of_a_round() -> None:
    # The machine was half as fast in the second round, and "after" is missing in the fourth.
    lines = compared(
        [
            *(result("before", 0, s=1.0), result("after", 0, s=1.5)),
            *(result("after", 1, s=3.0), result("before", 1, s=2.0)),
            *(result("before", 2, s=1.0), result("after", 2, s=1.2)),
            result("before", 3, s=9.0),
        ]
    )
    (line,) = lines
    assert line["ratios"] == pytest.approx([1.5, 1.5, 1.2])
    # The medians are those of 1, 2, 1, 9 and of 1.5, 3, 1.2.
    assert (line["before"], line["after"]) == (1.5, 1.5)
    assert line["ratio"] == 1.5
    (_, shown) = table([line])
    assert shown.split() == ["s", "1.5", "1.5", "1.500", "1.200-1.500"]


def test_what_one_side_lacks_and_what_was_nothing_has_no_ratio() -> None:
    lines = list(compared([result("before", 0, old=2.0, none=0.0), result("after", 0, none=4.0)]))
    assert [(line["before"], line["after"], line["ratio"]) for line in lines] == [
        (2.0, None, None),
        (0.0, 4.0, None),
    ]
    assert [line.split() for line in table(lines)][1:] == [["old", "2", "-"], ["none", "0", "4"]]


def test_a_comparison_that_was_ended_goes_on(
    checkouts: dict[str, Checkout], tmp_path: Path
) -> None:
    out, asked = tmp_path / "out.jsonl", list[tuple[str, int]]()
    part = {"bench": recording(asked, fails_at=3)}
    with pytest.raises(KeyboardInterrupt):
        measure(checkouts, parts=["bench"], rounds=3, out=out, ways=part)
    assert asked == [("before", 0), ("after", 0), ("after", 1)]
    # A kill cut the last line short, so its result is measured again.
    out.write_text(out.read_text()[:-5])
    again = list[tuple[str, int]]()
    part = {"bench": recording(again)}
    results = measure(checkouts, parts=["bench"], rounds=3, out=out, ways=part)
    assert again == [("after", 1), ("before", 1), ("before", 2), ("after", 2)]
    assert len(results) == 6
    third = list[tuple[str, int]]()
    part = {"bench": recording(third)}
    assert measure(checkouts, parts=["bench"], rounds=3, out=out, ways=part) == results
    assert third == []


def test_results_of_another_commit_are_not_mixed_in(
    roots: dict[str, Path], checkouts: dict[str, Checkout], tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    arguments = [*map(str, roots.values()), "--parts", "work", "--out", str(out)]
    main(arguments)
    stored = out.read_text()
    commit(roots["after"], "another")
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert out.read_text() == stored


def test_each_checkout_runs_its_own_program_alone(
    roots: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    out = tmp_path / "out.jsonl"
    arguments = [*map(str, roots.values()), "--parts", "work", "--out", str(out), "--json"]
    main(arguments)
    figures = {line["figure"]: line for line in json.loads(capsys.readouterr().out)["figures"]}
    for side, root in roots.items():
        assert figures[f"speed, {root}"][side] == 1
    assert figures["arguments, -m experiments.speed.work"]["ratio"] == 1.0
    assert figures["path, "]["ratio"] == 1.0
    assert figures["count"]["ratio"] == 1.5
    main(arguments[:-1])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert max(map(len, lines)) <= 80
