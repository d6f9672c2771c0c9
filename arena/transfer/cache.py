"""A learner's own copies of a store's checkpoints, within a bound of bytes. Torch-free.

The directory is a store like the run's, with fewer checkpoints. Files are known by digest, too: the
weights of a ghost need not travel where those of its checkpoint are here.

Tests: `tests/arena/transfer/test_remote_store.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from arena.checkpoints.files import (
    CORRUPT_PREFIX,
    TEMPORARY,
    read_manifest,
    read_verified,
    resolve_key,
    verify_directory,
)
from arena.checkpoints.manifest import MANIFEST, Manifest
from arena.checkpoints.publish import place, remove_directory, sweep_temporary
from arena.errors import CheckpointError, ConfigError
from arena.types import Digest

MAX_LEARNERS = 1024
"""Most learners of a run on one machine that have a cache of their own."""


class Cache:
    """Directory of one learner process. Owned by one thread."""

    def __init__(self, root: Path, *, max_bytes: int) -> None:
        """Look at what is there already.

        Args:
            root: Directory that exists and that no other process uses.
            max_bytes: Bound of its checkpoints' bytes. What an assignment needs stays beyond it.
        """
        self.root = root
        self._max_bytes = max_bytes
        # Manifests are in order of use, the least recently used first.
        self._manifests: OrderedDict[str, Manifest] = OrderedDict()
        sweep_temporary(root)
        for key in sorted(_keys(root), key=lambda key: os.stat(root / key).st_mtime):
            self.note(key)

    def note(self, key: str) -> None:
        """Take note of a directory that is there, as the one used last."""
        with contextlib.suppress(CheckpointError):
            self._manifests[key] = read_manifest(resolve_key(self.root, key))
            self._manifests.move_to_end(key)

    def has(self, key: str, *, without: frozenset[str]) -> Manifest | None:
        """Return a checkpoint's manifest if all its bytes are here and intact.

        Args:
            key: Directory of the checkpoint.
            without: Files that are not needed.
        """
        if key not in self._manifests:
            return None
        try:
            manifest = verify_directory(resolve_key(self.root, key), without=without)
        except CheckpointError:
            # The copy is damaged, or lacks the optimizer that is needed now, so it is fetched
            # again.
            self.drop(key)
            return None
        self._manifests.move_to_end(key)
        return manifest

    def find(self, digest: Digest) -> bytes | None:
        """Return the bytes of a file with a digest, wherever it is here."""
        for key, manifest in self._manifests.items():
            for name, record in manifest.files.items():
                if record.sha256 == digest:
                    # A directory may lack its optimizer, or be damaged.
                    with contextlib.suppress(CheckpointError):
                        return read_verified(resolve_key(self.root, key), name, record)
        return None

    def put(
        self, key: str, manifest: Manifest, files: Mapping[str, bytes], *, without: frozenset[str]
    ) -> None:
        """Keep a checkpoint.

        Raises:
            DiskRefused: If the disk refuses.
        """
        place(self.root, key, manifest=manifest, files=files, without=without)
        self.note(key)

    def trim(self, *, needed: Collection[str]) -> None:
        """Remove the least recently used checkpoints until the rest is within the bound."""
        sizes = {key: _size_bytes(self.root / key) for key in self._manifests}
        total = sum(sizes.values())
        for key, size_bytes in sizes.items():
            if total <= self._max_bytes:
                return
            if key not in needed:
                self.drop(key)
                total -= size_bytes

    def drop(self, key: str) -> None:
        """Remove a checkpoint."""
        self._manifests.pop(key, None)
        remove_directory(self.root, key)


def _keys(root: Path) -> Iterator[str]:
    """Yield the directories that have a manifest."""
    for path in root.rglob(MANIFEST):
        name = path.parent.name
        if not TEMPORARY.fullmatch(name) and not name.startswith(CORRUPT_PREFIX):
            yield path.parent.relative_to(root).as_posix()


def _size_bytes(directory: Path) -> int:
    with contextlib.suppress(OSError):
        return sum(entry.stat().st_size for entry in os.scandir(directory))
    return 0


def take_directory(parent: Path) -> tuple[Path, int]:
    """Take the first numbered directory in ``parent`` that no other process uses.

    A learner that starts anew on this machine finds what its predecessor fetched.

    Returns:
        The directory, and the open file that holds it: it is free once that is closed.

    Raises:
        ConfigError: If there is none, or the disk refuses.
    """
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(MAX_LEARNERS):
            path = parent / str(number)
            path.mkdir(mode=0o700, exist_ok=True)
            # Without CLOEXEC a child that inherits the descriptor would keep the lock.
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            return path, descriptor
    except OSError as error:
        raise ConfigError(f"no cache in {parent}: {error.strerror}") from error
    raise ConfigError(f"{parent}: all of {MAX_LEARNERS} directories are in use")
