"""Process that makes documents of runs, so that a server holds none of their rows.

It reads a request a line: JSON with ``run`` and ``views``. An answer is a line, too, of msgpack in
base64: ``took_s``, ``lived_s`` (what the process took from its start on) and ``documents``, each
packed, or ``error``. Requests are answered in their order; the process ends with its input.

Tests: `tests/tools/web/test_maker.py`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import ArenaError
from arena.processes.child import serve
from arena.processes.paced_log import OneASecond
from arena.processes.parent import Child
from populations.views import questions
from populations.views.views import VIEWS, document

from ..league.documents import inspected
from ..show.html import in_words

if TYPE_CHECKING:
    from populations.views.parts import Document
    from populations.views.questions.inspection import Inspection

logger = logging.getLogger(__name__)
# The same problem is logged at most once a second, because pages ask every few seconds.
logger.addFilter(OneASecond())

FAILED = "failed"
"""Only key of the document of a view that could not be made: why."""

CARDS, CONFIGURATION = "cards", "configuration"
"""Documents that only pages show: of the cards of all players, and of what the run is made of."""

GAME = "game"
"""Document of a game that was kept, told step by step."""

GAME_S = 120.0
"""Time limit of the process that plays a game again."""

LEVEL = 1
"""Effort of the compression: more of it takes longer than it saves."""

FITTED = tuple(sorted(name for name, view in VIEWS.items() if view.is_fitted))
"""Views that are made at once, as they share a fit."""


Made = tuple[Mapping[str, bytes], float]
"""Documents by their views, packed, and the seconds of one core that making them took."""


def pack(document: Mapping[str, object]) -> bytes:
    """Return a document as it is sent and kept: msgpack, compressed.

    Rows repeat their names, so those of a large league shrink to a fifth of 50 MB.
    """
    import msgpack

    return zlib.compress(msgpack.packb(document), LEVEL)


def unpack(packed: bytes) -> Document:
    """Return a document of `pack`."""
    import msgpack

    document: Document = msgpack.unpackb(zlib.decompress(packed))
    return document


def make_documents(run: Path, views: Sequence[str]) -> Made:
    """Return documents of a run, at one moment, in this process.

    Where a view fails, its document says so, and the others stand.

    Args:
        run: Run directory.
        views: Views, `CARDS`, `CONFIGURATION` and `GAME`, each with its operand after a blank where
            it takes one, as on the command line: ``diff RUN2``; of a game its id: ``game 1.0``.

    Raises:
        ConfigError: If there is no run.
        StorageError: If its journal cannot be read.
    """
    from pkgutil import iter_modules

    from populations.gc_pause import collector_paused

    for module in iter_modules(questions.__path__, f"{questions.__name__}."):
        # Modules are imported before the clock starts, so that imports are not counted.
        import_module(module.name)
    began_s = time.thread_time()
    with collector_paused(), inspected(run, None) as inspection:
        packed = {view: pack(_document(inspection, view)) for view in views}
    return packed, time.thread_time() - began_s


def _document(inspection: Inspection, view: str) -> Mapping[str, object]:
    """Return the document of a view, or one that only pages show."""
    from .cards import cards_document
    from .pages.configuration import configuration_document

    name, _, operand = view.partition(" ")
    try:
        if name == CARDS:
            return cards_document(inspection)
        if name == CONFIGURATION:
            return configuration_document(inspection)
        if name == GAME:
            return game_document(inspection.run_dir, operand)
        needed = VIEWS[name].operand
        return document(inspection, name, **({needed.option: operand} if needed else {}))
    # An error in a run's rows or files concerns this part only.
    except Exception as error:
        said, cause = in_words(error)
        logger.warning(
            "%s of %s cannot be shown: %s", view, inspection.run_dir, said, exc_info=cause
        )
        return {FAILED: said}


def game_document(run: Path, game: str) -> Mapping[str, object]:
    """Return a game as ``arena replay --json`` tells it, by a process of its own: it runs the
    environment, which may be anybody's code.

    Raises:
        ArenaError: If it cannot be told, or takes too long.
    """
    module, arguments = f"{__package__.rpartition('.')[0]}.main", ["replay", str(run)]
    arguments += ["--id", game, "--json"]
    own = own_variables()
    with Child(module, arguments, log="temporary", talks="output", variables=own) as child:
        lines, code = child.ask(b"", GAME_S)
        if code is None:
            raise ArenaError(
                f"game {game} took more than {GAME_S:g} s to be told, and was given up"
            )
        if code:
            raise ArenaError(child.last_line)
    document: Mapping[str, object] = json.loads(b"\n".join(lines))
    return document


def own_variables() -> dict[str, str]:
    """Return the environment variables of a process that makes documents, beside this one's."""
    # The child runs with -P, so it needs this process's import path.
    return {"PYTHONPATH": os.pathsep.join(one or str(Path.cwd()) for one in sys.path)}


def _answers(requests: Iterator[str]) -> Iterator[str]:
    """Answer requests until the input ends."""
    for line in requests:
        request = json.loads(line)
        yield b64encode(_answer(Path(request["run"]), request["views"])).decode()


def _answer(run: Path, views: Sequence[str]) -> bytes:
    import msgpack

    try:
        documents, took_s = make_documents(run, views)
    except ArenaError as error:
        return bytes(msgpack.packb({"error": str(error)}))
    answer = {"took_s": took_s, "lived_s": time.process_time(), "documents": documents}
    return bytes(msgpack.packb(answer))


if __name__ == "__main__":
    serve(_answers)
