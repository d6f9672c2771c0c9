"""Calls of hooks that events require, and a record of which calls were made.

The module is pure, apart from reading and writing the record. Events arrive in order of sequence.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from arena.codec import from_json, to_json
from arena.errors import DecodeError
from arena.files import replacing
from arena.types import Count, Document
from populations.config.hooks import Hook
from populations.records.rows import EventRow, Json
from populations.storage.database import storage_errors

ENDED = frozenset({"run_finished", "run_failed", "run_stopped"})

EXPORT = "export"
"""Kind of the built-in hook, which exports checkpoints."""

EVENTS: Mapping[str, frozenset[str] | None] = {
    "on_ghost": frozenset({"ghost_created"}),
    "on_champion": frozenset({"champion"}),
    "on_exploit": frozenset({"exploited"}),
    "on_evaluation": frozenset({"ratings_fitted"}),
    "on_end": ENDED,
    "on_event": None,
    EXPORT: frozenset({"export_due"}),
}
"""Kinds of events that each kind of hook is called for; None: all."""

_PLACEHOLDER = re.compile(r"\{(run|player|population|kind|subject|sequence|to)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of one hook.

    Attributes:
        kind: Kind of the hook (``on_ghost``).
        hook: Reference to a function, or a command.
        place: Index of the hook among the hooks of its kind.
        sequence: Sequence of the event.
        document: Event as JSON data, as the hook gets it.
    """

    kind: str
    hook: Hook
    place: int
    sequence: int
    document: Mapping[str, Json]

    @property
    def name(self) -> str:
        """Return a unique name among the event's calls, without possibly secret arguments."""
        # There is only one hook of this kind, so its kind is enough.
        if self.kind == EXPORT:
            return self.kind
        if isinstance(self.hook, str):
            return f"{self.kind}: {self.hook}"
        return f"{self.kind}[{self.place}]: {self.hook[0]}"


class Place(Document, frozen=True, kw_only=True):
    """Position of a process in the sequence of events, stored in a file.

    Attributes:
        after: Sequence of the last event for which all calls were made.
        done: Names of the calls that were made for the next event.
        dropped: Number of calls that were dropped since the run began.
    """

    after: Count
    done: tuple[str, ...] = ()
    dropped: Count = 0


@dataclass(slots=True)
class CallQueue:
    """Queue of pending calls, oldest first.

    Attributes:
        hooks: Hooks by kind.
        run_dir: Path of the run directory, which documents for hooks contain.
        limit: Maximum number of pending calls.
        keep_exports: Number of newest exports that are retained for each policy; None: all.
        place: Position up to which all calls were made or dropped.
        read: Sequence of the last event that was added.
    """

    hooks: Mapping[str, Sequence[Hook]]
    run_dir: str
    limit: int
    place: Place
    keep_exports: int | None = None
    read: int = field(init=False)
    _calls: deque[Call] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.read = self.place.after

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, events: Iterable[EventRow]) -> None:
        """Add the calls of further events; beyond the limit the oldest ones are dropped."""
        for event in events:
            self.read = event.sequence
            done = self.place.done if event.sequence == self.place.after + 1 else ()
            self._calls += [call for call in self._calls_of(event) if call.name not in done]
        if self.keep_exports is not None:
            self._forget_superseded(self.keep_exports)
        excess = len(self._calls) - self.limit
        if excess > 0:
            self._drop(excess)

    def take(self) -> Call | None:
        """Remove and return the next call; None: the queue is empty. `record` marks it as made."""
        return self._calls.popleft() if self._calls else None

    def record(self, call: Call) -> None:
        """Record that a call was made."""
        before, following = self.place, self._calls[0] if self._calls else None
        if following is None or following.sequence != call.sequence:
            self.place = replace(before, after=call.sequence, done=())
            return
        known = before.done if before.after == call.sequence - 1 else ()
        self.place = replace(before, after=call.sequence - 1, done=(*known, call.name))

    def drop_all_but_ends(self) -> None:
        """Drop all calls but those of ``on_end``, if there is one of ``on_end``."""
        if any(call.kind == "on_end" for call in self._calls):
            self._drop(len(self._calls))

    def _forget_superseded(self, keep: int) -> None:
        """Remove calls for exports that newer pending ones would replace at once.

        Checkpoints of such old exports may be removed already.
        """
        later: Counter[Json] = Counter()
        needed: deque[Call] = deque()
        for call in reversed(self._calls):
            if call.kind == EXPORT:
                later[call.document["subject"]] += 1
            if call.kind != EXPORT or later[call.document["subject"]] <= keep:
                needed.appendleft(call)
        self._calls = needed

    def _drop(self, number: int) -> None:
        # Calls of ``on_end`` are few and are never dropped.
        spared = [call for call in self._calls if call.kind == "on_end"]
        others = [call for call in self._calls if call.kind != "on_end"]
        dropped = min(number, len(others))
        kept = sorted([*spared, *others[dropped:]], key=lambda call: call.sequence)
        self._calls = deque(kept)
        self.place = replace(self.place, dropped=self.place.dropped + dropped)

    def _calls_of(self, event: EventRow) -> Iterable[Call]:
        for kind, hooks in self.hooks.items():
            kinds = EVENTS[kind]
            if kinds is not None and event.kind not in kinds:
                continue
            document = self._document(event, kind)
            for place, hook in enumerate(hooks):
                yield Call(
                    kind=kind, hook=hook, place=place, sequence=event.sequence, document=document
                )

    def _document(self, event: EventRow, kind: str) -> dict[str, Json]:
        # The document is that of ``arena league RUN events --json``, with run and kind of the hook.
        return {
            "sequence": event.sequence,
            "time": event.time,
            "kind": event.kind,
            "subject": event.subject,
            **event.data,
            "run": self.run_dir,
            "hook": kind,
        }


def filled(command: Sequence[str], document: Mapping[str, Json]) -> list[str]:
    """Return a command with its placeholders replaced; other braces are left as they are."""
    values = dict(document)
    subject = str(document["subject"])
    if "/" in subject:
        # The subject is a policy or a ghost, whose name begins with its population.
        values.setdefault("player", subject)
        values.setdefault("population", subject.partition("/")[0])

    def value_of(match: re.Match[str]) -> str:
        found = values.get(match[1])
        return "" if found is None else str(found)

    return [_PLACEHOLDER.sub(value_of, part) for part in command]


def read_place(path: Path) -> Place | None:
    """Read the position from its file; None if the file is missing or damaged."""
    with suppress(OSError, DecodeError):
        return from_json(path.read_bytes(), Place)
    return None


def begin_place(path: Path, *, after: int) -> None:
    """Write a position after the given event, unless the file has a valid position already.

    Raises:
        StorageError: If the file cannot be written.
    """
    if read_place(path) is None:
        with storage_errors(path):
            write_place(path, Place(after=after))


def write_place(path: Path, place: Place) -> None:
    """Replace the position's file atomically: a kill leaves the old file or the new one.

    Raises:
        OSError: If the file cannot be written.
    """
    # There is no fsync, because after a power failure some calls may be made twice.
    with replacing(path) as file:
        file.write(to_json(place).encode())
