"""Commits that a journal's WAL holds and SQLite cannot read any more.

SQLite reads a WAL up to the first frame whose checksum is wrong, and silently ignores what follows:
one flipped bit takes all later commits along. They can still be counted, because each frame names
the WAL that it belongs to (its two salts) and says whether it ends a commit. The format is that of
https://sqlite.org/walformat.html.

Tests: `tests/faults/test_damaged_checkpoints.py`.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path

_HEADER = struct.Struct(">8I")
"""Magic number, version, page size, checkpoints, two salts, two checksums."""

_FRAME = struct.Struct(">6I")
"""Page, size of the database after a commit or 0, two salts, two checksums."""

_INDEX_FRAMES = struct.Struct("=16xI")
"""Beginning of the -shm file: the number of valid frames is its fifth number, in native order."""

# A laptop's sleep is none of `time.monotonic` on Linux; other systems count it there.
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_BIG_ENDIAN = 1
"""Bit of the magic number: checksums are of big-endian numbers."""


def unreadable_commits(journal: Path, *, page_bytes: int) -> int:
    """Return the number of acknowledged commits that are in a journal's WAL and cannot be read.

    Call it while a connection is open that has read from the journal, and no other process writes.

    Args:
        journal: The database.
        page_bytes: Size of its pages.
    """
    wal = journal.with_name(f"{journal.name}-wal")
    index = journal.with_name(f"{journal.name}-shm")
    try:
        with wal.open("rb") as file, index.open("rb") as shared:
            found = file.read(_HEADER.size)
            (num_valid,) = _INDEX_FRAMES.unpack(shared.read(_INDEX_FRAMES.size))
            if len(found) < _HEADER.size:
                return 0
            frame_bytes = _FRAME.size + page_bytes
            num_frames = (wal.stat().st_size - _HEADER.size) // frame_bytes
            frames = []
            for number in range(num_valid, num_frames):
                file.seek(_HEADER.size + number * frame_bytes)
                frames.append(_FRAME.unpack(file.read(_FRAME.size)))
    except FileNotFoundError:
        return 0
    if not frames:
        return 0
    # A header is written and synced before its frames: only damage makes it wrong.
    salts = _HEADER.unpack(found)[4:6] if _is_sound(found) else frames[0][2:4]
    num_commits = sum(1 for frame in frames if frame[1] and frame[2:4] == salts)
    # A commit's mark is never there without what it commits as long as the machine runs. A power
    # failure may leave the mark of the last one alone, which nobody was told of then.
    began = time.time() - time.clock_gettime(_SINCE_BOOT)
    is_torn = wal.stat().st_mtime < began
    return max(num_commits - is_torn, 0)


def _is_sound(header: bytes) -> bool:
    """Return whether the checksum of a WAL's header is right."""
    magic, *_, first, second = _HEADER.unpack(header)
    order = ">" if magic & _BIG_ENDIAN else "<"
    words = struct.unpack(f"{order}6I", header[:24])
    one = two = 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    return (one, two) == (first, second)
