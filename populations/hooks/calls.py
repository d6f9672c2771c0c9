"""Calls that follow from events, and the place that a process has reached among them.

Pure: events come in as documents, in order of their sequence.
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
"""Kind of Arena's own hook, which exports checkpoints."""

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
        hook: Function or command.
        place: Its place among the hooks of its kind.
        sequence: Sequence of the event.
        document: The event, as the hook gets it.
    """

    kind: str
    hook: Hook
    place: int
    sequence: int
    document: Mapping[str, Json]

    @property
    def name(self) -> str:
        """Return the call's name among those of its event; a command's arguments may be secrets."""
        # Its command is Arena's own, and there is one.
        if self.kind == EXPORT:
            return self.kind
        if isinstance(self.hook, str):
            return f"{self.kind}: {self.hook}"
        return f"{self.kind}[{self.place}]: {self.hook[0]}"


class Place(Document, frozen=True, kw_only=True):
    """Place of a process among the events.

    Attributes:
        after: Sequence of the last event all of whose calls were made.
        done: Names of the calls of the next event that were made.
        dropped: Calls that were never made, since the run began.
    """

    after: Count
    done: tuple[str, ...] = ()
    dropped: Count = 0


@dataclass(slots=True)
class CallQueue:
    """Calls that wait, oldest first.

    Attributes:
        hooks: Hooks by kind.
        run_dir: Path of the run directory, for hooks.
        limit: Most calls that wait.
        keep_exports: Number of newest exports of a policy that stay; None: all.
        place: Place up to which all calls were made or dropped.
        read: Sequence of the last event that came in.
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
        """Return the next call; None if there is none. It counts as made only after `record`."""
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
        """Drop all calls but those of the end of the run, if there are such."""
        if any(call.kind == "on_end" for call in self._calls):
            self._drop(len(self._calls))

    def _forget_superseded(self, keep: int) -> None:
        """Leave out exports that would be removed at once, whose checkpoints may be gone."""
        later: Counter[Json] = Counter()
        needed: deque[Call] = deque()
        for call in reversed(self._calls):
            if call.kind == EXPORT:
                later[call.document["subject"]] += 1
            if call.kind != EXPORT or later[call.document["subject"]] <= keep:
                needed.appendleft(call)
        self._calls = needed

    def _drop(self, number: int) -> None:
        # The end of a run is told in any case, and there are few of them.
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
        # The document is that of ``arena league RUN events --json``, and what a hook needs to know
        # beside it.
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
    """Return a command with its placeholders filled; other braces stay."""
    values = dict(document)
    subject = str(document["subject"])
    if "/" in subject:
        # A policy or a ghost, which is of a population.
        values.setdefault("player", subject)
        values.setdefault("population", subject.partition("/")[0])

    def value_of(match: re.Match[str]) -> str:
        found = values.get(match[1])
        return "" if found is None else str(found)

    return [_PLACEHOLDER.sub(value_of, part) for part in command]


def read_place(path: Path) -> Place | None:
    """Return the place; None if there is none that can be read."""
    with suppress(OSError, DecodeError):
        return from_json(path.read_bytes(), Place)
    return None


def begin_place(path: Path, *, after: int) -> None:
    """Begin after an event, unless it is known which calls were made.

    Raises:
        StorageError: If the disk refuses.
    """
    if read_place(path) is None:
        with storage_errors(path):
            write_place(path, Place(after=after))


def write_place(path: Path, place: Place) -> None:
    """Replace the file; a kill leaves the old one or the new one.

    Raises:
        OSError: If the disk refuses.
    """
    # No fsync is needed: after a power failure some calls are made once more.
    with replacing(path) as file:
        file.write(to_json(place).encode())
