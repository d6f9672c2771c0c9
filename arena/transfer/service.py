"""Answers to learners that fetch checkpoints from a store, and give it new ones. Torch-free.

What a learner sends is untrusted: keys and names are in the forms of the wire, a new checkpoint's
manifest must be of this run and one that an open assignment of this learner may publish, its key
the one that the manifest says, its size within a bound, and it appears in the store as a whole once
all bytes match their digests. Nothing that is there is changed.

Tests: `tests/arena/transfer/test_service.py`.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from arena.checkpoints.files import decode_manifest, read_piece, resolve_key, verify_directory
from arena.checkpoints.manifest import (
    MANIFEST,
    OPTIMIZER,
    WEIGHTS,
    Manifest,
    check_manifest,
    checkpoint_key,
)
from arena.checkpoints.publish import publish
from arena.config import LearnerSetup
from arena.errors import CheckpointCorrupt, CheckpointError, CheckpointMissing, DiskRefused
from arena.failpoints import failpoint
from arena.files import without_directories
from arena.transfer.terms import Grant, NotGranted, check_granted
from arena.types import population_of
from arena.wire.store_messages import (
    MAX_MANIFEST_BYTES,
    PIECE_BYTES,
    Denied,
    Fetch,
    Give,
    Held,
    Piece,
    StoreAnswer,
    StoreRequest,
)

logger = logging.getLogger(__name__)

EXPIRE_S = 600.0
"""Time after which an upload that does not go on makes room for others."""


@dataclass(slots=True)
class _Upload:
    """Checkpoint of which not all is there."""

    manifest: Manifest
    parts: dict[str, bytearray]
    touched_s: float

    @property
    def size_bytes(self) -> int:
        return sum(record.size_bytes for record in self.manifest.files.values())

    @property
    def held(self) -> Held:
        return Held(held={name: len(part) for name, part in self.parts.items()}, is_published=False)

    @property
    def is_whole(self) -> bool:
        records = self.manifest.files
        return all(len(part) == records[name].size_bytes for name, part in self.parts.items())


class StoreService:
    """Keeper of what is under way, by holder of a key and by directory.

    Args:
        root: Store's root.
        setup: Setup of the run's learners.
        max_bytes: Most bytes of all uploads under way; they are in memory.
        clock: Monotonic time in seconds.

    Attributes:
        grants: Checkpoints that each holder of a key may publish now.
    """

    def __init__(
        self,
        root: Path,
        setup: LearnerSetup,
        *,
        max_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._setup = setup
        self._max_bytes = max_bytes
        self._clock = clock
        self.grants: Mapping[str, tuple[Grant, ...]] = {}
        self._uploads: OrderedDict[tuple[str, str], _Upload] = OrderedDict()

    def answer(
        self, request: StoreRequest, data: bytes, *, holder: str
    ) -> tuple[StoreAnswer, bytes]:
        """Answer a request; nothing else in its content, and no disk, raises anything.

        Args:
            request: Request of a learner.
            data: Bytes behind it.
            holder: Holder of the key that was proved.

        Returns:
            The answer and the bytes behind it.

        Raises:
            NotGranted: If the holder may not publish that now.
        """
        try:
            if isinstance(request, Fetch):
                return self._fetch(request)
            return self._give(request, data, holder=holder), b""
        except NotGranted:
            raise
        except CheckpointError as error:
            return self.refuse(request, error, holder=holder)

    def refuse(
        self, request: StoreRequest, error: CheckpointError, *, holder: str
    ) -> tuple[StoreAnswer, bytes]:
        """Return the answer that says why a request is not granted."""
        denied = Denied(
            kind=_kind_of(error, request), reason=without_directories(str(error))[:1000]
        )
        logger.warning("%s of %s by %s: %s", type(request).__name__, request.key, holder, denied)
        return denied, b""

    def _fetch(self, request: Fetch) -> tuple[StoreAnswer, bytes]:
        failpoint("store.before_piece")
        directory = resolve_key(self._root, request.key)
        data, size_bytes = read_piece(
            directory,
            request.file,
            offset=request.offset,
            limit_bytes=MAX_MANIFEST_BYTES if request.file == MANIFEST else PIECE_BYTES,
        )
        return Piece(size_bytes=size_bytes), data

    def _give(self, request: Give, data: bytes, *, holder: str) -> StoreAnswer:
        if request.file == MANIFEST:
            return self._begin(request.key, data, holder=holder)
        upload = self._uploads.get((holder, request.key))
        if upload is None:
            # The upload was published or forgotten; the next request, with the manifest, decides
            # which.
            return Held(held={}, is_published=False)
        part = upload.parts.get(request.file)
        if part is None:
            raise CheckpointError(f"{request.file} is not in the manifest of {request.key}")
        upload.touched_s = self._clock()
        # Any other piece is a repetition, or comes after a lost piece.
        if request.offset == len(part):
            if len(part) + len(data) > upload.manifest.files[request.file].size_bytes:
                del self._uploads[holder, request.key]
                raise CheckpointError(f"{request.key}: more bytes of {request.file} than declared")
            part += data
        if not upload.is_whole:
            return upload.held
        # Whatever the outcome, the upload's bytes are used up.
        del self._uploads[holder, request.key]
        # The assignment may have ended meanwhile.
        check_granted(upload.manifest, self.grants.get(holder, ()))
        return self._publish(request.key, upload)

    def _begin(self, key: str, data: bytes, *, holder: str) -> StoreAnswer:
        """Look at a manifest, and open an upload unless all is there."""
        manifest = decode_manifest(data, source=Path(key))
        self._check(key, manifest, holder=holder)
        if self._is_published(key, manifest):
            return Held(held={}, is_published=True)
        known = self._uploads.get((holder, key))
        if known is not None and known.manifest.files == manifest.files:
            return known.held
        parts = {name: bytearray() for name in manifest.files}
        upload = _Upload(manifest=manifest, parts=parts, touched_s=self._clock())
        if upload.size_bytes > self._max_bytes:
            raise CheckpointError(
                f"{key} has {upload.size_bytes:,} bytes; this store takes at most "
                f"{self._max_bytes:,} at once"
            )
        if not self._make_room(upload.size_bytes, holder=holder):
            return Denied(kind="busy", reason=f"other uploads fill {self._max_bytes:,} bytes")
        self._uploads[holder, key] = upload
        return upload.held

    def _check(self, key: str, manifest: Manifest, *, holder: str) -> None:
        """Refuse what no learner of this run would publish, and what this one may not.

        Raises:
            CheckpointError: Saying why.
        """
        said = checkpoint_key(
            manifest.policy, agent_steps=manifest.agent_steps, digest=manifest.digest
        )
        if key != said:
            raise CheckpointError(f"the manifest is of {said}, not of {key}")
        setup = self._setup.populations.get(population_of(manifest.policy))
        if setup is None:
            raise CheckpointError(f"{manifest.policy} is of no population of this run")
        if manifest.files.keys() != {WEIGHTS, OPTIMIZER}:
            raise CheckpointError(f"{key} must have weights and optimizer")
        check_manifest(manifest, environment_digest=self._setup.spec.digest, setup=setup)
        # Grants are checked last, so that a waiting learner's request has no other fault.
        check_granted(manifest, self.grants.get(holder, ()))

    def _is_published(self, key: str, manifest: Manifest) -> bool:
        try:
            return verify_directory(resolve_key(self._root, key)).digest == manifest.digest
        except (CheckpointMissing, CheckpointCorrupt):
            # Damaged content is set aside when the checkpoint is published.
            return False

    def _make_room(self, size_bytes: int, *, holder: str) -> bool:
        """Forget uploads until there is room: a learner's own, and those that do not go on."""
        now_s = self._clock()
        for (whose, key), upload in list(self._uploads.items()):
            if self._total_bytes + size_bytes <= self._max_bytes:
                break
            if whose == holder or now_s - upload.touched_s > EXPIRE_S:
                del self._uploads[whose, key]
        return self._total_bytes + size_bytes <= self._max_bytes

    @property
    def _total_bytes(self) -> int:
        return sum(upload.size_bytes for upload in self._uploads.values())

    def _publish(self, key: str, upload: _Upload) -> Held:
        failpoint("store.before_publish")
        files = {name: bytes(part) for name, part in upload.parts.items()}
        try:
            publish(self._root, manifest=upload.manifest, files=files)
        except ValueError:
            # `publish` compares the files with their records.
            raise CheckpointError(f"{key}: its bytes do not match its manifest") from None
        failpoint("store.published")
        return Held(held={}, is_published=True)


def _kind_of(
    error: CheckpointError, request: StoreRequest
) -> Literal["missing", "corrupt", "refused", "storage"]:
    if isinstance(error, DiskRefused):
        return "storage"
    # A damaged file that a learner uploads is the learner's own fault.
    if isinstance(request, Fetch) and isinstance(error, CheckpointMissing):
        return "missing"
    if isinstance(request, Fetch) and isinstance(error, CheckpointCorrupt):
        return "corrupt"
    return "refused"
