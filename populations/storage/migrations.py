"""Migrations of journals of older releases when a run is resumed.

A migration is data: its schema versions before and after, and the statements in between. Those that
lead to this release's version run in one transaction, after a copy of the journal was put beside it
(``journal.db.v1.bak``); on any error the journal stays unchanged. A migration that changes the
layout adds a test with a journal of the old one.

Tests: `tests/faults/test_migrations.py`.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from arena.failpoints import failpoint
from populations.errors import JournalForeign
from populations.records.rows import EventRow
from populations.records.tables import added_columns, encode_row, seal_rows
from populations.storage.backup import copy_durably
from populations.storage.database import (
    SCHEMA_VERSION,
    connect,
    connect_reader,
    require_journal,
    require_sound,
    require_version,
    schema_version,
    storage_errors,
    transaction,
)
from populations.storage.loading import load_tables

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """Migration from one schema version to a later one.

    Attributes:
        from_version: Schema version before.
        to_version: Schema version after.
        steps: SQL statements, and functions for what SQL cannot express, in order. They must not
            commit.
    """

    from_version: int
    to_version: int
    steps: tuple[str | Callable[[sqlite3.Connection], None], ...]


def _forget_run_file(connection: sqlite3.Connection) -> None:
    """Forget the digest of run.yaml's bytes: since then it is one of what the file says."""
    # Not every journal of that version has the column, which has a default.
    if any(row[1] == "configuration" for row in connection.execute("PRAGMA table_info(run)")):
        connection.execute("UPDATE run SET configuration = ''")


MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        from_version=2,
        to_version=3,
        steps=(
            "ALTER TABLE policies DROP COLUMN failures",
            "ALTER TABLE policies RENAME COLUMN halvings TO rescues",
            _forget_run_file,
        ),
    ),
)
"""Migrations in order. Version 2 is that of the first release."""


def copy_path(path: Path, *, version: int) -> Path:
    """Return the path of a journal's copy before its migration."""
    return path.with_name(f"{path.name}.v{version}.bak")


def migrate(path: Path) -> bool:
    """Migrate a journal to this release, under the run's lock.

    Returns:
        Whether there was anything to do.

    Raises:
        JournalForeign: If it is of a newer release, or of one that no migration starts from.
        JournalCorrupt: If it is damaged, or its rows cannot be read after the migration.
        StorageError: If the disk refuses. In either case the journal is unchanged.
    """
    header = require_journal(path)
    if header == SCHEMA_VERSION:
        return False
    with storage_errors(path):
        # With a WAL the header may be outdated, and only SQLite knows the version.
        if not path.with_name(path.name + "-wal").exists():
            _ways(header, path)
        with contextlib.closing(connect_reader(path)) as checker:
            version = schema_version(checker)
            ways = _ways(version, path)
            # A damaged journal must not be migrated, or its copy would be the damaged one.
            require_sound(checker, path, check="quick_check")
        if ways:
            copy_durably(path, copy_path(path, version=version))
            failpoint("migrate.copied")
        with contextlib.closing(connect(path, mode="rw")) as connection:
            # The commit of a migration must be durable before the old layout is gone.
            connection.execute("PRAGMA synchronous = FULL")
            if ways:
                _carry_out(connection, ways, path)
                failpoint("migrate.committed")
            # Readers of the header alone must see the new version.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return bool(ways)


def _ways(version: int, path: Path) -> Sequence[Migration]:
    """Return the migrations from a version to this release's; empty if there is nothing to do."""
    ways: list[Migration] = []
    # MIGRATIONS is in order, so one pass chains the steps.
    for migration in MIGRATIONS:
        if migration.from_version == version and version < SCHEMA_VERSION:
            ways.append(migration)
            version = migration.to_version
    if not ways and version < SCHEMA_VERSION:
        raise JournalForeign(
            f"{path}: schema version {version}; this release reads {SCHEMA_VERSION}, and does not "
            "know how to bring so old a journal up to date"
        )
    require_version(version, path)
    return ways


def _carry_out(connection: sqlite3.Connection, ways: Sequence[Migration], path: Path) -> None:
    version = ways[0].from_version
    with transaction(connection):
        for migration in ways:
            for step in migration.steps:
                failpoint("migrate.step")
                if isinstance(step, str):
                    connection.execute(step)
                else:
                    step(connection)
        for sql in added_columns(connection):
            connection.execute(sql)
        seal_rows(connection)
        # The header is part of the transaction: the new version appears with the new layout.
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        # Reading all rows inside the transaction: what this release cannot read is rolled back.
        tables = load_tables(connection, path)
        event = EventRow(
            sequence=tables.num_events + 1,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            kind="journal_migrated",
            subject="",
            data={
                "from": version,
                "to": SCHEMA_VERSION,
                "copy": copy_path(path, version=version).name,
            },
        )
        connection.execute(*encode_row(event))
        require_sound(connection, path, check="quick_check")
        failpoint("migrate.commit")
    logger.info("%s: migrated from schema version %d to %d", path, version, SCHEMA_VERSION)
