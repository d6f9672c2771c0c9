"""Checkpoints as directories of files: names, digests, verification. Torch-free.

Duties of every reader of a checkpoint:

- A key comes from the wire or the journal and is untrusted: only `resolve_key` makes it a path.
- Bytes are used only after comparison with their record, and the very bytes that were compared are
used (`read_verified`): none of the formats detects a flipped bit by itself.
- A directory without a valid manifest does not exist. A damaged checkpoint is `CheckpointCorrupt`,
an absent one `CheckpointMissing`. A plain `CheckpointError` is a fault of the machine (no file
descriptors, no permission); it says nothing about the checkpoint, which must be kept.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Literal

from arena.checkpoints.manifest import (
    FORMAT_VERSION,
    MANIFEST,
    OPTIMIZER,
    WEIGHTS,
    FileRecord,
    Manifest,
)
from arena.codec import from_json, to_json
from arena.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointMissing,
    DecodeError,
    DiskRefused,
)
from arena.files import NotRegular, open_regular, read_regular, replacing, words_of
from arena.types import Digest

MAX_KEY_LENGTH = 512
MAX_MANIFEST_BYTES = 1 << 20
MAX_STORE_ID_BYTES = 64
PIECE_BYTES = 1 << 20
CORRUPT_PREFIX = "corrupt-"
STORE_ID = "store.id"
"""File in a store's root with 32 random hexadecimal digits that identify the store."""

TEMPORARY = re.compile(r"\.tmp-[0-9a-f]{32}")
DIRECTORY_NAME = re.compile(r"[0-9]{12,}-[0-9a-f]{8}")
_STORE_ID = re.compile(rb"[0-9a-f]{32}")
_SEGMENT = re.compile(r"[A-Za-z0-9@_-][A-Za-z0-9@._-]{0,127}")
_POPULATION = re.compile(r"[a-z][a-z0-9_]{0,31}")
_POLICY = re.compile(r"p[0-9]{3,}")

# These file system errors mean that the bytes are not the published ones. Other errors, such as
# running out of descriptors, must not make a controller discard a good checkpoint.
_DAMAGE = frozenset(
    {errno.EIO, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.EFBIG}
)

# A manifest begins with the sha256 of the rest of the file, because the checkpoint's digest does
# not cover the manifest, and a flipped bit in a counter would go unnoticed. JSON readers see one
# more key.
_SEAL = re.compile(rb'\{\n  "sha256": "([0-9a-f]{64})",')


def resolve_key(root: Path, key: str) -> Path:
    """Turn a key into the path of a directory below the store's root.

    Raises:
        CheckpointError: If a segment has other characters than ``[A-Za-z0-9@._-]`` or begins with
            a dot, if the key is too long, or if a component is a symbolic link.
    """
    segments = key.split("/")
    if len(key) > MAX_KEY_LENGTH or not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise CheckpointError(
            "a key is names of [A-Za-z0-9@._-] that do not begin with a dot, joined by '/', "
            f"at most {MAX_KEY_LENGTH} characters; got {key[:100]!r}"
        )
    root = root.resolve()
    path = root
    for segment in segments:
        path = path / segment
        # Each level is checked, because a link anywhere on the path could lead out of the store.
        if path.is_symlink():
            raise CheckpointError(f"{path} is a symbolic link; a store has none")
    if not path.is_relative_to(root):
        raise CheckpointError(f"{key!r} leaves the store {root}")
    return path


def sha256_bytes(data: bytes) -> Digest:
    """Return the sha256 of bytes."""
    return Digest(hashlib.sha256(data).hexdigest())


def sha256_file(path: Path) -> Digest:
    """Return the sha256 of a file."""
    with open_regular(path) as file:
        return Digest(hashlib.file_digest(file, "sha256").hexdigest())


def make_store_id(root: Path) -> None:
    """Give a store its id, unless it has one.

    Raises:
        OSError: If the disk refuses.
    """
    target = root / STORE_ID
    # An unreadable id is not replaced, because learners that know the store by it would be shut
    # out. An empty file is left over from a power failure.
    if not target.exists() or target.stat().st_size == 0:
        with replacing(target, is_durable=True) as file:
            file.write(secrets.token_hex(16).encode())


