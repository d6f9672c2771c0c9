"""Process that makes documents of runs, so that a server holds none of their rows.

It reads a request a line from standard input: JSON with ``run`` and ``views``. An answer is its
length in eight bytes, and msgpack: ``took_s``, ``lived_s`` (what the process took from its start
on) and ``documents``, each packed, or ``error``.
Requests are answered in their order; the process ends with its input.

Tests: `tests/tools/web/test_maker.py`.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LENGTH_BYTES = 8

CARDS = "cards"
"""Document of the cards of all players."""

FITTED = ("champion", "lineage", "ratings")
"""Views that are made at once: they share a fit of all checkpoints, which takes long."""


@dataclass(frozen=True, slots=True)
class Made:
    """Documents of views.

    Attributes:
        documents: Each document by its view, packed by msgpack.
        took_s: Seconds of one core that making them took.
    """

    documents: Mapping[str, bytes]
    took_s: float


def make_documents(run: Path, views: Sequence[str]) -> Made:
    """Return documents of a run's views, and its ``cards``, at one moment, in this process.

    Args:
        run: Run directory.
        views: Views, each with its operand after a blank where it takes one, as on the command
            line: ``diff RUN2``.

    Raises:
        ConfigError: If there is no run.
        StorageError: If its journal cannot be read.
    """
    import msgpack

    from populations.inspection import views as _  # noqa: F401 - imports are no part of the time

    from ..league.documents import inspected, view_document, view_documents
    from ..league.views import VIEWS
    from .cards import cards_document

    began_s = time.thread_time()
    packed = {}
    # No view: only pages show them.
    if CARDS in views:
        with inspected(run, None) as inspection:
            packed[CARDS] = msgpack.packb(cards_document(inspection))
    rest = [view for view in views if view != CARDS and " " not in view]
    for view, document in view_documents(run, rest).items() if rest else ():
        packed[view] = msgpack.packb(document)
    for view, name, operand in (
        (view, *view.split(" ", maxsplit=1)) for view in views if " " in view
    ):
        needed = VIEWS[name].operand
        assert needed is not None, f"{name} takes an operand"
        packed[view] = msgpack.packb(view_document(run, name, **{needed.option: operand}))
    return Made(packed, time.thread_time() - began_s)


def main() -> None:
    """Answer requests until the input ends."""
    # Nothing that a library prints gets among the answers.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        request = json.loads(requests.get())
        answer = _answer(Path(request["run"]), request["views"])
        output.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        output.flush()


def _read(requests: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    # The server is gone: nobody waits for the document that is being made.
    os._exit(0)


def _answer(run: Path, views: Sequence[str]) -> bytes:
    import msgpack

    from arena.errors import ArenaError

    try:
        made = make_documents(run, views)
    except ArenaError as error:
        return bytes(msgpack.packb({"error": str(error)}))
    answer = {"took_s": made.took_s, "lived_s": time.process_time(), "documents": made.documents}
    return bytes(msgpack.packb(answer))


if __name__ == "__main__":
    main()
