from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from arena.failpoints import armed
from populations.errors import JournalCorrupt, StorageError, StorageUnavailable
from populations.records.aggregates import Row
from populations.records.rows import EventRow, PolicyRow, RunRow
from populations.storage.database import SCHEMA_VERSION
from populations.storage.journal import Journal, JournalReader
from tests.populations.rows import make_policy, make_ratings


def policy(number: int, **changes: Any) -> PolicyRow:
    row = make_policy(
        f"player/p{number:03d}",
        index=number,
        hyperparameters={"learning_rate": 3e-4, "num_epochs": 4},
    )
    return structs.replace(row, **changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Journal.create(tmp_path / "journal.db", [RunRow(run="r"), policy(0)]).close()
    return tmp_path / "journal.db"


def test_integers_among_hyperparameters_stay_integers(path: Path) -> None:
    with JournalReader(path) as reader:
        loaded = reader.load().policies[policy(0).policy].hyperparameters
    assert repr(loaded) == repr({"learning_rate": 3e-4, "num_epochs": 4})


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["column", "json", "packed"])
def test_a_number_that_is_not_finite_is_never_stored(path: Path, number: float, where: str) -> None:
    rows: dict[str, Row] = {
        "column": policy(1, speed=number),
        "json": policy(1, hyperparameters={"gamma": number}),
        "packed": make_ratings(ratings=(number,)),
    }
    with Journal.open(path) as journal:
        before = journal.load()
        with pytest.raises(ValueError):
            journal.commit([policy(2), rows[where]])
        assert journal.load() == before


def test_an_integer_beyond_64_bits_is_refused_and_nothing_is_written(path: Path) -> None:
    with Journal.open(path) as journal:
        before = journal.load()
        with pytest.raises(ValueError, match="64 bits"):
            journal.commit([policy(2), policy(1, agent_steps=2**63)])
        assert journal.load() == before


def test_a_row_that_sqlite_refuses_takes_the_others_back(path: Path) -> None:
    with Journal.open(path) as journal:
        before = journal.load()
        with pytest.raises(ValueError):
            journal.commit([policy(2), policy(1, role="\ud800")])
        assert journal.load() == before
        journal.commit([policy(3)])
        assert len(journal.load().policies) == len(before.policies) + 1


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
def test_a_journal_that_is_no_longer_there_takes_no_commits(path: Path, how: str) -> None:
    journal = Journal.open(path)
    if how == "moved":
        path.parent.rename(path.parent.with_name("elsewhere"))
    elif how == "deleted":
        path.unlink()
    else:
        shutil.copy(path, path.with_name("copy"))
        os.replace(path.with_name("copy"), path)
    with pytest.raises(StorageError):
        journal.commit([policy(1)])
    journal.close()
    assert path.parent.exists() == (how != "moved")


