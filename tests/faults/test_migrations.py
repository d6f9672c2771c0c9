"""Journals of other releases: newer and foreign ones are refused, older ones brought up to date."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from populations.errors import JournalCorrupt, JournalForeign
from populations.records.tables import GENERATIONS, Table, Tables
from populations.storage import migrations
from populations.storage.database import BACKUP, JOURNAL, SCHEMA_VERSION
from populations.storage.journal import Journal, JournalReader
from populations.storage.migrations import copy_path
from tests.faults.nth import copied
from tests.faults.older import OLD, STEPS, make_older_run, opened, settled, version_of
from tests.populations.small_run import SmallRun
from tests.support import exit_code


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory that nobody changes."""
    directory = tmp_path_factory.mktemp("older")
    make_older_run(directory)
    return directory


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """This release knows the migration."""
    monkeypatch.setattr(migrations, "MIGRATIONS", {OLD: STEPS})


def expected(run_dir: Path) -> Tables:
    """The run as this release makes it."""
    run = SmallRun(run_dir)
    with run.journal:
        run.snapshot(run.checkpoints_of("player/p000")[0])
        return run.tables


def test_an_older_journal_is_brought_up_to_date_and_a_copy_stays(
    older: Path, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    tables = expected(tmp_path / "new")
    with copied(older, tmp_path) as run_dir:
        before = opened(run_dir)
        tables.num_events += 1
        # Each run has its own name, and the older schema has no generations.
        tables.run = replace(tables.run, configuration=before.run.configuration)
        tables.generations = Table(GENERATIONS)
        assert before == tables
        with JournalReader(run_dir / JOURNAL) as reader:
            (event,) = reader.events(kinds=["journal_migrated"])
            assert (event.data["from"], event.data["to"]) == (OLD, SCHEMA_VERSION)
        copy = copy_path(run_dir / JOURNAL, version=OLD)
        assert copy.name == event.data["copy"] == f"journal.db.v{OLD}.bak"
        assert version_of(copy) == OLD
        assert opened(run_dir) == before, "there is nothing to do the second time"


def test_the_columns_are_those_of_a_new_journal(older: Path, tmp_path: Path) -> None:
    def columns(path: Path) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(path)) as connection:
            query = "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c"
            return sorted(connection.execute(query))

    Journal.create(tmp_path / "new.db", []).close()
    with copied(older, tmp_path) as run_dir:
        opened(run_dir)
        assert columns(run_dir / JOURNAL) == columns(tmp_path / "new.db")


def test_rows_of_an_older_journal_get_their_seals(older: Path, tmp_path: Path) -> None:
    with copied(older, tmp_path) as run_dir:
        opened(run_dir)
        with closing(sqlite3.connect(run_dir / JOURNAL)) as connection:
            connection.execute("UPDATE policies SET speed = 7.0 WHERE rowid = 1")
            connection.commit()
        with pytest.raises(JournalCorrupt, match="a row of policies is damaged"):
            opened(run_dir)


def test_whoever_only_reads_changes_nothing(older: Path) -> None:
    before = (older / JOURNAL).read_bytes()
    with pytest.raises(
        JournalForeign, match=rf"schema version {OLD}; this release reads {SCHEMA_VERSION}.*resume"
    ):
        JournalReader(older / JOURNAL)
    assert (older / JOURNAL).read_bytes() == before
    assert not list(older.glob("journal.db*-*"))


def test_a_migration_that_cannot_be_read_afterwards_is_taken_back(
    older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoils = "UPDATE policies SET pending = 'no JSON'"
    monkeypatch.setattr(migrations, "MIGRATIONS", {OLD: (*STEPS, spoils)})
    with copied(older, tmp_path) as run_dir:
        with pytest.raises(JournalCorrupt, match="a row of policies is damaged"):
            opened(run_dir)
        assert settled(run_dir) == "old"


def test_without_a_migration_an_older_one_is_refused(
    older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "MIGRATIONS", {})
    with copied(older, tmp_path) as run_dir:
        before = contents(run_dir)
        with pytest.raises(
            JournalForeign, match=f"schema version {OLD}; this release reads {SCHEMA_VERSION}"
        ):
            opened(run_dir)
        assert contents(run_dir) == before


def contents(run_dir: Path) -> dict[str, bytes]:
    """Every file but the lock, which commands take."""
    files = [path for path in run_dir.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(run_dir)): path.read_bytes()
        for path in files
        if path.name != "controller.lock"
    }


PRAGMAS = {
    f"schema version {SCHEMA_VERSION + 1}; this release reads {SCHEMA_VERSION}: upgrade": (
        f"PRAGMA user_version = {SCHEMA_VERSION + 1}"
    ),
    "a database of another application (id 0x12345678,": "PRAGMA application_id = 0x12345678",
}


@pytest.mark.parametrize("message", PRAGMAS)
@pytest.mark.parametrize("where", ["in the header", "in the WAL"])
def test_what_is_newer_or_of_another_application_is_refused_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], message: str, where: str
) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    run = SmallRun(run_dir)
    run.journal.backup(run_dir / BACKUP)
    run.journal.close()
    connection = sqlite3.connect(run_dir / JOURNAL, isolation_level=None)
    connection.execute(PRAGMAS[message])
    if where == "in the header":
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    elif "application" in message:
        connection.close()
        pytest.skip("SQLite reads another application's file as the application would")
    before = contents(run_dir)
    commands = (
        ("verify",),
        ("verify", "--repair"),
        ("league",),
        ("launch", "--resume", "--run-dir"),
    )
    for command in commands:
        assert exit_code(*command, run_dir) == 5, command
        written = capsys.readouterr()
        assert message in " ".join((written.out + written.err).split()), command
    after = contents(run_dir)
    connection.close()
    # SQLite's index of the WAL is shared memory of readers, not data.
    after.pop("journal.db-shm", None)
    before.pop("journal.db-shm", None)
    assert after == before
