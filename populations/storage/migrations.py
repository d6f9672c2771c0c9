"""Journals of older releases, brought up to date when a run goes on.

A migration is data: from which schema version to which, and the statements between. Those that
lead to this release's are carried out in one transaction, after a copy of the journal was put
beside it (``journal.db.v1.bak``); whatever goes wrong on the way, the journal stays what it was.
A migration that changes the layout adds a test with a journal of the old one.
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
from populations.records.tables import encode_row
from populations.storage.database import (
    SCHEMA_VERSION,
    connect,
    connect_reader,
    copy_durably,
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
    """A way from one schema version to a later one.

    Attributes:
        from_version: Of the journals that it takes.
        to_version: What they are after it.
        steps: SQL statements, and functions for what SQL cannot say, in order. They must not
            commit.
    """

    from_version: int
    to_version: int
    steps: tuple[str | Callable[[sqlite3.Connection], None], ...]


MIGRATIONS: tuple[Migration, ...] = ()
"""In order. Version 2 is that of the first release."""


def copy_path(path: Path, *, version: int) -> Path:
    """Where the copy of a journal goes before it is migrated."""
    return path.with_name(f"{path.name}.v{version}.bak")


def migrate(path: Path) -> bool:
    """Bring a journal up to date, under the run's lock.

    Returns:
        Whether there was something to do.

    Raises:
        JournalForeign: If it is of a newer release, or of one that no migration starts from.
        JournalCorrupt: If it is damaged, or its rows cannot be read after the migration.
        StorageError: If the disk refuses. Either way the journal is what it was.
    """
    header = require_journal(path)
    if header == SCHEMA_VERSION:
        return False
    with storage_errors(path):
        if not path.with_name(path.name + "-wal").exists():
            _ways(header, path)
        with contextlib.closing(connect_reader(path)) as checker:
            version = schema_version(checker)
            ways = _ways(version, path)
            require_sound(checker, path, check="quick_check")
        if ways:
            copy_durably(path, copy_path(path, version=version))
            failpoint("migrate.copied")
        with contextlib.closing(connect(path, mode="rw")) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            if ways:
                _carry_out(connection, ways, path)
                failpoint("migrate.committed")
            # Whoever looks at the header alone must see the new version.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return bool(ways)


def _ways(version: int, path: Path) -> Sequence[Migration]:
    """The migrations that lead from a version to this release's; empty if it is that."""
    ways: list[Migration] = []
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
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
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
