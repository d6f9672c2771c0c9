"""Migrations of journals of older releases when a run is resumed.

A migration is data: the SQL statements from one schema version to the next. Those that lead to this
release's version run in one transaction, after the journal was copied to ``journal.db.v1.bak`` in
the same directory; on any error the journal stays unchanged. Each new migration needs a test with a
journal of the version before it.

Tests: `tests/faults/test_migrations.py`.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from arena.failpoints import failpoint
from populations.errors import JournalForeign
from populations.records.rows import EventRow
from populations.records.tables import encode_row, seal_rows
from populations.storage.backup import copy_durably
from populations.storage.database import (
    SCHEMA_VERSION,
    connect,
    connect_reader,
    load_tables,
    require_journal,
    require_sound,
    require_version,
    schema_version,
    storage_errors,
    transaction,
)

logger = logging.getLogger(__name__)

MIGRATIONS: Mapping[int, Sequence[str]] = {}
"""Statements by schema version; they migrate a journal from this version to the next."""


def copy_path(path: Path, *, version: int) -> Path:
    """Return the path of the copy that is made of a journal before its migration."""
    return path.with_name(f"{path.name}.v{version}.bak")


def migrate(path: Path) -> None:
    """Migrate a journal to this release, under the run's lock.

    Raises:
        JournalForeign: If it is of a newer release, or of one that no migration starts from.
        JournalCorrupt: If it is damaged, or its rows cannot be read after the migration.
        StorageError: If the disk refuses. In either case the journal is unchanged.
    """
    header = require_journal(path)
    if header == SCHEMA_VERSION:
        return
    with storage_errors(path):
        # With a WAL the header may be outdated, and only SQLite can tell the version.
        if not path.with_name(path.name + "-wal").exists():
            _steps(header, path)
        with contextlib.closing(connect_reader(path)) as checker:
            version = schema_version(checker)
            steps = _steps(version, path)
            # A damaged journal must not be migrated, or its copy would be the damaged one.
            require_sound(checker, path, check="quick_check")
        if steps:
            copy_durably(path, copy_path(path, version=version))
            failpoint("migrate.copied")
        with contextlib.closing(connect(path, mode="rw")) as connection:
            # The commit of a migration must be durable before pages in the old layout are replaced.
            connection.execute("PRAGMA synchronous = FULL")
            if steps:
                _carry_out(connection, steps, path, version=version)
                failpoint("migrate.committed")
            # Move the WAL into the file, as some readers look only at the version in the header.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _steps(version: int, path: Path) -> list[str]:
    """Return the statements that migrate from a version to this release's; empty if it is equal."""
    if version > SCHEMA_VERSION:
        require_version(version, path)
    versions = range(version, SCHEMA_VERSION)
    if not MIGRATIONS.keys() >= set(versions):
        raise JournalForeign(
            f"{path}: schema version {version}; this release reads {SCHEMA_VERSION}, and does not "
            "know how to bring so old a journal up to date"
        )
    return [sql for one in versions for sql in MIGRATIONS[one]]


def _carry_out(
    connection: sqlite3.Connection, steps: Sequence[str], path: Path, *, version: int
) -> None:
    with transaction(connection):
        for sql in steps:
            failpoint("migrate.step")
            connection.execute(sql)
        seal_rows(connection)
        # The version is part of the transaction, so it changes together with the layout.
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        # Read all rows inside the transaction, so that it is rolled back if one cannot be read.
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
