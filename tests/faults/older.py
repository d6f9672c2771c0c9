"""A run whose journal has a made-up older schema, and the migration that leads from it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from populations.records.tables import GENERATIONS, Tables
from populations.storage import migrations
from populations.storage.database import JOURNAL, SCHEMA_VERSION
from populations.storage.journal import Journal
from tests.populations.small_run import SmallRun

OLD = SCHEMA_VERSION - 1


STEPS = (
    "ALTER TABLE ghosts ADD COLUMN role TEXT NOT NULL DEFAULT 'main'",
    "ALTER TABLE ghosts ADD COLUMN quality REAL NOT NULL DEFAULT 1.0",
    "UPDATE ghosts SET quality = 0.0",
    "ALTER TABLE policies ADD COLUMN pending TEXT NOT NULL DEFAULT '{}'",
    GENERATIONS.create,
)
"""From a made-up older schema."""


def make_older(path: Path) -> None:
    """Turn a journal into one of the older schema."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for sql in (
            "ALTER TABLE ghosts DROP COLUMN role",
            "ALTER TABLE ghosts DROP COLUMN quality",
            "ALTER TABLE policies DROP COLUMN pending",
            "DROP TABLE generations",
            f"PRAGMA user_version = {OLD}",
            "PRAGMA wal_checkpoint(TRUNCATE)",
        ):
            connection.execute(sql)


def make_older_run(run_dir: Path) -> None:
    """A small run with a journal of the older schema."""
    run = SmallRun(run_dir)
    with run.journal:
        run.snapshot(run.checkpoints_of("player/p000")[0])
    make_older(run_dir / JOURNAL)


def version_of(path: Path) -> int:
    """The schema version that is committed."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def opened(run_dir: Path) -> Tables:
    """The rows of a run that is gone on with."""
    with Journal.open(run_dir / JOURNAL) as journal:
        return journal.load()


def migrate(run_dir: Path) -> None:
    """Open the run with a release that knows the migration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", {OLD: STEPS})
        opened(run_dir)


def settled(run_dir: Path) -> str:
    """Old or new; half is neither."""
    version = version_of(run_dir / JOURNAL)
    if version == OLD:
        with closing(sqlite3.connect(run_dir / JOURNAL)) as connection:
            assert not list(connection.execute("PRAGMA table_info(generations)"))
            names = [row[1] for row in connection.execute("PRAGMA table_info(ghosts)")]
            assert "role" not in names
        return "old"
    assert opened(run_dir).num_events == 1
    return "new"
