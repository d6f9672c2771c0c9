"""A change of run.yaml at a resume: as one step with the journal's rows about it.

The new file is written beside the old one (``run.yaml.next``). The commit of the rows names its
digest, and decides; then it takes the old one's place. What a kill leaves is put right by `settle`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from arena.errors import ConfigError
from arena.types import Digest
from populations.config.run_file import NEXT, RUN_FILE, RunFile, content_digest
from populations.storage.database import JOURNAL, rename_durably, storage_errors
from populations.storage.journal import JournalReader


def prepare(run_dir: Path, run_file: RunFile) -> Digest:
    """Write the new file beside the old one, and return its digest.

    Raises:
        StorageError: If the disk refuses.
    """
    run_file.save(run_dir / NEXT)
    return content_digest(run_dir / NEXT)


def finish(run_dir: Path) -> None:
    """Put the new file in the old one's place, once the journal has its digest.

    Raises:
        StorageError: If the disk refuses; the next `settle` tries again.
    """
    with storage_errors(run_dir / RUN_FILE):
        rename_durably(run_dir / NEXT, run_dir / RUN_FILE)


def current_file(run_dir: Path) -> Path:
    """Return the run.yaml that holds: the new one, if the journal has its digest. Writes nothing.

    The caller has the lock.

    Raises:
        StorageError: If the disk refuses or the journal cannot be read.
    """
    path, digest = run_dir / NEXT, None
    if not path.exists():
        return run_dir / RUN_FILE
    # One that cannot be read was cut off, or is damaged: the old file stays.
    with contextlib.suppress(ConfigError):
        digest = content_digest(path)
    with JournalReader(run_dir / JOURNAL, is_alone=True) as reader:
        committed = reader.load(pairs=()).run.configuration
    return path if digest == committed else run_dir / RUN_FILE


def settle(run_dir: Path) -> None:
    """Finish a change that the journal has, and undo one that it has not. The caller has the lock.

    Raises:
        StorageError: If the disk refuses or the journal cannot be read.
    """
    if current_file(run_dir) == run_dir / NEXT:
        finish(run_dir)
        return
    with storage_errors(run_dir / NEXT):
        (run_dir / NEXT).unlink(missing_ok=True)
