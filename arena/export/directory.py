"""Replacement of an export as a whole: written beside its place, then renamed. Never half of one.

Where an export replaces another, the two exchange names in one step, which Linux and its usual file
systems support. Elsewhere it takes two renames, and a kill between them leaves the old export
beside its place, where the next export finds it. Torch-free.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from arena.errors import ConfigError
from arena.failpoints import failpoint
from arena.files import sync_directory

CARD = "card.json"
"""File that every export has."""

_BY_STEPS = re.compile("[0-9]{12}")

# The constants are from <fcntl.h> and <linux/fs.h>.
AT_FDCWD = -100
RENAME_EXCHANGE = 2
_CANNOT_EXCHANGE = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM})


def check_target(directory: Path, *, force: bool) -> None:
    """Check early that an export may be written to a directory.

    Only exports and empty directories are replaced: a mistyped ``--to`` must not delete anything
    else.

    Raises:
        ConfigError: If an export is there and ``force`` is not given, or anything else is there.
    """
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ConfigError(f"{directory} must be a directory")
    # An empty directory has nothing to lose.
    if not any(directory.iterdir()):
        return
    if not (directory / CARD).is_file():
        raise ConfigError(f"{directory} must be empty or an export: it has no {CARD}")
    if not force:
        raise ConfigError(f"{directory} exists: --force replaces it")


def replace_directory(directory: Path, files: Mapping[str, bytes]) -> None:
    """Put files into a directory, all at once; what was there goes away afterwards.

    Args:
        directory: Target directory; made with its parents.
        files: Content by path inside the directory, parts joined by a slash.

    Raises:
        OSError: If the disk refuses; then either the old content or all of the new is in place.
    """
    failpoint("export.begin")
    directory.parent.mkdir(parents=True, exist_ok=True)
    # Cleaning up first restores an export that a killed writer moved aside.
    clean_up(directory)
    with _temporary_beside(directory) as new:
        for name, data in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            _write_durably(new / name, data)
        # Every directory of the new tree is synced, so that a power failure loses no file's name.
        for folder in sorted({parent for name in files for parent in (new / name).parents}):
            if folder.is_relative_to(new):
                _sync_directory(folder)
        # All bytes are on disk; from here on only names change.
        failpoint("export.filled")
        if not directory.exists():
            os.rename(new, directory)
        elif not _exchange(new, directory):
            _replace_in_two_steps(new, directory)
        failpoint("export.renamed")
        # A rename survives power loss once the parent directory is synced.
        _sync_directory(directory.parent)
    failpoint("export.done")


def clean_up(directory: Path) -> None:
    """Remove leftovers beside a directory of exports that were killed.

    If one of them had moved the old export aside already, it is put back first.

    Raises:
        OSError: If the disk refuses.
    """
    pattern = re.compile(rf"\.{re.escape(directory.name)}\.(new|old)-[0-9a-f]{{16}}")
    names = [path.name for path in directory.parent.iterdir() if pattern.fullmatch(path.name)]
    # Old exports come first, because one of them may have to be restored.
    for path in (directory.with_name(name) for name in sorted(names, reverse=True)):
        # A live writer holds the lock, so its directory is left alone.
        with contextlib.suppress(FileNotFoundError, BlockingIOError), _locked(path):
            failpoint("export.leftover")
            if not directory.exists() and ".old-" in path.name:
                os.rename(path, directory)
            else:
                shutil.rmtree(path)


def prune(directory: Path, *, keep: int) -> None:
    """Remove one policy's exports by steps but the newest, and what kills have left there.

    One with a record was asked for by hand and stays, as does what has no such name.

    Args:
        directory: Directory of the policy's exports.
        keep: Number of newest ones.

    Raises:
        OSError: If the disk refuses.
    """
    for path in directory.iterdir():
        if left := re.fullmatch(r"\.([0-9]{12})\.(new|old)-[0-9a-f]{16}", path.name):
            clean_up(directory / left[1])
    exports = sorted(path for path in directory.iterdir() if _BY_STEPS.fullmatch(path.name))
    for path in exports[:-keep]:
        if _is_by_itself(path):
            # Without its card it is no export, so the card is removed first, and a kill leaves no
            # partial one.
            (path / CARD).unlink(missing_ok=True)
            shutil.rmtree(path)


def _is_by_itself(directory: Path) -> bool:
    """Return whether an export has no record, or is what a killed removal has left."""
    try:
        return not json.loads((directory / CARD).read_bytes())["record"]
    except FileNotFoundError:
        return True
    except (ValueError, TypeError, KeyError):
        return False  # whoever wrote that may want to look at it


def _exchange(first: Path, second: Path) -> bool:
    """Let two directories exchange their names in one step; False where that is not supported."""
    # Python has no renameat2, and a C library without it falls back to two renames.
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    paths = os.fsencode(first), os.fsencode(second)
    if rename(AT_FDCWD, paths[0], AT_FDCWD, paths[1], RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT_EXCHANGE:
        # The file system or the kernel cannot exchange names; any other error is the disk's.
        return False
    raise OSError(code, os.strerror(code), str(second))


def _replace_in_two_steps(new: Path, directory: Path) -> None:
    old = _beside(directory, "old")
    os.rename(directory, old)
    try:
        failpoint("export.moved")
        os.rename(new, directory)
    except BaseException:  # Ctrl-C too
        os.rename(old, directory)
        raise
    # The export is in place, so the next clean-up may retry a failed removal of the old one.
    shutil.rmtree(old, ignore_errors=True)


def _beside(directory: Path, what: str) -> Path:
    return directory.parent / f".{directory.name}.{what}-{secrets.token_hex(8)}"


@contextlib.contextmanager
def _temporary_beside(directory: Path) -> Iterator[Path]:
    """Yield a new directory beside another; a directory that has its name at the end is removed."""
    path = _beside(directory, "new")
    path.mkdir()
    try:
        # The kernel frees a killed writer's lock, by which `clean_up` recognizes leftovers.
        with _locked(path):
            failpoint("export.temporary")
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the kernel's lock on a directory.

    Raises:
        BlockingIOError: If another process holds it.
    """
    # Without CLOEXEC a child that inherits the descriptor would keep the lock.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _write_durably(path: Path, data: bytes) -> None:
    # Mode x is used because the directory is new: an existing file is the caller's mistake.
    with path.open("xb") as file:
        failpoint("export.opened")
        file.write(data)
        file.flush()
        failpoint("export.written")
        os.fsync(file.fileno())
        failpoint("export.synced")


def _sync_directory(directory: Path) -> None:
    sync_directory(directory)
    failpoint("export.directory")
