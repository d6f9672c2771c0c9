"""Publishing and removing checkpoints and ghosts as a whole. Torch-free.

Duties of every function here:

- Complete or absent: a directory gets its name by one rename, after all its bytes are on disk, and
the rename itself is on disk when the function returns. SIGKILL or power loss at any point leaves
the old state or the new one, and at most a temporary directory (``.tmp-<uuid>``).
- Idempotent: a repetition after a crash succeeds and changes nothing that was right.
- Disk errors (full, read-only, failed fsync) leave nothing behind and are `DiskRefused` with path
and reason.
- A store's root is never created: a run directory that was moved away does not come back empty.

Safe to call from several processes, except `sweep_temporary`, which must run while nothing is
published.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from arena.checkpoints.files import (
    CORRUPT_PREFIX,
    TEMPORARY,
    encode_manifest,
    file_records,
    list_directories,
    read_manifest,
    read_verified,
    resolve_key,
    verify_directory,
)
from arena.checkpoints.manifest import (
    MANIFEST,
    OPTIMIZER,
    WEIGHTS,
    Manifest,
    checkpoint_key,
)
from arena.errors import CheckpointCorrupt, CheckpointError, CheckpointMissing, DiskRefused
from arena.failpoints import failpoint
from arena.files import sync_directory, words_of
from arena.types import CheckpointRef

# If the file system cannot link (or not to this file any more), a copy is made instead.
_CANNOT_LINK = frozenset({errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.EACCES})
_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST})


def publish(root: Path, *, manifest: Manifest, files: Mapping[str, bytes]) -> CheckpointRef:
    """Publish a checkpoint, or find that the same one is there already.

    Args:
        root: Store's root; must exist.
        manifest: Description of exactly ``files``.
        files: Weights and optimizer by name.

    Raises:
        DiskRefused: If the disk refuses.
        CheckpointError: If the name is taken by another checkpoint.
        ValueError: If manifest and files do not belong together.
    """
    # The records are checked before the key is made, which contains their digest.
    if manifest.files != file_records(files):
        raise ValueError(f"the manifest describes {manifest.files}, not the files that are given")
    digest = manifest.digest
    key = checkpoint_key(manifest.policy, agent_steps=manifest.agent_steps, digest=digest)
    place(root, key, manifest=manifest, files=files)
    return CheckpointRef(digest=digest, key=key)


def place(
    root: Path,
    key: str,
    *,
    manifest: Manifest,
    files: Mapping[str, bytes],
    without: frozenset[str] = frozenset(),
) -> None:
    """Write a checkpoint or ghost under a key, or find that the same one is there already.

    Args:
        root: Store's root; must exist.
        key: Directory relative to the root.
        manifest: Description of the files.
        files: Files by name, all but those left out.
        without: Files that may be absent.

    Raises:
        DiskRefused: If the disk refuses.
        CheckpointError: If the name is taken by another checkpoint, or is none.
    """
    target = resolve_key(root, key)
    contents = {**files, MANIFEST: encode_manifest(manifest)}

    def fill(directory: Path) -> None:
        for name, data in contents.items():
            _write_file(directory / name, data)

    with _disk_errors(target):
        _appear(root, target, manifest, fill=fill, without=without)


def link_ghost(root: Path, *, checkpoint_key: str, ghost_key: str) -> None:
    """Give a checkpoint's weights and manifest a second name that outlives it.

    Hard links where the file system has them, else copies. Linked files share their bytes, so
    ghosts are verified like checkpoints. An existing ghost is verified; a damaged one is set aside
    and made again.

    Raises:
        CheckpointMissing: If neither ghost nor checkpoint exists.
        CheckpointCorrupt: If the checkpoint is damaged.
        DiskRefused: If the disk refuses.
    """
    source, target = resolve_key(root, checkpoint_key), resolve_key(root, ghost_key)
    with _disk_errors(target):
        try:
            manifest = read_manifest(source)
            weights = read_verified(source, WEIGHTS, manifest.files[WEIGHTS])
        except CheckpointError:
            # The ghost was made before its checkpoint was removed, and its name contains the
            # digest that verifies it.
            if _has_valid_name(target):
                _sync_directory(target.parent)
                return
            raise
        # The verified bytes are kept, because a copy is written from them if linking fails.
        contents = {WEIGHTS: weights, MANIFEST: encode_manifest(manifest)}

        def fill(directory: Path) -> None:
            for name, data in contents.items():
                _link_or_write(source / name, directory / name, data)

        _appear(root, target, manifest, fill=fill, without=frozenset({OPTIMIZER}))


def remove_directory(root: Path, key: str) -> None:
    """Remove a checkpoint or ghost at once, never in parts. Does nothing if it is absent.

    Raises:
        DiskRefused: If the disk refuses.
    """
    target = resolve_key(root, key)
    with _disk_errors(target):
        # After a crash in the middle, `sweep_temporary` removes the rest by this temporary name.
        renamed = target.parent / _temporary_name()
        failpoint("remove.begin")
        try:
            os.rename(target, renamed)
        except FileNotFoundError:
            return
        # From here on the whole directory is absent.
        failpoint("remove.renamed")
        _sync_directory(target.parent)
        shutil.rmtree(renamed)
        failpoint("remove.done")


def set_aside(root: Path, key: str) -> Path | None:
    """Rename a damaged checkpoint or ghost to ``corrupt-...``, for people to inspect.

    Returns:
        The new path; None if there was nothing.

    Raises:
        DiskRefused: If the disk refuses.
    """
    target = resolve_key(root, key)
    with _disk_errors(target):
        return _set_aside(target)


def sweep_temporary(root: Path) -> tuple[str, ...]:
    """Remove the temporary directories that crashes left behind, and nothing else.

    Returns:
        The keys that were removed.

    Raises:
        DiskRefused: If the disk refuses.
    """
    keys = [*list_directories(root, "checkpoints"), *list_directories(root, "ghosts")]
    swept = tuple(key for key in keys if TEMPORARY.fullmatch(key.rsplit("/", 1)[1]))
    for key in swept:
        with _disk_errors(root / key):
            failpoint("sweep.begin")
            shutil.rmtree(root / key)
            failpoint("sweep.done")
    return swept


def _temporary_name() -> str:
    return f".tmp-{uuid.uuid4().hex}"


def _is_published(target: Path, manifest: Manifest, *, without: frozenset[str]) -> bool:
    """Return whether ``target`` holds what ``manifest`` describes; set damaged content aside."""
    try:
        existing = verify_directory(target, without=without)
    except CheckpointMissing:
        return False
    except CheckpointCorrupt:
        _set_aside(target)
        return False
    # The key has only eight digits of the digest, so the whole digest is compared.
    if existing.digest != manifest.digest or existing.policy != manifest.policy:
        raise CheckpointError(f"{target} is another checkpoint: digest {existing.digest}")
    return True


def _has_valid_name(target: Path) -> bool:
    """Return whether a ghost verifies and matches its name."""
    try:
        manifest = verify_directory(target, without=frozenset({OPTIMIZER}))
    except (CheckpointMissing, CheckpointCorrupt):
        return False
    return target.name == f"{manifest.agent_steps:012d}-{manifest.digest[:8]}"


def _set_aside(target: Path) -> Path | None:
    # Random digits are needed, because the same checkpoint may be damaged again later.
    aside = target.with_name(f"{CORRUPT_PREFIX}{target.name}-{uuid.uuid4().hex[:8]}")
    failpoint("aside.begin")
    try:
        os.rename(target, aside)
    except FileNotFoundError:
        return None
    failpoint("aside.renamed")
    _sync_directory(target.parent)
    return aside


def _appear(
    root: Path,
    target: Path,
    manifest: Manifest,
    *,
    fill: Callable[[Path], None],
    without: frozenset[str],
) -> None:
    """Give a directory that ``fill`` writes the name ``target``, unless it exists."""
    if not _is_published(target, manifest, without=without):
        with _temporary_beside(root, target) as temporary:
            # Files, then their names, then the rename are synced to disk in this order.
            fill(temporary)
            _sync_directory(temporary)
            failpoint("publish.filled")
            if _rename(temporary, target, manifest, without=without):
                try:
                    failpoint("publish.renamed")
                    _sync_directory(target.parent)
                except OSError:
                    # The rename may not survive a power loss, and a failed fsync must not be
                    # retried.
                    shutil.rmtree(target, ignore_errors=True)
                    raise
                return
    # The process that renamed it may have died before syncing.
    _sync_directory(target.parent)


def _rename(temporary: Path, target: Path, manifest: Manifest, *, without: frozenset[str]) -> bool:
    """Rename, and return True; False if another process published the same meanwhile."""
    try:
        os.rename(temporary, target)
    except OSError as error:
        # An empty directory would have been replaced, so there is content, perhaps the same.
        if error.errno in _OCCUPIED and _is_published(target, manifest, without=without):
            return False
        raise
    return True


@contextlib.contextmanager
def _temporary_beside(root: Path, target: Path) -> Iterator[Path]:
    """Yield a new directory next to ``target``, removed at the end unless it was renamed."""
    failpoint("publish.begin")
    _make_directories(root, target.parent)
    temporary = target.parent / _temporary_name()
    os.mkdir(temporary)
    try:
        failpoint("publish.temporary")
        yield temporary
    finally:
        # The next start removes what remains.
        shutil.rmtree(temporary, ignore_errors=True)


def _make_directories(root: Path, directory: Path) -> None:
    """Make missing levels below ``root``, each recorded in its parent on disk."""
    root = root.resolve()
    if not root.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the store's root is gone", str(root))
    level = root
    for segment in directory.relative_to(root).parts:
        level = level / segment
        if not level.is_dir():
            # Another process may make the same level.
            with contextlib.suppress(FileExistsError):
                os.mkdir(level)
            failpoint("publish.level")
            _sync_directory(level.parent)


def _write_file(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        failpoint("publish.opened")
        rest = memoryview(data)
        # `write` may accept only part of the bytes, as on an almost full disk.
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        failpoint("publish.written")
        # fsync is never retried on this file, because the kernel may have dropped the unwritten
        # pages.
        os.fsync(descriptor)
        failpoint("publish.synced")
    finally:
        os.close(descriptor)


def _link_or_write(source: Path, path: Path, data: bytes) -> None:
    failpoint("ghost.begin")
    try:
        os.link(source, path)
        failpoint("ghost.linked")
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        _write_file(path, data)


def _sync_directory(directory: Path) -> None:
    sync_directory(directory)
    failpoint("publish.directory")


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise DiskRefused(f"{where}: {words_of(error)}") from error
