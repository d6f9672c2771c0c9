"""Messages between a run's store and learners that do not see its directory. Torch-free.

A learner asks and the store answers, one answer for each request, matched by the header's number.
Bytes of files travel in pieces, as one more frame behind the message's own. All requests may be
repeated: none has an effect that a second one would change.

Tests: `tests/arena/transfer/test_process.py`.
"""

from __future__ import annotations

from typing import Literal

from arena.types import Count, Part, StoreKey, Text

FileName = Literal["manifest.json", "weights.safetensors", "optimizer.safetensors"]
"""Files of a checkpoint; no other name crosses the wire."""

PIECE_BYTES = 1 << 16
"""Most bytes of a file that travel in one message: a slow line needs seconds for them."""

MAX_MANIFEST_BYTES = 1 << 18
"""Most bytes of a manifest, which travels whole."""


class Fetch(Part, frozen=True, kw_only=True):
    """Request: a piece of a file in the store.

    Attributes:
        key: Directory, relative to the store's root.
        file: Name of the file.
        offset: First byte.
    """

    key: StoreKey
    file: FileName
    offset: Count


class Give(Part, frozen=True, kw_only=True):
    """Request: take a piece of a new checkpoint, which comes behind this message.

    The manifest is first and in one piece. A piece counts only where the bytes held so far end.

    Attributes:
        key: Directory, as the manifest says it.
        file: Name of the file.
        offset: First byte.
    """

    key: StoreKey
    file: FileName
    offset: Count


class Piece(Part, frozen=True, kw_only=True):
    """Answer to `Fetch`: bytes of a file, which come behind this message.

    Attributes:
        size_bytes: Size of the whole file.
    """

    size_bytes: Count


class Held(Part, frozen=True, kw_only=True):
    """Answer to `Give`: how much of a checkpoint the store has.

    Attributes:
        held: Number of bytes held, by file of the manifest; empty: the manifest is wanted first.
        is_published: Whether the whole is verified and in its place.
    """

    held: dict[Text, Count]
    is_published: bool


class Denied(Part, frozen=True, kw_only=True):
    """Answer: a request is not granted.

    Attributes:
        kind: ``missing`` (nothing is there), ``corrupt`` (the store's bytes are damaged),
            ``refused`` (the request breaks a rule), ``storage`` (the disk refuses) or ``busy``
            (too much is under way; later it may be granted).
        reason: One sentence for a person.
    """

    kind: Literal["missing", "corrupt", "refused", "storage", "busy"]
    reason: Text


StoreRequest = Fetch | Give
StoreAnswer = Piece | Held | Denied
StoreMessage = StoreRequest | StoreAnswer
