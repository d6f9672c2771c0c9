"""A run whose journal is damaged, and what it is after a repair."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from arena.checkpoints.manifest import WEIGHTS
from arena.types import PolicyId
from populations.audit.repair import repair_run
from populations.audit.verify import verify_run
from populations.errors import StorageError
from populations.storage.database import BACKUP, JOURNAL
from populations.storage.journal import JournalReader
from tests.populations.small_run import SmallRun

P0, P1 = PolicyId("player/p000"), PolicyId("player/p001")
PAGE_BYTES = 4096


def flip_page(path: Path, page: int = 3) -> None:
    """Damage a page of the journal so that its structure breaks."""
    data = bytearray(path.read_bytes())
    data[(page - 1) * PAGE_BYTES : (page - 1) * PAGE_BYTES + 8] = b"\xff" * 8
    path.write_bytes(data)


def is_clean(run_dir: Path) -> bool:
    """Whether nothing is broken, and only what is known to be corrupt is worth a note."""
    report = verify_run(run_dir)
    return report.faults == [] and all(note.endswith("corrupt") for note in report.notes)


def make_damaged_run(run_dir: Path) -> None:
    """A run that has gone on since its backup, and then lost its journal and some checkpoints."""
    run = SmallRun(run_dir)
    with run.journal:
        run.put(replace(run.tables.run, run=run.run_file.run))
        run.journal.backup(run_dir / BACKUP)
        run.snapshot(run.train(P0))
        newest = run.checkpoints_of(P1)[-1]
    (run_dir / newest.key / WEIGHTS).write_bytes(b"damaged")
    flip_page(run_dir / JOURNAL)


def repair(run_dir: Path) -> None:
    """Put it right."""
    repair_run(run_dir, utc="2026-01-01T00:00:00+00:00")


def repaired(run_dir: Path) -> str:
    """Damaged as it was, or all that a repaired run holds but for its events."""
    try:
        with JournalReader(run_dir / JOURNAL) as reader:
            reader.integrity_check()
            tables = reader.load()
    except StorageError:
        return "damaged"
    assert is_clean(run_dir)
    assert not list(run_dir.glob("journal.db.repairing*"))
    tables.num_events = 0
    return repr(tables)
