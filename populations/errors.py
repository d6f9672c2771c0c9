"""The exceptions of the controller's half.

::

    ArenaError
    └── PopulationError
        ├── RunInUse          another controller has the run directory (exit 4)
        ├── RunFailed         no active policy is left, or learners cannot be started (exit 3)
        ├── StorageError      full, read-only or unreadable (exit 5)
        │   ├── StorageUnavailable   full or read-only for now; a retry may succeed later
        │   ├── WorkLost             acknowledged work is lost
        │   └── JournalCorrupt
        │       └── JournalForeign   not damaged, but not this release's
        │           └── JournalOlder     a resume brings it up to date
        └── ResumeRefused     the configuration differs from the run's (exit 2)

Tests: `tests/tools/terminal/test_signals.py`.
"""

from __future__ import annotations

from arena.errors import ArenaError


class PopulationError(ArenaError):
    """Root of the exceptions of the controller's half."""


class RunInUse(PopulationError):
    """Another controller has the run directory."""

    def __init__(self, path: str, pid: int | None) -> None:
        """Name the run directory and, where it is known, the owner's process id."""
        super().__init__(f"{path} is in use by process {pid if pid is not None else 'unknown'}")
        self.pid = pid


class RunFailed(PopulationError):
    """The run cannot continue."""


class StorageError(PopulationError):
    """The disk is full, read-only or unreadable."""


class StorageUnavailable(StorageError):
    """The disk is full or read-only for now; nothing was written, and a retry is safe."""


class WorkLost(StorageError):
    """Acknowledged work is lost, and the user has not accepted that; nothing was written."""


class JournalCorrupt(StorageError):
    """The journal is not one of this release, or is damaged."""


class JournalForeign(JournalCorrupt):
    """The journal is of another release or of another application."""


class JournalOlder(JournalForeign):
    """The journal is of an older release; a resume migrates it."""


class ResumeRefused(PopulationError):
    """A resume would change what is fixed for the run: its environment or parts of its settings."""
