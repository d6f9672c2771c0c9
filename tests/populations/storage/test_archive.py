from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.failpoints import armed
from arena.types import AssignmentId
from populations.errors import JournalCorrupt, StorageError, StorageUnavailable
from populations.records.aggregates import Row
from populations.records.rows import ArchiveRow, AssignmentRow, EventRow, Json, RunRow, TallyRow
from populations.storage.archive import ARCHIVE, check_archive, remove_unnamed, write_archive
from populations.storage.backup import back_up, roll_back
from populations.storage.journal import Journal, JournalReader
from tests.faults.damage import flip_page
from tests.populations.rows import make_assignment, make_evaluate, make_tally, make_tally_row
from tests.populations.storage.test_journal import policy

NUM = 12
"""Events, assignments and tallies of the run; the ninth assignment is open."""

OPEN = 9


def event(number: int) -> EventRow:
    data: dict[str, Json] = {"number": number, "share": number / 3, "text": 'line\n"quoted" \u00e9'}
    return EventRow(
        sequence=number, time="now", kind=f"k{number % 3}", subject=f"s{number % 2}", data=data
    )


def assignment(number: int) -> AssignmentRow:
    name = AssignmentId(number)
    return make_assignment(
        make_evaluate(assignment_id=name, pairings=(), seed=2**60 + number),
        attempt=1,
        status="queued" if number == OPEN else "finished" if number % 4 else "failed",
        learner=None if number == OPEN else "learner-1",
        metrics={"time/play_s": 0.1 * number},
    )


def tally(number: int) -> TallyRow:
    return make_tally_row(
        make_tally(
            ("a" * 64, "b" * 64),
            (0, 1, 1, 0, 1),
            return_sum=(0.1 + 0.2, -1 / 3),
            return_sum_of_squares=(1e-300, 1e300),
            length_sum=7,
        ),
        number,
        kind="evaluate" if number % 5 else "train",
    )


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    rows: list[Row] = [RunRow(run="r", next_assignment=NUM + 1)]
    for number in range(1, NUM + 1):
        rows += [event(number), assignment(number), tally(number)]
    with Journal.create(tmp_path / "journal.db", rows) as journal:
        yield journal


def mark(number: int, upto: int, **changes: Any) -> ArchiveRow:
    """A range until the events, assignments and tallies of a number."""
    row = ArchiveRow(
        number=number, elapsed_s=1.0, tallies=upto, evaluated=upto, assignments=upto, events=upto
    )
    return replace(row, **changes)


def archive(journal: Journal, row: ArchiveRow) -> ArchiveRow:
    """Let details leave the journal, and remove what it still has of them."""
    written = write_archive(journal._path, row)
    journal.commit([written])
    while journal.remove_archived(limit=5):
        pass
    return written


def answers(path: Path) -> list[object]:
    """All that a reader can be asked about details."""
    found: list[object] = []
    with JournalReader(path) as reader:
        found += [list(reader.all_tallies()), list(reader.all_events())]
        found += [repr(list(reader.all_assignments()))]
        for after, limit, newest in itertools.product(
            (0, 1, 4, NUM), (None, 0, 1, 3, 100), (False, True)
        ):
            for kinds, subject in itertools.product((None, ["k1"], ["k0", "k2"]), (None, "s1")):
                found.append(
                    reader.events(
                        after=after, limit=limit, newest=newest, kinds=kinds, subject=subject
                    )
                )
            for statuses in (None, ["finished"], ["queued", "failed"]):
                found.append(
                    reader.assignments(after=after, limit=limit, newest=newest, statuses=statuses)  # type: ignore[arg-type]
                )
            found.append(reader.tallies(after=after, limit=limit))
        found.append(reader.load())
    return found


