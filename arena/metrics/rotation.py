"""Bounds of a sink's files: when new ones begin, and how many of the old ones stay.

Tests: `tests/arena/metrics/test_sinks.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """Sizes of a sink's files, in bytes.

    Attributes:
        file_bytes: Size from which on a sink begins new files. None: never.
        keep_bytes: Most bytes of older files that stay. None: all stay.
    """

    file_bytes: int | None = None
    keep_bytes: int | None = None

    def is_due(self, written_bytes: int) -> bool:
        """Return whether files of a size are to be followed by new ones."""
        return self.file_bytes is not None and written_bytes >= self.file_bytes

    def remove_oldest(self, older: Iterable[Path]) -> None:
        """Remove the oldest of the older files until the rest is within the bound.

        Args:
            older: Files that nothing is written to any more, the newest last.

        Raises:
            OSError: If the disk refuses; the next call tries again.
        """
        if self.keep_bytes is None:
            return
        total = 0
        for path in reversed(list(older)):
            total += path.stat().st_size
            if total > self.keep_bytes:
                path.unlink()


WHOLE = Rotation()
"""One file for ever."""
