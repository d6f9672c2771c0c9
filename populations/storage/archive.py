"""Archive of old rows of the journal: files of JSON lines, compressed with zstd.

A file has the events, ended assignments and tallies of one range (`ArchiveRow`), in this order; a
line is a row, its fields as the journal's columns have them. It is written under another name,
synced and renamed before the journal names it; from that commit on its rows are read from the file.
A file that the journal does not name was left by a killed process, and is written again.

Tests: `tests/populations/storage/test_archive.py`, `tests/faults/test_nth_fault.py`.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard
from msgspec.structs import replace

from arena.checkpoints.files import sha256_file
from arena.failpoints import failpoint
from arena.files import open_regular, sync_directory
from populations.errors import StorageError
from populations.records.columns import Value
from populations.records.rows import ArchiveRow
from populations.records.tables import ARCHIVED, RowT, SqlTable
from populations.storage.database import (
    connect_reader,
    last_archive,
    load_archives,
    read_rows,
    rename_durably,
    row_errors,
    storage_errors,
)

logger = logging.getLogger(__name__)

ARCHIVE = "archive"
"""Directory of the archive files, in the run's directory."""

LEVEL = 6
"""Level of compression: files are half as large as with level 1, for a second per day of demo."""

Filters = Mapping[str, Sequence[Value] | None]
"""Allowed values by column; None allows any."""

_END = "end"


