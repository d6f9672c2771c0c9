"""Puts an export in its place: written beside it, then one rename. There is never half of one."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from arena.errors import ConfigError
from arena.export.card import CARD


def check_target(directory: Path, *, force: bool) -> None:
    """Say early that an export cannot go somewhere.

    Raises:
        ConfigError: If an export is there and ``force`` is not given, or anything else is there.
    """
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ConfigError(f"{directory} must be a directory")
    if not any(directory.iterdir()):
        return
    if not (directory / CARD).is_file():
        raise ConfigError(f"{directory} must be empty or an export: it has no {CARD}")
    if not force:
        raise ConfigError(f"{directory} exists: --force replaces it")


def replace_directory(directory: Path, files: Mapping[str, bytes]) -> None:
    """Put files into a directory, all at once; what was there goes away afterwards.

    Args:
        directory: Where; made with its parents.
        files: By path inside of it, parts joined by a slash.

    Raises:
        OSError: If the disk refuses; then what was there is there still.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _temporary_beside(directory, "new") as new, _temporary_beside(directory, "old") as old:
        new.mkdir()
        for name, data in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            _write_durably(new / name, data)
        for folder in {parent for name in files for parent in (new / name).parents}:
            if folder.is_relative_to(new):
                _sync_directory(folder)
        try:
            if directory.exists():
                os.rename(directory, old)
            os.rename(new, directory)
        except BaseException:  # Ctrl-C too: what is at ``old`` is about to be removed
            if old.exists() and not directory.exists():
                os.rename(old, directory)
            raise
        _sync_directory(directory.parent)


@contextlib.contextmanager
def _temporary_beside(directory: Path, what: str) -> Iterator[Path]:
    """A free name beside a directory; whatever has it at the end is removed."""
    path = directory.parent / f".{directory.name}.{what}-{secrets.token_hex(8)}"
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
