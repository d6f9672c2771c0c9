"""Screen that shows users' texts as they are, on a stream that may go away.

Tests: `tests/tools/terminal/test_signals.py`, `tests/faults/test_signals.py`.
"""

from __future__ import annotations

import errno
import os
from typing import IO, Any, TextIO, cast
from weakref import WeakSet

from rich.console import Console
from rich.text import Text

from populations.views.texts import plain

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_GONE: WeakSet[TextIO] = WeakSet()
"""Streams that lost their reader: known to every screen on them, whichever found it out."""


class Screen(Console):
    """Console that shows text as it is: no markup, no character that controls a terminal."""

    def __init__(self, stream: TextIO, **options: Any) -> None:  # noqa: ANN401
        """Write to a stream; options are those of rich's Console."""
        # The wrapper stands between rich and the stream, because rich ends the process at a broken
        # pipe.
        self._stream = _Stream(stream)
        super().__init__(file=cast("IO[str]", self._stream), markup=False, emoji=False, **options)

    @property
    def is_gone(self) -> bool:
        """Return whether the stream has lost its reader: its pipe or its terminal was closed."""
        return self._stream.is_gone

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401
        """Render a string as plain text; every string that is shown comes through here."""
        # Control characters are removed here for all callers; newlines and tabs are layout.
        return super().render_str(plain(text, keep="\n\t"), **options)


class _Stream:
    """A text stream that takes everything; without a reader, later text is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def is_gone(self) -> bool:
        return self._stream in _GONE

    @property
    def encoding(self) -> str:
        return self._stream.encoding

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except UnicodeEncodeError:
            # Characters that the stream cannot encode are replaced: names and cells cut by rich
            # have some.
            return self.write(text.encode(self.encoding, "replace").decode(self.encoding))
        except OSError as error:
            self._let_go(error)
        # The text counts as written, so that rich and print continue.
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._let_go(error)

    def _let_go(self, error: OSError) -> None:
        """Discard the buffer and all later writes without complaint, if the reader is gone."""
        # A full disk is not a closed reader: output is lost only until there is room.
        if error.errno in NO_ROOM:
            return
        _GONE.add(self._stream)
        # Otherwise the buffer is flushed again later and at the interpreter's exit.
        discard(self._stream)


def discard(stream: TextIO) -> None:
    """Discard a stream's buffer, and everything that is written to it later."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # The descriptor is replaced, because other objects hold the stream.
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
