"""Runs that the page shows: their documents, made again only when the run has changed.

Documents are made by another process (`maker`) and kept packed; a reader waits for them for a
moment only. Those of one page are made at once: each making opens the journal, reads one moment of
it, and closes it, so a page says one thing of each player, and no read transaction lasts, which
would keep the writer from shortening its log.

Tests: `tests/tools/web/test_runs.py`.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread

from arena.errors import ArenaError
from populations.storage.lock import lock_holder
from populations.views.parts import Document
from populations.views.views import VIEWS

from ..league.documents import require_run
from ..league.tables import write_csv
from ..players.resolve import CHAMPION
from ..show.html import GAME
from .making import CARDS, CONFIGURATION, FAILED, FITTED, Made, make_documents, unpack
from .pace import Pace

NAMES = tuple(name for name, view in VIEWS.items() if view.is_whole)
"""Views with a document of the whole run."""

DOCUMENTS = (*NAMES, CARDS, CONFIGURATION)
"""Documents of a run: those of views, and what only pages show."""

LISTS = {name: view for view, shape in VIEWS.items() for name in shape.lists}
"""Views of the lists that have a CSV of their own, by list."""

DIFF = "diff-with-"
"""First part of the name of a document of differences: the other run's name follows."""

GAME_PAGE = re.compile(rf"{GAME}(\d{{1,18}})-(\d)")
"""Name of a page, and of a document, of a game."""

MAX_GAMES = 32
"""Documents of games that are kept."""

FILES = ("journal.db", "journal.db-wal", "status.json", "run.yaml", CHAMPION)
MAX_SLUG = 40

PATIENCE, SMALL_BYTES = 4.0, 32_000_000
"""Times as long as for others readers wait for documents that were never made, of a run whose
journal is no larger: they are there then. Of others readers are told at once that it takes long."""

MAX_BYTES = 16_000_000
"""Size of the packed forms of all documents that are kept as objects."""


