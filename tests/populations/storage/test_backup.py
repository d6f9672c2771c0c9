from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from populations.errors import JournalCorrupt, StorageError
from populations.records.aggregates import Row
from populations.records.rows import EventRow, RunRow
from populations.storage.backup import back_up, roll_back
from populations.storage.journal import Journal, JournalReader
from tests.faults.damage import flip_page
from tests.populations.storage.test_journal import policy


def dump(path: Path) -> list[tuple[str, list[tuple[object, ...]]]]:
    """Every table's rows with their rowids, in order."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
        ).fetchall()
        return [
            (name, connection.execute(f"SELECT rowid, * FROM {name} ORDER BY rowid").fetchall())
            for (name,) in names
        ]


def event(sequence: int, text: str = "") -> EventRow:
    return EventRow(sequence=sequence, time="now", kind="k", subject=text, data={})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows: list[Row] = [RunRow(run="r"), *(policy(number) for number in range(3))]
    Journal.create(tmp_path / "journal.db", [*rows, event(1)]).close()
    return tmp_path / "journal.db"


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["put", "drop", "backup"]),
        st.integers(0, 6),
        st.floats(0.0, 1.0),
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(changes=CHANGES)
def test_a_backup_follows_whatever_became_of_rows(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int, float]]
) -> None:
    """Rows that are new, changed, gone, or there again at another place."""
    directory = tmp_path_factory.mktemp("run")
    path, backup = directory / "journal.db", directory / "backup.db"
    with Journal.create(path, [RunRow(run="r")]) as journal:
        journal.backup(backup)
        inode = backup.stat().st_ino
        for kind, number, value in changes:
            if kind == "put":
                journal.commit(
                    [
                        policy(number, speed=value),
                        event(number + 1, str(value)),
                        RunRow(run="r", elapsed_s=value),
                    ]
                )
            elif kind == "drop":
                for table, key in (("policies", "policy"), ("events", "sequence")):
                    journal._connection.execute(
                        f"DELETE FROM {table} WHERE {key} IN (?, ?)",
                        (policy(number).policy, number + 1),
                    )
            else:
                journal.backup(backup)
        journal.backup(backup)
        assert dump(backup) == dump(path)
        assert backup.stat().st_ino == inode, "it was not copied anew"


def test_it_writes_what_has_changed_and_not_all(path: Path) -> None:
    backup = path.with_name("backup.db")
    with Journal.open(path) as journal:
        journal.commit([event(number, "x" * 1000) for number in range(2, 3000)])
        journal.backup(backup)
        before = backup.read_bytes()
        journal.commit([policy(1, speed=1.0), event(3000)])
        journal.backup(backup)
        after = backup.read_bytes()
    pages = range(0, len(after), 4096)
    num_changed = sum(before[at : at + 4096] != after[at : at + 4096] for at in pages)
    # The header, and a leaf of each table.
    assert 0 < num_changed <= 4 < len(pages)


def test_a_journal_with_other_tables_is_copied_anew(path: Path) -> None:
    backup = path.with_name("backup.db")
    back_up(path, backup)
    with contextlib.closing(sqlite3.connect(backup)) as connection:
        connection.execute("ALTER TABLE policies DROP COLUMN speed")
    back_up(path, backup)
    assert dump(backup) == dump(path)


def test_a_damaged_backup_is_replaced(path: Path) -> None:
    backup = path.with_name("backup.db")
    for damage in (flip_page, lambda file: file.write_bytes(b"no database" * 1000)):
        back_up(path, backup)
        damage(backup)
        back_up(path, backup)
        assert dump(backup) == dump(path)
        assert [file.name for file in path.parent.glob("backup.db*")] == ["backup.db"]


def test_a_damaged_journal_replaces_nothing(path: Path) -> None:
    backup = path.with_name("backup.db")
    back_up(path, backup)
    before = dump(backup)
    with Journal.open(path) as journal:
        journal.commit([policy(0, speed=9.0)])
    flip_page(path)
    with pytest.raises(JournalCorrupt):
        back_up(path, backup)
    assert dump(backup) == before


def flip_index(path: Path) -> None:
    """Damage an index that no reading of rows looks at."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'assignments_status'"
        ).fetchone()
    flip_page(path, page)


def test_damage_beside_the_rows_is_found_in_both_files(path: Path) -> None:
    backup = path.with_name("backup.db")
    back_up(path, backup)
    flip_index(backup)
    back_up(path, backup)
    with JournalReader(backup) as reader:
        reader.integrity_check()
    before = dump(backup)
    with Journal.open(path) as journal:
        journal.commit([policy(0, speed=9.0)])
    flip_index(path)
    with pytest.raises(JournalCorrupt):
        back_up(path, backup)
    assert dump(backup) == before


def test_a_transaction_that_a_kill_cut_off_is_undone(path: Path) -> None:
    """Where many rows have changed, pages are written before the commit."""
    backup = path.with_name("backup.db")
    with Journal.open(path) as journal:
        journal.commit([event(number, "x" * 500) for number in range(2, 500)])
    back_up(path, backup)
    before = dump(backup)
    child = os.fork()
    if child == 0:
        connection = sqlite3.connect(backup, isolation_level=None)
        connection.execute("PRAGMA cache_size = 5")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE events SET subject = 'torn'")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert backup.with_name("backup.db-journal").exists()
    assert b"torn" in backup.read_bytes()
    with pytest.raises(StorageError), JournalReader(backup):
        pass
    roll_back(backup)
    assert [file.name for file in path.parent.glob("backup.db*")] == ["backup.db"]
    assert dump(backup) == before


def test_a_backup_of_an_unchanged_journal_writes_no_page(path: Path) -> None:
    backup = path.with_name("backup.db")
    back_up(path, backup)
    before = backup.read_bytes()
    back_up(path, backup)
    # Bytes 24 to 27 and 92 to 95 of the header count transactions.
    assert before[100:] == backup.read_bytes()[100:]


def written_by_this_thread() -> int:
    """Bytes of write calls, by the kernel's count."""
    lines = Path("/proc/thread-self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


@pytest.mark.skipif(not Path("/proc/thread-self/io").exists(), reason="Linux counts it")
def test_it_says_how_much_it_has_written(path: Path) -> None:
    """New rows; changed ones; rows in place of others that are gone, whose pages are filled."""
    backup = path.with_name("backup.db")
    with Journal.open(path) as journal:
        journal.commit([event(number, "x" * 500) for number in range(2, 2000)])
        for step in range(4):
            if step == 1:
                journal.commit([event(number, "y" * 500) for number in range(2000, 3000)])
            elif step == 2:
                journal.commit([event(number, "z" * 499) for number in range(2, 3000, 9)])
            elif step == 3:
                journal._connection.execute("DELETE FROM events WHERE sequence < 1500")
                journal.commit([event(number, "x" * 500) for number in range(3000, 5000)])
            before = written_by_this_thread()
            told = journal.backup(backup)
            written = written_by_this_thread() - before
            assert 0.8 * written < told < 1.2 * written
            assert told > 50 * 4096
