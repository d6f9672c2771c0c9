"""Documents as Python's objects, which take three times the memory of packed ones: the last used.

Tests: `tests/tools/web/test_runs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

Document = Mapping[str, object]

MAX_BYTES = 64_000_000
"""Size of the packed forms of all documents that are kept as objects."""


@dataclass(slots=True)
class Unpacked:
    """Documents that were used last, by their serials; any thread may ask.

    Attributes:
        max_bytes: Size of their packed forms. One document is kept however large it is.
    """

    max_bytes: int = MAX_BYTES
    _found: dict[int, tuple[Document, int]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def document(self, serial: int, packed: bytes) -> Document:
        """Return the document of a packed form; equal serials mean equal documents."""
        import msgpack

        # One thread at a time: several would hold the same large document several times.
        with self._lock:
            document, size = self._found.pop(serial, (None, len(packed)))
            if document is None:
                # Room first: the new one beside the old ones would be the peak.
                self._make_room(size)
                document = msgpack.unpackb(packed)
            self._found[serial] = (document, size)
            return document

    def forget(self, serial: int) -> None:
        """Drop a document that a newer one has replaced."""
        with self._lock:
            self._found.pop(serial, None)

    def _make_room(self, size: int) -> None:
        total = size + sum(one for _, one in self._found.values())
        # In the order of their last use.
        for serial in tuple(self._found):
            if total <= self.max_bytes:
                return
            total -= self._found.pop(serial)[1]


UNPACKED = Unpacked()
"""Documents of all runs of this process."""