@dataclass(slots=True)
class Unpacked:
    """Documents that were used last, by their serials; any thread may ask.

    Attributes:
        max_bytes: Size of their packed forms. One document is kept however large it is.
    """

    max_bytes: int = MAX_BYTES
    _found: dict[int, tuple[Document, int]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def document(self, serial: int, packed: bytes) -> Document:
        """Return the document of a packed form; equal serials mean equal documents."""
        # Only one thread unpacks at a time, because several would unpack the same document.
        with self._lock:
            document, size = self._found.pop(serial, (None, len(packed)))
            if document is None:
                # Room is made first, because old and new documents together would be the peak of
                # memory.
                self._make_room(size)
                document = unpack(packed)
            self._found[serial] = (document, size)
            return document

    def forget(self, serial: int) -> None:
        """Drop a document that a newer one has replaced."""
        with self._lock:
            self._found.pop(serial, None)

    def _make_room(self, size: int) -> None:
        total = size + sum(one for _, one in self._found.values())
        # Documents are in the order of their last use.
        for serial in tuple(self._found):
            if total <= self.max_bytes:
                return
            total -= self._found.pop(serial)[1]


UNPACKED = Unpacked()
"""Documents of all runs of this process."""

SERIALS = itertools.count(1)

Version = tuple[object, ...]


Make = Callable[[Path, Sequence[str]], Made]
"""Function that makes documents of a run's views."""


class NotYet(ArenaError):
    """Documents that are still being made."""


class PartFailed(ArenaError):
    """A view could not be made, and what needs its document cannot be shown."""


class Documents(dict[str, Document]):
    """Documents by their names; looking at one of a view that failed raises `PartFailed`."""

    def __getitem__(self, name: str) -> Document:
        """Return a document."""
        document = super().__getitem__(name)
        if document.keys() == {FAILED}:
            raise PartFailed(f"{name}: {document[FAILED]}")
        return document


@dataclass(frozen=True, slots=True)
class _Kept:
    packed: bytes
    version: Version
    serial: int
    made_s: float
    took_s: float


@dataclass(frozen=True, slots=True)
class _Making:
    until_s: float | None
    """Time until which readers wait for it; None: until it is done."""
    done: Future[None] = field(default_factory=Future)

    def left_s(self) -> float | None:
        """Return the seconds for which a reader waits from now on."""
        return None if self.until_s is None else max(self.until_s - time.monotonic(), 0.0)


@dataclass(slots=True)
class Run:
    """Run directory, by the name that it has in addresses.

    Attributes:
        path: Run directory.
        slug: Name in addresses; nothing of a request becomes a path.
        make: Maker of documents.
        wait_s: Seconds for which readers wait for documents since their making began. None: until
            they are made.
        pace: Pace at which documents are made again.
        beside: All runs that are shown, by their names in addresses.
    """

    path: Path
    slug: str
    make: Make = make_documents
    wait_s: float | None = None
    pace: Pace = field(default_factory=Pace)
    beside: Mapping[str, Run] = field(default_factory=dict, repr=False, compare=False)
    _kept: dict[tuple[str, ...], dict[str, _Kept]] = field(default_factory=dict)
    _making: dict[tuple[str, ...], _Making] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def name(self) -> str:
        """Name of the directory, for people."""
        return self.path.resolve().name

    @property
    def diffs(self) -> dict[str, Run]:
        """Other runs, by the names of the documents of the differences to them."""
        return {f"{DIFF}{slug}": run for slug, run in self.beside.items() if run is not self}

    def view_of(self, name: str) -> str | None:
        """Return the view that a document is of; None: there is no such document."""
        if name in DOCUMENTS:
            return name
        if GAME_PAGE.fullmatch(name):
            return "game"
        return "diff" if name in self.diffs else None

    def begin(self, names: Sequence[str]) -> None:
        """Have documents made that somebody will ask for."""
        group = _at_once(names)
        self._begun(group, self._version_of(group))

    def _asked(self, name: str) -> str:
        """Return a document's view with its operand, as its maker takes it."""
        if name in self.diffs:
            return f"diff {self.diffs[name].path.resolve()}"
        game = GAME_PAGE.fullmatch(name)
        return name if game is None else f"game {game[1]}.{game[2]}"

    def documents(self, names: Sequence[str]) -> Documents:
        """Return documents of views, at most as old as its pace allows.

        Raises:
            ConfigError: If there is no run.
            StorageError: If its journal cannot be read.
            NotYet: If one of them has never been made, and making it takes longer than a reader
                waits.
        """
        self._refresh(names)
        found = [self._newest(name, names) for name in names]
        return Documents(
            (name, UNPACKED.document(one.serial, one.packed))
            for name, one in zip(names, found, strict=True)
        )

    def etag(self, names: Sequence[str]) -> str:
        """Return a text that changes whenever one of these documents does."""
        self._refresh(names)
        return "-".join(str(self._newest(name, names).serial) for name in names)

    def is_current(self, names: Sequence[str]) -> bool:
        """Return whether documents that have been made are of the run as it is now."""
        version = self._version_of(names)
        return all(self._newest(name, names).version == version for name in names)

    def _newest(self, name: str, names: Sequence[str]) -> _Kept:
        """Return a document, of the moment of the others if they were made at once.

        Raises:
            KeyError: If it has never been made.
        """
        together = self._kept.get(_at_once(names))
        if together is not None:
            return together[name]
        # A document of another page is used while this page is being made. The tuple is a copy,
        # because other threads add entries.
        pages = tuple(self._kept.values())
        made = [documents[name] for documents in pages if name in documents]
        if not made:
            raise KeyError(name)
        return max(made, key=lambda one: one.made_s)

    def _refresh(self, names: Sequence[str]) -> None:
        """Have documents made that are stale, and wait for them for a moment."""
        group = _at_once(names)
        making = self._begun(group, self._version_of(group))
        if making is None:
            return
        try:
            making.done.result(making.left_s())
        except TimeoutError:
            # Old documents are shown meanwhile, because the fit of a large league takes long.
            try:
                for name in names:
                    self._newest(name, names)
            except KeyError:
                raise NotYet(f"{', '.join(group)}: being computed, ask again") from None
        except BaseException:
            with self._lock:
                # The error has been reported, so the next request tries again.
                if self._making.get(group) is making:
                    del self._making[group]
            raise

    def _begun(self, group: tuple[str, ...], version: Version) -> _Making | None:
        """Return the making of documents that is under way, begun now if they are stale; None: they
        are not.
        """
        with self._lock:
            making = self._making.get(group)
            if making is None and self._is_stale(group, version):
                wait_s = self.wait_s
                if wait_s is not None:
                    journal = _stamp(self.path / FILES[0])
                    is_small = journal is not None and journal[1] <= SMALL_BYTES
                    wait_s *= PATIENCE if is_small and group not in self._kept else 1.0
                until_s = None if wait_s is None else time.monotonic() + wait_s
                making = self._making[group] = _Making(until_s)
                Thread(target=self._make, args=(group, version, making), daemon=True).start()
            return making

    def _is_stale(self, group: tuple[str, ...], version: Version) -> bool:
        if group not in self._kept:
            return True
        kept = self._kept[group][group[0]]
        is_due = self.pace.is_due((self.slug, group), made_s=kept.made_s, took_s=kept.took_s)
        return is_due and kept.version != version

    def _make(self, group: tuple[str, ...], version: Version, making: _Making) -> None:
        asked = {self._asked(name): name for name in group}
        try:
            documents, took_s = self.make(self.path, tuple(asked))
        except BaseException as error:
            making.done.set_exception(error)
            return
        for old in self._kept.get(group, {}).values():
            UNPACKED.forget(old.serial)
        made_s = self.pace.clock()
        self._kept[group] = {
            asked[view]: _Kept(packed, version, next(SERIALS), made_s, took_s)
            for view, packed in documents.items()
        }
        with self._lock:
            # An interrupted reader may already have removed the entry.
            self._making.pop(group, None)
            kept = [one for one in self._kept if GAME_PAGE.fullmatch(one[0])]
            for forgotten in kept[:-MAX_GAMES]:
                del self._kept[forgotten]
        making.done.set_result(None)

    def _version_of(self, names: Sequence[str]) -> Version:
        """Return the version of the runs that documents are about."""
        if all(map(GAME_PAGE.fullmatch, names)):
            # A finished game does not change.
            return ()
        diffs = self.diffs
        return (*self._version(), *(diffs[name]._version() for name in names if name in diffs))

    def _version(self) -> Version:
        """Return what changes with every commit, without opening the journal."""
        # A controller that died changes nothing but the lock.
        return (*map(_stamp, (self.path / name for name in FILES)), lock_holder(self.path))


def _at_once(names: Sequence[str]) -> tuple[str, ...]:
    """Return the documents that are made for some: those that share a fit come together."""
    is_fitted = any(name in FITTED for name in names)
    return tuple(sorted({*names, *(FITTED if is_fitted else ())}))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    # An empty WAL, which the first reader of a journal creates, counts as no WAL.
    return (found.st_ino, found.st_size, found.st_mtime_ns) if found.st_size else None


def named_runs(
    paths: Sequence[Path], *, make: Make = make_documents, wait_s: float | None = None
) -> dict[str, Run]:
    """Return runs by a name for addresses: that of the directory, and a number if it is taken.

    Args:
        paths: Run directories.
        make: Maker of documents.
        wait_s: Seconds for which readers wait for documents. None: until they are made.

    Raises:
        ConfigError: If one is no run directory.
    """
    runs: dict[str, Run] = {}
    pace = Pace()
    for path in paths:
        require_run(path)
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", path.resolve().name)[:MAX_SLUG].strip("-") or "run"
        slug, number = name, 1
        # The name `static` is taken by the folder of scripts.
        while slug in runs or slug == "static":
            number += 1
            slug = f"{name}-{number}"
        runs[slug] = Run(path, slug, make=make, wait_s=wait_s, pace=pace, beside=runs)
    return runs


def csv_text(run: Run, name: str) -> str | None:
    """Return rows as CSV: a view's, or of a list of `LISTS`; None: there are none of this name."""
    of = LISTS.get(name, name)
    view = run.view_of(of)
    # Views that only pages show have no rows.
    if view not in VIEWS:
        return None
    document = run.documents([of])[of]
    file = io.StringIO()
    write_csv(document[name] if name in LISTS else VIEWS[view].rows(document), file)
    return file.getvalue()
