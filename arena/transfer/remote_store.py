"""A run's store as a learner has it that does not see the run's directory. Torch-free.

Checkpoints are fetched into a cache, which is a store itself, and new ones are given from there.
Both go on after an interruption where they stopped: pieces are asked for again until answered, and
bytes count only once their digests match.

Tests: `tests/arena/transfer/test_remote_store.py`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from arena.checkpoints.files import (
    decode_manifest,
    encode_manifest,
    file_records,
    read_manifest,
    read_verified,
    resolve_key,
)
from arena.checkpoints.manifest import OPTIMIZER, Manifest
from arena.errors import CheckpointCorrupt, CheckpointError, StoreRefused, StoreUnreachable
from arena.transfer.cache import Cache
from arena.types import CheckpointRef, WeightsRef
from arena.wire.store_messages import (
    PIECE_BYTES,
    Denied,
    Fetch,
    FileName,
    Give,
    Held,
    Piece,
    StoreAnswer,
    StoreRequest,
)

logger = logging.getLogger(__name__)

WINDOW = 128
"""Most requests that wait for their answers: 8 MiB of pieces."""

RETRY_S = 5.0
"""Time after which requests without an answer are sent again."""

POLL_S = 0.5
PATIENCE_S = 30.0
"""Time without any answer after which the store counts as unreachable. Much less than the time
after which a controller takes a learner without progress for stuck."""

MAX_STALLED = 3
"""Most times in a row that all missing pieces of a checkpoint are given and none counts."""

FETCHED, GIVEN, REQUESTS = "store/fetched_bytes", "store/given_bytes", "store/requests"
"""Metrics: bytes of files from the store and to it, and requests, repetitions among them."""

_MANIFEST: FileName = "manifest.json"

Reference = CheckpointRef | WeightsRef

Question = tuple[StoreRequest, bytes]
"""A request and the bytes that go with it."""


class Connection(Protocol):
    """Learner's end of the conversation; `arena.wire.store_sockets.StoreConnection` is one."""

    def ask(self, request: StoreRequest, data: bytes = b"") -> int | None:
        """Send a request, and return its number; None if there is no store at the moment."""

    def receive(self, timeout_s: float) -> tuple[int, StoreAnswer, bytes] | None:
        """Return the next answer with its request's number and its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """Way to a run's store from another machine.

    Attributes:
        endpoint: Address of the store.
        cache: Directory for copies of checkpoints; it is made.
        cache_mb: Bound of these, in MB.
    """

    endpoint: str
    cache: Path
    cache_mb: int


class RemoteStore:
    """Store behind a connection. Owned by one thread.

    Args:
        connection: Connection to the store.
        cache: Directory that holds what was fetched.
        on_progress: Called for each answer: a learner that waits for bytes is not stuck.
        should_stop: Function that returns whether nothing more is to be fetched.
        patience_s: Time without any answer after which the store counts as unreachable.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        connection: Connection,
        cache: Cache,
        *,
        on_progress: Callable[[], object] = lambda: None,
        should_stop: Callable[[], bool] = lambda: False,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._cache = cache
        self._on_progress = on_progress
        self._should_stop = should_stop
        self._patience_s = patience_s
        self._clock = clock
        self._metrics = dict.fromkeys((FETCHED, GIVEN, REQUESTS), 0.0)

    def take_metrics(self) -> dict[str, float]:
        """Return metrics of what has travelled since the last call."""
        metrics, self._metrics = self._metrics, dict.fromkeys(self._metrics, 0.0)
        return metrics

    def fetch(self, references: Iterable[Reference]) -> None:
        """Bring checkpoints here that an assignment names.

        What the store does not have, or has with other bytes, stays absent: the learner finds that
        when it loads it, as beside the store.

        Raises:
            StoreRefused: If the store's disk refuses.
            StoreUnreachable: If the store does not answer, or the learner is to stop.
            DiskRefused: If this machine's disk refuses.
        """
        wanted = {(reference.key, _without(reference)): reference for reference in references}
        absent = [
            reference
            for (key, without), reference in wanted.items()
            if (manifest := self._cache.has(key, without=without)) is None
            or not _is_meant(manifest, reference)
        ]
        if not absent:
            return
        # All manifests are one round of requests, all files another: a remote store costs two
        # round trips.
        manifests = self._fetch_manifests(absent)
        self._fetch_files(manifests)
        self._cache.trim(needed={reference.key for reference in wanted.values()})

    def _fetch_manifests(self, references: Sequence[Reference]) -> dict[Reference, Manifest]:
        asked = {reference.key: reference for reference in references}
        # A checkpoint reference includes the reference to its weights.
        asked |= {one.key: one for one in references if isinstance(one, CheckpointRef)}
        found: dict[Reference, Manifest] = {}
        for request, data in self._pieces(
            [Fetch(key=key, file=_MANIFEST, offset=0) for key in asked]
        ):
            key = request.key
            try:
                manifest = decode_manifest(data, source=resolve_key(self._cache.root, key))
            except CheckpointCorrupt as error:
                logger.warning("fetched %s: %s", key, error)
                continue
            if _is_meant(manifest, asked[key]):
                found[asked[key]] = manifest
            else:
                logger.warning("%s is another checkpoint: %s", key, manifest.digest)
        return found

    def _fetch_files(self, manifests: dict[Reference, Manifest]) -> None:
        files: dict[tuple[str, FileName], bytearray] = {}
        requests: list[Fetch] = []
        for reference, manifest in manifests.items():
            for name in _names(manifest, reference):
                record = manifest.files[name]
                known = self._cache.find(record.sha256)
                files[reference.key, name] = bytearray(known or record.size_bytes)
                if known is None:
                    requests += [
                        Fetch(key=reference.key, file=name, offset=offset)
                        for offset in range(0, record.size_bytes, PIECE_BYTES)
                    ]
        for request, data in self._pieces(requests):
            buffer = files[request.key, request.file]
            # Nothing is written beyond the size in the manifest.
            end = min(request.offset + len(data), len(buffer))
            buffer[request.offset : end] = data[: end - request.offset]
        for reference, manifest in manifests.items():
            contents: dict[str, bytes] = {
                name: bytes(files[reference.key, name]) for name in _names(manifest, reference)
            }
            if file_records(contents).items() <= manifest.files.items():
                self._cache.put(reference.key, manifest, contents, without=_without(reference))
            else:
                logger.warning("%s: the bytes that came do not match its manifest", reference.key)

    def _pieces(self, requests: Sequence[Fetch]) -> Iterator[tuple[Fetch, bytes]]:
        """Yield what the store has of these, as it comes."""
        questions = [(request, b"") for request in requests]
        for request, answer, data in self._exchange(questions, should_stop=self._should_stop):
            assert isinstance(request, Fetch), "nothing else was asked"
            if isinstance(answer, Piece):
                self._metrics[FETCHED] += len(data)
                yield request, data
            elif isinstance(answer, Denied) and answer.kind not in ("missing", "corrupt"):
                raise _error(answer, f"the store does not give {request.key}")
            else:
                logger.warning("%s cannot be fetched: %s", request.key, answer)

    def give(self, keys: Iterable[str]) -> None:
        """Have the store publish checkpoints that were published in the cache.

        Raises:
            StoreRefused: If the store's disk refuses.
            StoreUnreachable: If the store does not answer.
            CheckpointError: If it refuses a checkpoint.
        """
        given = tuple(keys)
        for key in given:
            self._give(key)
            self._cache.note(key)
        self._cache.trim(needed=given)

    def _give(self, key: str) -> None:
        directory = resolve_key(self._cache.root, key)
        manifest = read_manifest(directory)
        first = Give(key=key, file=_MANIFEST, offset=0), encode_manifest(manifest)
        files = {
            name: read_verified(directory, name, record) for name, record in manifest.files.items()
        }
        before, stalled = -1, 0
        while stalled < MAX_STALLED:
            held = self._held([first], key)
            if held.is_published:
                return
            # Pieces after a lost one did not count, and a restarted store has none.
            total = sum(held.held.values())
            before, stalled = total, stalled + 1 if total <= before else 0
            pieces = [
                (
                    Give(key=key, file=_file(name), offset=offset),
                    data[offset : offset + PIECE_BYTES],
                )
                for name, data in files.items()
                for offset in range(held.held.get(name, 0), len(data), PIECE_BYTES)
            ]
            self._metrics[GIVEN] += sum(len(data) for _, data in pieces)
            if self._held(pieces, key).is_published:
                return
        raise StoreUnreachable(f"{key} was given {MAX_STALLED} times, and is not in the store")

    def _held(self, questions: Sequence[Question], key: str) -> Held:
        """Ask, and return the answer that says most.

        Raises:
            CheckpointError: If the store refuses.
            StoreUnreachable: If its disk does, or it has no room.
        """
        best = Held(held={}, is_published=False)
        for _, answer, _ in self._exchange(questions):
            match answer:
                case Denied(kind="refused", reason=reason):
                    raise CheckpointError(f"the store refuses {key}: {reason}")
                case Denied() as denied:
                    raise _error(denied, f"the store cannot take {key}")
                case Held() as held if held.is_published or not best.is_published:
                    best = held
        return best

    def _exchange(
        self, questions: Sequence[Question], *, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[StoreRequest, StoreAnswer, bytes]]:
        """Ask all, a window at a time and in order, again what is not answered; yield each
        request with its answer and bytes.

        Raises:
            StoreUnreachable: If no answer comes for too long, or the learner is to stop.
        """
        waiting: dict[int, Question] = {}
        to_ask = deque(questions)
        heard_s = asked_s = self._clock()
        while to_ask or waiting:
            while to_ask and len(waiting) < WINDOW:
                number = self._connection.ask(*to_ask[0])
                if number is None:
                    break
                self._metrics[REQUESTS] += 1
                waiting[number] = to_ask.popleft()
                asked_s = self._clock()
            received = self._connection.receive(POLL_S)
            now_s = self._clock()
            if received is not None:
                number, answer, data = received
                heard_s = now_s
                self._on_progress()
                # After a repetition, only the first of both answers counts.
                if (question := waiting.pop(number, None)) is not None:
                    yield question[0], answer, data
                continue
            if now_s - heard_s > self._patience_s:
                raise StoreUnreachable(f"the store has not answered for {self._patience_s:.0f} s")
            if should_stop():
                raise StoreUnreachable("told to stop while the store did not answer")
            # On a slow connection answers still arrive, so waiting requests must not be sent
            # twice.
            if now_s - max(asked_s, heard_s) > RETRY_S:
                # Requests are repeated in order, because a piece counts only after those before
                # it.
                to_ask.extendleft(reversed(waiting.values()))
                waiting.clear()


def _error(denied: Denied, what: str) -> StoreUnreachable:
    kind = StoreRefused if denied.kind == "storage" else StoreUnreachable
    return kind(f"{what}: {denied.reason}")


def _without(reference: Reference) -> frozenset[str]:
    # Only a checkpoint that is trained further needs its optimizer.
    return frozenset() if isinstance(reference, CheckpointRef) else frozenset({OPTIMIZER})


def _names(manifest: Manifest, reference: Reference) -> tuple[FileName, ...]:
    return tuple(_file(name) for name in manifest.files if name not in _without(reference))


def _file(name: str) -> FileName:
    # A decoded manifest has no other names.
    return "optimizer.safetensors" if name == OPTIMIZER else "weights.safetensors"


def _is_meant(manifest: Manifest, reference: Reference) -> bool:
    is_whole = isinstance(reference, CheckpointRef)
    return reference.digest == (manifest.digest if is_whole else manifest.weights_digest)