@pytest.mark.slow
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    ends=st.lists(st.integers(0, NUM), min_size=1, max_size=4).map(sorted),
    num_removed=st.integers(0, 10),
)
def test_whatever_has_left_the_journal_is_read_as_before(
    tmp_path_factory: pytest.TempPathFactory, ends: list[int], num_removed: int
) -> None:
    directory = tmp_path_factory.mktemp("run")
    rows: list[Row] = [RunRow(run="r", next_assignment=NUM + 1)]
    for number in range(1, NUM + 1):
        rows += [event(number), assignment(number), tally(number)]
    with Journal.create(directory / "journal.db", rows) as journal:
        expected = answers(journal._path)
        for number, end in enumerate(ends, start=1):
            evaluated = max((n for n in range(1, end + 1) if n % 5), default=0)
            row = mark(number, end, evaluated=evaluated)
            journal.commit([row])
            assert answers(journal._path) == expected
            written = write_archive(journal._path, row)
            assert answers(journal._path) == expected
            journal.commit([written])
            assert answers(journal._path) == expected
            for _ in range(num_removed):
                journal.remove_archived(limit=3)
            assert answers(journal._path) == expected
            assert journal.load() == expected[-1]


def test_rows_are_removed_in_steps_and_open_assignments_stay(journal: Journal) -> None:
    written = archive(journal, mark(1, NUM))
    assert (written.events, written.tallies, written.assignments) == (NUM, NUM, OPEN - 1)
    counts = [
        journal._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("events", "tallies", "assignments")
    ]
    assert counts == [0, 0, NUM - OPEN + 1]
    assert journal.remove_archived(limit=5) == 0
    # An assignment that ends later is archived with the next range.
    journal.commit([replace(assignment(OPEN), status="finished")])
    assert archive(journal, mark(2, NUM)).assignments == NUM
    with JournalReader(journal._path) as reader:
        assert [row.assignment_id for row in reader.assignments()] == list(range(1, NUM + 1))


def test_a_file_has_a_line_for_each_row(journal: Journal, tmp_path: Path) -> None:
    written = archive(journal, mark(1, 3))
    assert written.file == "000001.jsonl.zst"
    data = (tmp_path / ARCHIVE / written.file).read_bytes()
    text = zstandard.ZstdDecompressor().stream_reader(data).read().decode()
    lines = [json.loads(line) for line in text.splitlines()]
    tables = [line["table"] for line in lines]
    assert tables == ["events"] * 3 + ["assignments"] * 3 + ["tallies"] * 3 + ["end"]
    assert lines[0]["subject"] == "s1"
    assert json.loads(lines[6]["tally"])["return_sum"] == [0.1 + 0.2, -1 / 3]