def write_archive(journal: Path, row: ArchiveRow) -> ArchiveRow:
    """Write the file of the next range, after the last one that has a file; any thread may call it.

    Args:
        journal: The journal.
        row: Row of the range, the first one without a file.

    Returns:
        The row to commit, with the file's name and digest. The range ends before the first open
            assignment, which may still change.

    Raises:
        StorageError: If the disk refuses or the journal cannot be read.
    """
    directory = journal.parent / ARCHIVE
    with storage_errors(directory), contextlib.closing(connect_reader(journal)) as connection:
        failpoint("archive.begin")
        _make_directory(directory)
        connection.execute("BEGIN")
        before = last_archive(connection, journal)
        (first_open,) = connection.execute(
            "SELECT min(assignment_id) FROM assignments WHERE status = 'queued'"
        ).fetchone()
        if first_open is not None:
            end = max(before.assignments, min(row.assignments, first_open - 1))
            row = replace(row, assignments=end)
        target = directory / f"{row.number:06d}.jsonl.zst"
        temporary = directory / f".tmp-{uuid.uuid4().hex}"
        try:
            _write(connection, journal, temporary, before, row)
            failpoint("archive.written")
            digest = sha256_file(temporary)
            rename_durably(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    return replace(row, file=target.name, digest=digest)


def _make_directory(directory: Path) -> None:
    if directory.is_dir():
        return
    directory.mkdir()
    # The new name is an entry of the run's directory, which needs an fsync of its own.
    sync_directory(directory.parent)


def _write(
    connection: sqlite3.Connection,
    journal: Path,
    path: Path,
    before: ArchiveRow,
    row: ArchiveRow,
) -> None:
    # With a checksum, a reader notices damage instead of returning wrong rows.
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    with path.open("xb") as file, compressor.stream_writer(file, closefd=False) as stream:
        for table in ARCHIVED:
            cursor = connection.execute(
                f"{table.select} WHERE {table.key} > ? AND {table.key} <= ? ORDER BY {table.key}",
                (getattr(before, table.name), getattr(row, table.name)),
            )
            for stored in cursor:
                with row_errors(journal, table):
                    values = table.unsealed(stored)
                stream.write(_line(table.name, dict(zip(table.names, values, strict=True))))
        # A file without this last line was truncated.
        stream.write(_line(_END, {}))


def _line(table: str, values: Mapping[str, Value]) -> bytes:
    return json.dumps({"table": table, **values}, separators=(",", ":")).encode() + b"\n"


def remove_unnamed(run_dir: Path, archives: Sequence[ArchiveRow]) -> None:
    """Remove archive files that the journal does not name; the caller has the run's lock.

    Raises:
        StorageError: If the disk refuses.
    """
    named = {row.file for row in archives}
    with storage_errors(run_dir / ARCHIVE):
        for path in (run_dir / ARCHIVE).glob("*"):
            if path.name not in named and path.is_file():
                path.unlink()
                logger.info("removed %s: written, but never recorded", path)


def select_rows(
    connection: sqlite3.Connection,
    path: Path,
    table: SqlTable[RowT],
    *,
    after: int,
    filters: Filters,
    limit: int | None,
    newest: bool,
) -> list[RowT]:
    """Return rows in order of their key, from the journal and its archive.

    Args:
        connection: Connection to the journal, with an open transaction.
        path: Path of the journal.
        table: One of `ARCHIVED`.
        after: Lower limit of the key, exclusive.
        filters: Allowed values of columns.
        limit: Maximum number of rows; None for all.
        newest: Whether to return the last ``limit`` rows instead of the first.
    """
    behind: int = getattr(last_archive(connection, path), table.name)
    if newest:
        found = _in_journal(connection, path, table, max(after, behind), filters, limit, newest)
        if after < behind and (limit is None or len(found) < limit):
            wanted = None if limit is None else limit - len(found)
            older = archived_rows(
                connection, path, table, after=after, filters=filters, newest=True
            )
            found += islice(older, wanted)
        return found[::-1]
    found = []
    if after < behind:
        rows = archived_rows(connection, path, table, after=after, filters=filters)
        found += islice(rows, limit)
    rest = None if limit is None else limit - len(found)
    found += _in_journal(connection, path, table, max(after, behind), filters, rest, newest)
    return found


def _in_journal(
    connection: sqlite3.Connection,
    path: Path,
    table: SqlTable[RowT],
    after: int,
    filters: Filters,
    limit: int | None,
    newest: bool,
) -> list[RowT]:
    where, parameters = f"{table.key} > ?", list[Value]([after])
    # Column names come from Arena's code and cannot inject SQL; values are bound.
    for column, allowed in filters.items():
        if allowed is not None:
            where += f" AND {column} IN ({', '.join('?' * len(allowed))})"
            parameters.extend(allowed)
    direction = "DESC" if newest else "ASC"
    suffix = f"WHERE {where} ORDER BY {table.key} {direction} LIMIT ?"
    # SQLite has no limit if LIMIT is negative.
    parameters.append(-1 if limit is None else limit)
    return read_rows(connection, path, table, suffix, parameters)


def archived_rows(
    connection: sqlite3.Connection,
    path: Path,
    table: SqlTable[RowT],
    *,
    after: int = 0,
    filters: Filters | None = None,
    newest: bool = False,
) -> Iterator[RowT]:
    """Yield rows that have moved to archive files, in order, or the newest first.

    Raises:
        StorageError: If a file is missing or damaged.
    """
    # Errors arise while callers iterate over this generator, so it translates them itself.
    with storage_errors(path):
        archives = [row for row in load_archives(connection, path) if row.file]
    behind = [row for row in archives if getattr(row, table.name) > after]
    for row in reversed(behind) if newest else behind:
        stored = _stored_rows(path.parent / ARCHIVE / row.file, table.name, filters or {})
        rows = (one for one in stored if int(one[table.key]) > after)
        decoded = _decoded(rows, path.parent / ARCHIVE / row.file, table)
        yield from reversed(list(decoded)) if newest else decoded


def _decoded(rows: Iterator[dict[str, Any]], path: Path, table: SqlTable[RowT]) -> Iterator[RowT]:
    for row in rows:
        try:
            yield table.decode(table.values_of(row))
        except (ValueError, TypeError, RecursionError) as error:
            raise StorageError(f"{path}: a row of {table.name} is damaged: {error}") from error


def _stored_rows(path: Path, table: str, filters: Filters) -> Iterator[dict[str, Any]]:
    """Yield the rows of one table in an archive file, by column, if they pass the filters."""
    begin = f'{{"table":"{table}"'
    wanted = {
        column: frozenset(allowed) for column, allowed in filters.items() if allowed is not None
    }
    # A search for these texts rejects most lines without parsing them.
    texts = [[json.dumps(value) for value in allowed] for allowed in wanted.values()]
    has_begun = False
    with _archive_errors(path), open_regular(path) as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file)
        for line in io.TextIOWrapper(stream, encoding="utf-8"):
            if not line.startswith(begin):
                if has_begun or line.startswith(f'{{"table":"{_END}"'):
                    return
                continue
            has_begun = True
            if all(any(text in line for text in one) for one in texts):
                row: dict[str, Any] = json.loads(line)
                if all(row[column] in allowed for column, allowed in wanted.items()):
                    yield row
    raise StorageError(f"{path}: it was cut off")


@contextlib.contextmanager
def _archive_errors(path: Path) -> Iterator[None]:
    with storage_errors(path):
        try:
            yield
        except (zstandard.ZstdError, ValueError, KeyError) as error:
            raise StorageError(f"{path}: damaged ({error})") from error


def check_archive(run_dir: Path, row: ArchiveRow) -> str | None:
    """Return what is wrong with an archive file; None if its digest is as recorded."""
    path = run_dir / ARCHIVE / row.file
    try:
        with storage_errors(path):
            digest = sha256_file(path)
    except StorageError as error:
        return str(error)
    return None if digest == row.digest else f"{path}: sha256 {digest} instead of {row.digest}"
