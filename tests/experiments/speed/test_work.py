"""Each line, call and statement is counted, twice the same; what is planted is found."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import populations
from experiments.planted_league.week import Size
from experiments.speed import work
from experiments.speed.work import Counter, Work, measure
from populations.controller.machine import handle
from populations.storage.journal import Journal

SIZE = Size(checkpoints=20, evaluated_every=5, pairs=4, met=1)

CODE = """\
def total(values):
    found = 0
    for value in values:
        found += once(value)
    return found

def once(value): return value
"""


def compiled(place: Path, code: str, **known: object) -> dict[str, Any]:
    """Return what code of a file there has defined; the file need not exist."""
    names: dict[str, Any] = dict(known)
    exec(compile(code, str(place), "exec"), names)
    return names


def test_lines_and_calls_are_those_of_the_code_that_counts(tmp_path: Path) -> None:
    ours = compiled(tmp_path / "ours/code.py", CODE)["total"]
    others = compiled(tmp_path / "ours-not/code.py", CODE)["total"]
    counter = Counter(tmp_path / "ours")
    with counter.counting() as found:
        ours([1, 2])
        others([1, 2, 3])
    # 1 line before the loop; the loop's head 3 times and body twice; 1 after it; once() twice.
    assert found == Work(lines=1 + 3 + 2 + 1 + 2, calls=3)
    ours([1, 2])
    assert found == Work(lines=9, calls=3)


def test_statements_are_those_of_connections_that_are_watched() -> None:
    counter = Counter()
    with counter.watching():
        watched = sqlite3.connect(":memory:")
    other = sqlite3.connect(":memory:")
    with counter.counting() as found:
        watched.execute("CREATE TABLE one (value)")
        watched.execute("INSERT INTO one VALUES (1)")  # this opens a transaction
        watched.commit()
        other.execute("SELECT 1")
    assert found == Work(statements=4)
    watched.close()
    other.close()


@pytest.fixture(name="counts", scope="module")
def count_once() -> dict[str, dict[str, int]]:
    return counted()


def counted() -> dict[str, dict[str, int]]:
    with pytest.MonkeyPatch.context() as few:
        few.setattr(work, "NUMBER", 2)
        few.setattr(work, "WARM", 0)
        return measure(4, SIZE)


def test_work_is_the_same_twice(counts: dict[str, dict[str, int]]) -> None:
    assert set(counts) == {"training", "evaluation", "heartbeat", "pbt"}
    assert counted() == counts
    assert all(counts[kind]["statements"] for kind in ("training", "evaluation", "pbt"))
    # A heartbeat changes no row, so nothing is committed.
    assert counts["heartbeat"]["statements"] == 0


def test_lines_that_are_planted_in_each_decision_are_counted(
    counts: dict[str, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (package,) = populations.__path__
    code = """\
def planted(state, event, now):
    for _ in range(10): pass
    return handle(state, event, now)
"""
    names = compiled(Path(package, "planted.py"), code, handle=handle)
    monkeypatch.setattr(work, "handle", names["planted"])
    found = counted()
    # Each round of the loop is a line; a PBT decision takes two transactions.
    lines, calls = more(found, counts, "lines"), more(found, counts, "calls")
    assert lines["pbt"] == 2 * lines["training"]
    assert lines["training"] == lines["evaluation"] == lines["heartbeat"] >= 12
    assert calls == {"training": 1, "evaluation": 1, "heartbeat": 1, "pbt": 2}


def test_a_statement_that_is_planted_in_each_commit_is_counted(
    counts: dict[str, dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit: Callable[..., None] = Journal.commit

    def planted(self: Journal, rows: Any) -> None:
        commit(self, rows)
        self._connection.execute("SELECT 1")

    monkeypatch.setattr(Journal, "commit", planted)
    found = more(counted(), counts, "statements")
    assert found == {"training": 1, "evaluation": 1, "heartbeat": 0, "pbt": 2}


def more(
    found: dict[str, dict[str, int]], counts: dict[str, dict[str, int]], name: str
) -> dict[str, int]:
    return {kind: of_kind[name] - counts[kind][name] for kind, of_kind in found.items()}
