"""Bring what a controller writes and sends into documents of promised names.

All that a golden knows about today's types is here: a rebuilding of the house changes this file and
says so, or nothing of the goldens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from arena.wire.messages import Acknowledge
from populations.config.run_file import RunFile
from populations.controller.state.events import Command, KillLearner, SendMessage, StartLearner
from populations.records.aggregates import Row
from populations.records.rows import EventRow
from populations.storage.journal import JournalReader
from populations.views.questions.inspection import Inspection, folded
from populations.views.sentences import event_document
from populations.views.views import document

Document = dict[str, Any]

OF_THE_MACHINE = ("time", "versions")
"""Keys of events that tell of the clock or the machine."""


def events_of(rows: Sequence[Row]) -> Iterator[Document]:
    """Yield the events among rows that were committed."""
    for row in rows:
        if isinstance(row, EventRow):
            document = plain(event_document(row))
            for key in (*OF_THE_MACHINE, "sentence"):
                document.pop(key, None)
            yield {"event": document}


def messages_of(commands: Sequence[Command]) -> Iterator[Document]:
    """Yield what is sent to learners, and which of them are started and killed."""
    for command in commands:
        match command:
            case SendMessage(learner=learner, message=message):
                # Only the position of an acknowledgement is fixed, not its content.
                sent = {} if isinstance(message, Acknowledge) else plain(message)
                yield {"to": str(learner), "message": type(message).__name__, **sent}
            case StartLearner(slot=slot, populations=populations):
                yield {"start": slot, "populations": list(populations)}
            case KillLearner():
                yield {"kill": plain(structs.asdict(command))}
            case _:
                pass


def views_of(run_dir: Path, run_file: RunFile, journal: Path) -> Document:
    """Return the JSON of standings, status and payoff, as ``arena league --json`` has them."""
    with JournalReader(journal) as reader:
        tables = reader.load(pairs=())
        league = folded(tables, run_file, run_dir)
        run = Inspection(run_dir, run_file, reader, tables, league)
        return {name: plain(document(run, name)) for name in ("standings", "status", "payoff")}


def plain(value: object) -> Any:
    """Return lists and dicts of plain values, numbers with nine digits."""
    if isinstance(value, Struct):
        value = structs.asdict(value)
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        # The last digits depend on the library of linear algebra.
        return float(f"{value:.9g}")
    return value