def store_digest(root: Path) -> Digest | None:
    """Return the sha256 of a store's id; None without an id, where there is no store."""
    try:
        content = _read_regular(root / STORE_ID, MAX_STORE_ID_BYTES)
    except CheckpointError:
        return None
    # An empty file is no id, because all stores that lost theirs would share it.
    return sha256_bytes(content) if _STORE_ID.fullmatch(content) else None


def file_records(files: Mapping[str, bytes]) -> dict[str, FileRecord]:
    """Return a manifest's records of these files."""
    return {
        name: FileRecord(sha256=sha256_bytes(data), size_bytes=len(data))
        for name, data in sorted(files.items())
    }


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of ``manifest.json``: JSON for people, sealed by a sha256 of itself."""
    # The seal's line replaces the opening brace.
    body = to_json(manifest, indent=2).encode().removeprefix(b"{") + b"\n"
    return b'{\n  "sha256": "%s",' % sha256_bytes(body).encode() + body


def decode_manifest(data: bytes, *, source: Path) -> Manifest:
    """Decode the bytes of ``manifest.json``.

    Args:
        data: Bytes of the file.
        source: Path of the file, for errors.

    Raises:
        CheckpointCorrupt: If any byte differs from what was written.
        CheckpointError: If the format is newer than this release: the file is intact.
    """
    seal = _SEAL.match(data)
    if seal is None:
        raise CheckpointCorrupt(f"{source}: not a manifest")
    body = data[seal.end() :]
    if sha256_bytes(body).encode() != seal.group(1):
        raise CheckpointCorrupt(f"{source}: its sha256 does not match its bytes")
    document = b"{" + body
    try:
        manifest = from_json(document, Manifest)
    except DecodeError as error:
        # A newer format may break any rule but the version's, and is no damage.
        with contextlib.suppress(DecodeError):
            version = from_json(document, dict[str, object]).get("format_version")
            _refuse_newer(version if isinstance(version, int) else 0, source)
        raise CheckpointCorrupt(f"{source}: not a manifest of this release: {error}") from None
    _refuse_newer(manifest.format_version, source)
    if WEIGHTS not in manifest.files or not manifest.files.keys() <= {WEIGHTS, OPTIMIZER}:
        raise CheckpointCorrupt(f"{source}: unexpected files {sorted(manifest.files)}")
    return manifest


def _refuse_newer(version: int, source: Path) -> None:
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"{source}: format version {version}; this release reads {FORMAT_VERSION}: upgrade "
            "arena-league"
        )


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of a checkpoint or ghost, without looking at its other files.

    Raises:
        CheckpointMissing: If there is no such directory.
        CheckpointCorrupt: If the manifest is missing or altered.
        DiskRefused: If the disk refuses.
    """
    with _refusals(directory):
        is_there = directory.is_dir()
    if not is_there:
        raise CheckpointMissing(f"{directory}: there is no checkpoint")
    source = directory / MANIFEST
    return decode_manifest(_read_regular(source, MAX_MANIFEST_BYTES), source=source)


def read_verified(directory: Path, name: str, record: FileRecord) -> bytes:
    """Read a file once and return its bytes if they match the record.

    Raises:
        CheckpointCorrupt: If the file is missing or its size or sha256 differs.
        DiskRefused: If the disk refuses.
    """
    path = directory / name
    # The file is read once, so that the checked bytes are the used ones.
    data = _read_regular(path, record.size_bytes)
    if len(data) != record.size_bytes:
        raise CheckpointCorrupt(f"{path}: {len(data)} bytes instead of {record.size_bytes}")
    if sha256_bytes(data) != record.sha256:
        raise CheckpointCorrupt(f"{path}: its sha256 does not match the manifest")
    return data