def test_a_damaged_file_is_no_silent_loss(journal: Journal, tmp_path: Path) -> None:
    written = archive(journal, mark(1, 8))
    path = tmp_path / ARCHIVE / written.file
    whole = path.read_bytes()
    assert check_archive(tmp_path, written) is None
    flipped = bytearray(whole)
    flipped[len(flipped) // 2] ^= 1
    for data in (whole[:-10], whole[: len(whole) // 2], bytes(flipped), b""):
        path.write_bytes(data)
        with JournalReader(journal._path) as reader, pytest.raises(StorageError):
            list(reader.all_tallies())
        assert "sha256" in str(check_archive(tmp_path, written))
    path.unlink()
    with JournalReader(journal._path) as reader:
        with pytest.raises(StorageError, match="No such file"):
            reader.events()
        # Rows of the journal need no archive file.
        assert [row.sequence for row in reader.events(after=8)] == [9, 10, 11, 12]
        assert [row.sequence for row in reader.events(limit=2, newest=True)] == [11, 12]
    assert "No such file" in str(check_archive(tmp_path, written))


def test_a_damaged_row_of_the_archives_is_said_to_who_reads_all(
    journal: Journal, tmp_path: Path
) -> None:
    archive(journal, mark(1, 5))
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection, connection:
        connection.execute("UPDATE archives SET digest = CAST(x'5bff5d' AS TEXT)")
    with JournalReader(tmp_path / "journal.db") as reader, pytest.raises(JournalCorrupt):
        list(reader.all_events())


def test_a_disk_that_refuses_leaves_the_journal_as_it_was(journal: Journal, tmp_path: Path) -> None:
    expected = answers(journal._path)
    for point in ("archive.begin", "archive.written", "rename.synced", "rename.renamed"):
        with armed(f"{point}=raise:ENOSPC"), pytest.raises(StorageUnavailable):
            write_archive(journal._path, mark(1, 5))
        assert not list((tmp_path / ARCHIVE).glob(".tmp-*"))
        assert answers(journal._path) == expected
    archive(journal, mark(1, 5))
    assert answers(journal._path) == expected


def test_files_that_the_journal_does_not_name_are_removed(journal: Journal, tmp_path: Path) -> None:
    written = archive(journal, mark(1, 3))
    write_archive(journal._path, mark(2, 5))
    (tmp_path / ARCHIVE / f".tmp-{'0' * 32}").write_bytes(b"half of")
    remove_unnamed(tmp_path, journal.archives())
    assert [path.name for path in (tmp_path / ARCHIVE).iterdir()] == [written.file]


def test_a_line_that_lacks_a_column_is_damaged(journal: Journal, tmp_path: Path) -> None:
    written = archive(journal, mark(1, 1))
    path = tmp_path / ARCHIVE / written.file
    text = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read().decode()
    lines = [json.loads(line) for line in text.splitlines()]
    del lines[1]["message"]
    old = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.write_bytes(zstandard.ZstdCompressor().compress(old.encode()))
    with (
        JournalReader(journal._path) as reader,
        pytest.raises(StorageError, match="message missing"),
    ):
        reader.assignments()


def dump(made_journal: Path) -> list[tuple[str, list[tuple[object, ...]]]]:
    """Every table's rows with their rowids, in order."""
    with contextlib.closing(sqlite3.connect(made_journal)) as connection:
        names = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
        ).fetchall()
        return [
            (name, connection.execute(f"SELECT rowid, * FROM {name} ORDER BY rowid").fetchall())
            for (name,) in names
        ]


def plain_event(sequence: int, text: str = "") -> EventRow:
    return EventRow(sequence=sequence, time="now", kind="k", subject=text, data={})


@pytest.fixture
def made_journal(tmp_path: Path) -> Path:
    rows: list[Row] = [RunRow(run="r"), *(policy(number) for number in range(3))]
    Journal.create(tmp_path / "journal.db", [*rows, plain_event(1)]).close()
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
    made_journal, backup = directory / "journal.db", directory / "backup.db"
    with Journal.create(made_journal, [RunRow(run="r")]) as journal:
        journal.backup(backup)
        inode = backup.stat().st_ino
        for kind, number, value in changes:
            if kind == "put":
                journal.commit(
                    [
                        policy(number, speed=value),
                        plain_event(number + 1, str(value)),
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
        assert dump(backup) == dump(made_journal)
        assert backup.stat().st_ino == inode, "it was not copied anew"


def test_it_writes_what_has_changed_and_not_all(made_journal: Path) -> None:
    backup = made_journal.with_name("backup.db")
    with Journal.open(made_journal) as journal:
        journal.commit([plain_event(number, "x" * 1000) for number in range(2, 3000)])
        journal.backup(backup)
        before = backup.read_bytes()
        journal.commit([policy(1, speed=1.0), plain_event(3000)])
        journal.backup(backup)
        after = backup.read_bytes()
    pages = range(0, len(after), 4096)
    num_changed = sum(before[at : at + 4096] != after[at : at + 4096] for at in pages)
    # Only the header and a leaf of each table change.
    assert 0 < num_changed <= 4 < len(pages)


def test_a_journal_with_other_tables_is_copied_anew(made_journal: Path) -> None:
    backup = made_journal.with_name("backup.db")
    back_up(made_journal, backup)
    with contextlib.closing(sqlite3.connect(backup)) as connection:
        connection.execute("ALTER TABLE policies DROP COLUMN speed")
    back_up(made_journal, backup)
    assert dump(backup) == dump(made_journal)


def test_a_damaged_backup_is_replaced(made_journal: Path) -> None:
    backup = made_journal.with_name("backup.db")
    for damage in (flip_page, lambda file: file.write_bytes(b"no database" * 1000)):
        back_up(made_journal, backup)
        damage(backup)
        back_up(made_journal, backup)
        assert dump(backup) == dump(made_journal)
        assert [file.name for file in made_journal.parent.glob("backup.db*")] == ["backup.db"]


def test_a_damaged_journal_replaces_nothing(made_journal: Path) -> None:
    backup = made_journal.with_name("backup.db")
    back_up(made_journal, backup)
    before = dump(backup)
    with Journal.open(made_journal) as journal:
        journal.commit([policy(0, speed=9.0)])
    flip_page(made_journal)
    with pytest.raises(JournalCorrupt):
        back_up(made_journal, backup)
    assert dump(backup) == before


def flip_index(made_journal: Path) -> None:
    """Damage an index that no reading of rows looks at."""
    with contextlib.closing(sqlite3.connect(made_journal)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'assignments_status'"
        ).fetchone()
    flip_page(made_journal, page)


def test_damage_beside_the_rows_is_found_in_both_files(made_journal: Path) -> None:
    backup = made_journal.with_name("backup.db")
    back_up(made_journal, backup)
    flip_index(backup)
    back_up(made_journal, backup)
    with JournalReader(backup) as reader:
        reader.integrity_check()
    before = dump(backup)
    with Journal.open(made_journal) as journal:
        journal.commit([policy(0, speed=9.0)])
    flip_index(made_journal)
    with pytest.raises(JournalCorrupt):
        back_up(made_journal, backup)
    assert dump(backup) == before


def test_a_transaction_that_a_kill_cut_off_is_undone(made_journal: Path) -> None:
    """Where many rows have changed, pages are written before the commit."""
    backup = made_journal.with_name("backup.db")
    with Journal.open(made_journal) as journal:
        journal.commit([plain_event(number, "x" * 500) for number in range(2, 500)])
    back_up(made_journal, backup)
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
    assert [file.name for file in made_journal.parent.glob("backup.db*")] == ["backup.db"]
    assert dump(backup) == before


def test_a_backup_of_an_unchanged_journal_writes_no_page(made_journal: Path) -> None:
    backup = made_journal.with_name("backup.db")
    back_up(made_journal, backup)
    before = backup.read_bytes()
    back_up(made_journal, backup)
    # Bytes 24 to 27 and 92 to 95 of the header count transactions.
    assert before[100:] == backup.read_bytes()[100:]


def written_by_this_thread() -> int:
    """Bytes of write calls, by the kernel's count."""
    lines = Path("/proc/thread-self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


@pytest.mark.skipif(not Path("/proc/thread-self/io").exists(), reason="Linux counts it")
def test_it_says_how_much_it_has_written(made_journal: Path) -> None:
    """New rows; changed ones; rows in place of others that are gone, whose pages are filled."""
    backup = made_journal.with_name("backup.db")
    with Journal.open(made_journal) as journal:
        journal.commit([plain_event(number, "x" * 500) for number in range(2, 2000)])
        for step in range(4):
            if step == 1:
                journal.commit([plain_event(number, "y" * 500) for number in range(2000, 3000)])
            elif step == 2:
                journal.commit([plain_event(number, "z" * 499) for number in range(2, 3000, 9)])
            elif step == 3:
                journal._connection.execute("DELETE FROM events WHERE sequence < 1500")
                journal.commit([plain_event(number, "x" * 500) for number in range(3000, 5000)])
            before = written_by_this_thread()
            told = journal.backup(backup)
            written = written_by_this_thread() - before
            assert 0.8 * written < told < 1.2 * written
            assert told > 50 * 4096
