"""The runs of releases that `tests/assets/golden_runs/make.py` made, and copies to work on."""

from __future__ import annotations

import shutil
from pathlib import Path

from populations.config.run_file import RUN_FILE
from populations.records.rows import EventRow
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal, JournalReader

RUNS = Path(__file__).parent.parent / "assets" / "golden_runs"
RELEASES = sorted(path.name for path in RUNS.iterdir() if (path / RUN_FILE).exists())
NEWEST = RELEASES[-1]
ONE_MORE_AGENT_STEPS = 256
"""What an assignment of a golden run trains."""


def copy_of(release: str, directory: Path) -> Path:
    """A copy of a release's run whose journal is brought up to date, as its resume would do."""
    run = shutil.copytree(RUNS / release, directory / "run")
    Journal.open(run / JOURNAL).close()
    return run


def events_of(run: Path, *kinds: str, after: int = 0) -> list[EventRow]:
    """Events of a run's journal, of some kinds."""
    with JournalReader(run / JOURNAL) as reader:
        return reader.events(kinds=kinds, after=after)