def read_piece(directory: Path, name: str, *, offset: int, limit_bytes: int) -> tuple[bytes, int]:
    """Read a part of a file that its reader verifies as a whole.

    Args:
        directory: Directory of the checkpoint or ghost.
        name: Name of the file.
        offset: First byte.
        limit_bytes: Most bytes to read.

    Returns:
        The bytes, none behind the file's end, and the size of the whole file.

    Raises:
        CheckpointMissing: If there is no such directory.
        CheckpointCorrupt: If the file is missing or none.
        DiskRefused: If the disk refuses.
    """
    if not directory.is_dir():
        raise CheckpointMissing(f"{directory}: there is no checkpoint")
    path = directory / name
    with _opened(path) as file, _refusals(path):
        size = os.fstat(file.fileno()).st_size
        return os.pread(file.fileno(), limit_bytes, offset) if offset < size else b"", size


def verify_directory(directory: Path, *, without: frozenset[str] = frozenset()) -> Manifest:
    """Check every byte of a checkpoint or ghost.

    Args:
        directory: Directory of the checkpoint or ghost.
        without: Files that may be absent (a ghost has no optimizer).

    Raises:
        CheckpointMissing: If there is no such directory.
        CheckpointCorrupt: If a file is missing, altered, or one too many.
        DiskRefused: If the disk refuses.
    """
    manifest = read_manifest(directory)
    with _refusals(directory):
        present = set(os.listdir(directory)) - {MANIFEST}
    absent = manifest.files.keys() - present - without
    if absent:
        raise CheckpointCorrupt(f"{directory}: {sorted(absent)} missing")
    # A file without a record was not published with the checkpoint.
    if strangers := present - manifest.files.keys():
        raise CheckpointCorrupt(f"{directory}: {sorted(strangers)} are not in the manifest")
    for name in sorted(present):
        _check_bytes(directory / name, manifest.files[name])
    return manifest


def _check_bytes(path: Path, record: FileRecord) -> None:
    """Compare a file with its record, piece by piece, so that any size fits in memory."""
    digest, left = hashlib.sha256(), record.size_bytes
    with _opened(path) as file, _refusals(path):
        size = os.fstat(file.fileno()).st_size
        if size != record.size_bytes:
            raise CheckpointCorrupt(f"{path}: {size} bytes instead of {record.size_bytes}")
        # At most the recorded size is read, because the file may grow meanwhile.
        while left and (piece := file.read(min(left, PIECE_BYTES))):
            digest.update(piece)
            left -= len(piece)
    if left or digest.hexdigest() != record.sha256:
        raise CheckpointCorrupt(f"{path}: its sha256 does not match the manifest")


def list_directories(root: Path, kind: Literal["checkpoints", "ghosts"]) -> Iterator[str]:
    """Yield the keys of everything in the ``checkpoints`` (or ``ghosts``) directories of all
    policies.

    Includes temporary and foreign names; links and plain files are left out. Lazily, sorted.
    """
    for population in _subdirectories(root / "populations"):
        if not _POPULATION.fullmatch(population):
            continue
        for policy in _subdirectories(root / "populations" / population):
            if not _POLICY.fullmatch(policy):
                continue
            for name in _subdirectories(root / "populations" / population / policy / kind):
                yield f"populations/{population}/{policy}/{kind}/{name}"


def _subdirectories(directory: Path) -> list[str]:
    if not directory.is_dir() or directory.is_symlink():
        return []
    with os.scandir(directory) as entries:
        # Links are left out, so that a listing stays within the store.
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


@contextlib.contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Translate errors of the file system."""
    try:
        yield
    except OSError as error:
        raise _kind_of(error)(f"{path}: {words_of(error)}") from error


def _read_regular(path: Path, limit_bytes: int) -> bytes:
    """Read a regular file of at most ``limit_bytes``; links are refused."""
    with _refusals(path):
        return read_regular(path, limit_bytes=limit_bytes, follows_links=False)


def _opened(path: Path) -> BinaryIO:
    """Open a regular file for reading; links are refused, and nothing waits for a pipe."""
    with _refusals(path):
        return open_regular(path, follows_links=False)


def _kind_of(error: OSError) -> type[CheckpointError]:
    is_damage = isinstance(error, NotRegular) or error.errno in _DAMAGE
    return CheckpointCorrupt if is_damage else DiskRefused