def test_a_second_journal_is_not_made_over_the_first(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(StorageError, match="already"):
        Journal.create(path, [RunRow(run="other")])
    assert path.read_bytes() == before


def test_a_journal_is_made_completely_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        Journal.create(tmp_path / "journal.db", [policy(0, speed=float("nan"))])
    with pytest.raises(StorageError):
        Journal.create(tmp_path / "gone" / "journal.db", [])
    assert list(tmp_path.iterdir()) == []


def test_the_wal_of_a_deleted_journal_does_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    old = Journal.create(path, [RunRow(run="old")])
    old.commit([policy(number) for number in range(50)])
    shutil.copy(f"{path}-wal", tmp_path / "saved")
    old.close()
    path.unlink()
    shutil.copy(tmp_path / "saved", f"{path}-wal")
    with Journal.create(path, [RunRow(run="new")]) as journal:
        tables = journal.load()
    assert (tables.run.run, tables.policies) == ("new", {})


def test_there_must_be_a_journal(tmp_path: Path) -> None:
    for open_journal in (Journal.open, JournalReader):
        with pytest.raises(StorageError, match="no journal"):
            open_journal(tmp_path / "journal.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("what", ["empty", "text", "foreign", "newer", "older"])
def test_what_is_not_ours_is_refused_and_not_touched(tmp_path: Path, what: str) -> None:
    path = tmp_path / "journal.db"
    if what == "empty":
        path.touch()
    elif what == "text":
        path.write_text("not a database " * 100)
    elif what == "foreign":
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE t (x)")
        connection.commit()
        connection.close()
    else:
        Journal.create(path, [RunRow(run="r")]).close()
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1 if what == 'newer' else 0}")
        connection.commit()
        connection.close()
    before = path.read_bytes()
    for open_journal in (Journal.open, JournalReader):
        with pytest.raises(JournalCorrupt):
            open_journal(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["journal.db"]


def test_a_damaged_row_is_corrupt(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute('UPDATE policies SET hyperparameters = \'{"gamma": "x"}\'')
    connection.commit()
    connection.close()
    with JournalReader(path) as reader, pytest.raises(JournalCorrupt, match="policies"):
        reader.load()


def test_events_are_found_by_sequence_kind_and_subject(path: Path) -> None:
    kinds = ["exploited", "ghost_created", "exploited", "quarantined", "exploited"]
    rows = [
        EventRow(sequence=i, time="now", kind=kind, subject=f"s{i % 2}", data={"i": i})
        for i, kind in enumerate(kinds, start=1)
    ]
    with Journal.open(path) as journal:
        journal.commit(rows)
    with JournalReader(path) as reader:
        assert reader.events() == rows
        assert reader.events(after=3) == rows[3:]
        assert reader.events(limit=2) == rows[:2]
        assert reader.events(limit=2, newest=True) == rows[3:]
        assert reader.events(kinds=["exploited"]) == rows[::2]
        assert reader.events(kinds=[]) == []
        assert reader.events(kinds=["exploited", "quarantined"], after=1) == rows[2:]
        assert reader.events(subject="s0", kinds=["quarantined"]) == [rows[3]]
        assert reader.events(subject="s0' OR 1") == []


def test_a_journal_gives_pages_back_step_by_step(path: Path) -> None:
    def free(journal: Journal) -> tuple[int, int]:
        query = journal._connection.execute
        return (
            query("PRAGMA freelist_count").fetchone()[0],
            query("PRAGMA page_count").fetchone()[0],
        )

    with Journal.open(path) as journal:
        rows = [
            EventRow(sequence=number, time="", kind="k", subject="x" * 3000, data={})
            for number in range(1, 501)
        ]
        journal.commit(rows)
        assert not journal.shrink(pages=10), "there is nothing to give back"
        journal._connection.execute("DELETE FROM events WHERE sequence <= 400")
        before = journal.load()
        before_free, before_total = free(journal)
        assert before_free >= 390
        assert journal.shrink(pages=10)
        assert free(journal) == (before_free - 10, before_total - 10)
        num_steps = 1
        while journal.shrink(pages=10):
            num_steps += 1
        left, total = free(journal)
        # A quarter of the pages stays free for new rows.
        assert total * 0.25 - 10 <= left <= total * 0.25
        assert num_steps == (before_free - left) // 10
        assert journal.load() == before
    assert path.stat().st_size == 4096 * total
    with JournalReader(path) as reader:
        reader.integrity_check()
        assert reader.events() == rows[400:]


def test_a_reader_sees_one_state_while_the_writer_goes_on(path: Path) -> None:
    with Journal.open(path) as journal, JournalReader(path) as reader:
        with reader.snapshot():
            before = reader.load()
            journal.commit(
                [policy(1), EventRow(sequence=1, time="", kind="k", subject="", data={})]
            )
            assert reader.load() == before
            assert reader.events() == []
        assert reader.load() == journal.load()
        assert len(reader.events()) == 1


def test_readers_write_nothing(path: Path) -> None:
    with JournalReader(path) as reader, pytest.raises(sqlite3.OperationalError):
        reader._connection.execute("DELETE FROM policies")


def test_closing_twice_and_leaving_no_wal_behind(path: Path) -> None:
    journal = Journal.open(path)
    journal.commit([policy(1)])
    journal.close()
    journal.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["journal.db"]


COMMITTER = """
import sys
from msgspec.structs import replace
from pathlib import Path
from populations.storage.journal import Journal
from populations.records.rows import EventRow

with Journal.open(Path(sys.argv[1])) as journal:
    tables = journal.load()
    run, number = tables.run, tables.num_events
    while True:
        number += 1
        run = replace(run, matches=number)
        event = EventRow(sequence=number, time="", kind="k", subject="", data={"x": "y" * 500})
        journal.commit([event, run])
        print(number, flush=True)
"""


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.mark.slow
def test_after_sigkill_every_acknowledged_commit_is_there(
    path: Path, environment: dict[str, str]
) -> None:
    """Five rounds; in some, the tail of the WAL is garbage as well."""
    rng = random.Random(2)
    acknowledged = 0
    for round_ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", COMMITTER, str(path)], stdout=subprocess.PIPE, env=environment
        ) as process:
            assert process.stdout is not None
            for _ in range(rng.randrange(1, 300)):
                acknowledged = int(process.stdout.readline())
            with JournalReader(path) as reader:
                assert reader.load().num_events >= acknowledged
            process.send_signal(signal.SIGKILL)
            acknowledged = int(process.stdout.read().split(b"\n")[-2:][0] or acknowledged)
        if round_ % 2:
            with open(f"{path}-wal", "ab") as wal:
                wal.write(rng.randbytes(777))
        with JournalReader(path) as reader:
            reader.integrity_check()
            tables = reader.load()
            events = reader.events()
        assert tables.num_events in (acknowledged, acknowledged + 1)
        assert tables.run.matches == tables.num_events == len(events)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        with Journal.open(path) as journal:
            assert journal.load() == tables


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to be refused")
@pytest.mark.parametrize("state", ["running", "killed", "closed"])
def test_somebody_who_may_only_read_can_look(state: str, environment: dict[str, str]) -> None:
    """A directory of root's, looked at by nobody: SQLite may make no file there."""
    look = (
        "import os, sys; from pathlib import Path\n"
        "from populations.storage.journal import JournalReader\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "print(JournalReader(Path(sys.argv[1])).load().num_events)"
    )
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        path = Path(directory, "journal.db")
        Journal.create(path, [RunRow(run="r")]).close()
        committer = [sys.executable, "-c", COMMITTER, str(path)]
        with subprocess.Popen(committer, stdout=subprocess.PIPE, env=environment) as process:
            try:
                assert process.stdout is not None
                for _ in range(20):
                    process.stdout.readline()
                if state != "running":
                    process.kill()
                    process.wait()
                if state == "closed":
                    Journal.open(path).close()
                    assert not Path(f"{path}-wal").exists()
                seen = subprocess.run(
                    [sys.executable, "-c", look, str(path)],
                    env=environment,
                    check=True,
                    capture_output=True,
                    timeout=60,
                )
                assert int(seen.stdout) >= 20
            finally:
                process.kill()


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_a_journal_is_written_through_no_link(tmp_path: Path, end: str) -> None:
    path, theirs = tmp_path / "journal.db", tmp_path / "theirs"
    Journal.create(path, [RunRow(run="r")]).close()
    if end:
        theirs.write_text("of the user" * 1000)
    else:
        path.rename(theirs)
    Path(f"{path}{end}").symlink_to(theirs)
    before = theirs.read_bytes()
    with pytest.raises(StorageError, match="a symbolic link"), Journal.open(path) as journal:
        journal.commit([RunRow(run="r", matches=1)])
    assert theirs.read_bytes() == before


def test_a_full_disk_changes_nothing(path: Path) -> None:
    with Journal.open(path) as journal:
        before = journal.load()
        (pages,) = journal._connection.execute("PRAGMA page_count").fetchone()
        journal._connection.execute(f"PRAGMA max_page_count = {pages}")
        many = [policy(number) for number in range(1, 400)]
        with pytest.raises(StorageError, match="full"):
            journal.commit(many)
        assert journal.load() == before
        journal._connection.execute("PRAGMA max_page_count = 1000000")
        journal.commit(many)
        assert len(journal.load().policies) == 400
    with JournalReader(path) as reader:
        reader.integrity_check()
        assert len(reader.load().policies) == 400


def test_damaged_pages_are_noticed_or_harmless_and_never_another_error(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with Journal.create(path, [RunRow(run="r")]) as journal:
        journal.commit([policy(number) for number in range(60)])
    data = path.read_bytes()
    rng = random.Random(1)
    num_refused = 0
    for page in range(1, len(data) // 4096):
        damaged = bytearray(data)
        start = page * 4096
        damaged[start : start + 8] = rng.randbytes(8)
        path.write_bytes(damaged)
        try:
            with Journal.open(path) as journal:
                journal.load()
        except StorageError:
            num_refused += 1
    assert num_refused > len(data) // 4096 // 2


def _refuse(_: int) -> None:
    raise OSError(5, "Input/output error")


def test_a_backup_is_the_committed_state_in_one_file(path: Path) -> None:
    copy = path.with_name("copy.db")
    with Journal.open(path) as journal:
        for number in range(3):
            journal.commit([policy(number + 1)])
            journal.backup(copy)
            state = journal.load()
        journal.commit([policy(9)])
        assert not list(path.parent.glob("copy.db-*"))
        assert not list(path.parent.glob(".tmp-*"))
    with Journal.open(copy) as restored:
        assert restored.load() == state


def test_a_backup_that_fails_leaves_the_old_one(path: Path) -> None:
    copy = path.with_name("copy.db")
    with Journal.open(path) as journal:
        journal.backup(copy)
        before = copy.read_bytes()
        with pytest.raises(StorageError):
            journal.backup(path.parent / "gone" / "copy.db")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", _refuse)
            with pytest.raises(StorageError):
                journal.backup(path.with_name("another.db"))
        assert not path.with_name("another.db").exists()
        journal.commit([policy(1)])
        for point in ("backup.following", "backup.followed"):
            with armed(f"{point}=raise:ENOSPC"), pytest.raises(StorageUnavailable):
                journal.backup(copy)
            assert copy.read_bytes() == before
        assert not list(path.parent.glob(".tmp-*"))
