"""Runs that the page shows: their documents, made again only when the run has changed.

Each document opens the journal, reads one moment of it, and closes it: no read transaction lasts,
so the writer can always shorten its log.

Tests: `tests/tools/web/test_runs.py`.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from ..league.documents import inspected
from ..league.views import VIEWS
from .cards import cards_document

Document = Mapping[str, object]

NAMES = tuple(name for name in VIEWS if name not in ("why", "matches", "diff"))
"""Views with a document of the whole run. Every tally of a big league would take a gigabyte."""

DOCUMENTS = (*NAMES, "cards")
"""Documents of a run: those of views, and what only pages show."""

LEAST_S = 2.0
"""Least age at which a document is made again."""

PATIENCE = 20.0
"""Age at which a document is made again, in times of what making it took: at most a twentieth of
a core goes to it, whatever the number of readers."""

FILES = ("journal.db", "journal.db-wal", "status.json", "run.yaml")
MAX_SLUG = 40

SERIALS = itertools.count(1)

Version = tuple[object, ...]


@dataclass(slots=True)
class _Made:
    document: Document
    version: Version
    serial: int
    made_s: float
    took_s: float


@dataclass(slots=True)
class Run:
    """Run directory, by the name that it has in addresses.

    Attributes:
        path: Run directory.
        slug: Name in addresses; nothing of a request becomes a path.
        clock: Monotonic clock in seconds.
    """

    path: Path
    slug: str
    clock: Callable[[], float] = time.monotonic
    _made: dict[str, _Made] = field(default_factory=dict)
    _locks: Mapping[str, Lock] = field(default_factory=lambda: {name: Lock() for name in DOCUMENTS})

    @property
    def name(self) -> str:
        """Name of the directory, for people."""
        return self.path.resolve().name

    def documents(self, names: Sequence[str]) -> dict[str, Document]:
        """Return documents of views, at most as old as `PATIENCE` allows.

        Raises:
            ConfigError: If there is no run.
            StorageError: If its journal cannot be read.
        """
        self._refresh(names)
        return {name: self._made[name].document for name in names}

    def etag(self, names: Sequence[str]) -> str:
        """Return a text that changes whenever one of these documents does."""
        self._refresh(names)
        return "-".join(str(self._made[name].serial) for name in names)

    def _refresh(self, names: Sequence[str]) -> None:
        version = self._version()
        for name in names:
            lock = self._locks[name]
            # While another reader's request makes it anew, the old one will do: the ratings of a
            # big league take a minute.
            if lock.acquire(blocking=name not in self._made):
                try:
                    if self._is_stale(name, version):
                        self._make(name, version)
                finally:
                    lock.release()

    def _is_stale(self, name: str, version: Version) -> bool:
        made = self._made.get(name)
        if made is None:
            return True
        age_s = self.clock() - made.made_s
        return made.version != version and age_s >= max(LEAST_S, PATIENCE * made.took_s)

    def _make(self, name: str, version: Version) -> None:
        from populations.gc_pause import collector_paused
        from populations.inspection import views

        began_s = self.clock()
        with collector_paused(), inspected(self.path, None) as inspection:
            if name == "cards":
                document: Document = cards_document(inspection)
            else:
                document = getattr(views, VIEWS[name].document)(inspection, None)
        now_s = self.clock()
        self._made[name] = _Made(document, version, next(SERIALS), now_s, now_s - began_s)

    def _version(self) -> Version:
        """Return what changes with every commit, without opening the journal."""
        from populations.storage.lock import lock_holder

        # A controller that died changes nothing but the lock.
        return (*map(_stamp, (self.path / name for name in FILES)), lock_holder(self.path))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def named_runs(paths: Sequence[Path]) -> dict[str, Run]:
    """Return runs by a name for addresses: that of the directory, and a number if it is taken.

    Raises:
        ConfigError: If one is no run directory.
    """
    from arena.errors import ConfigError

    runs: dict[str, Run] = {}
    for path in paths:
        if not (path / "run.yaml").is_file():
            raise ConfigError(f"{path} is no run directory: it has no run.yaml")
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", path.resolve().name)[:MAX_SLUG].strip("-") or "run"
        slug, number = name, 1
        # `static` is the folder of scripts.
        while slug in runs or slug == "static":
            number += 1
            slug = f"{name}-{number}"
        runs[slug] = Run(path, slug)
    return runs
