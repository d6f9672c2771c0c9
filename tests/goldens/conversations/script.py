"""The record of a conversation, played to a server; and where the server parted from it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from tests.goldens.forms import Document

PATIENCE_S = 120.0
"""Seconds after the last line in which a run has to end."""


class Parted(Exception):
    """The controller said something else than it did when the conversation was recorded."""


class Script:
    """The learners of a record. Line numbers are those of the stored file."""

    def __init__(self, lines: Sequence[Document]) -> None:
        self._lines = lines
        self._place = 0
        self._said: list[Document] = []

    def next(self, *, before_s: float) -> Document | None:
        """See `Cast`."""
        place = self._place
        while place < len(self._lines) and is_said(self._lines[place]):
            place += 1
        if place == len(self._lines):
            if before_s > self._lines[-1]["at"] + PATIENCE_S:
                self._check(place)
                raise Parted("the record is over, and the run goes on")
            return None
        if self._lines[place]["at"] > before_s:
            return None
        self._check(place)
        self._place = place + 1
        return self._lines[place]

    @property
    def place(self) -> str:
        """The line that came in last."""
        if not self._place:
            return "at the beginning"
        return f"after line {self._place}, {json.dumps(self._lines[self._place - 1])[:200]}"

    def hear(self, line: Document, message: Any) -> None:
        """See `Cast`."""
        self._said.append(line)

    def finish(self) -> None:
        """Check the end: all was said, and nothing is left.

        Raises:
            Parted: If not.
        """
        place = self._place
        while place < len(self._lines) and is_said(self._lines[place]):
            place += 1
        self._check(place)
        if place < len(self._lines):
            line = json.dumps(self._lines[place])[:300]
            raise Parted(f"the run ended before line {place + 1}: {line}")

    def _check(self, end: int) -> None:
        """Compare what was said since the last line that came in, by whom it was said to."""
        expected, said = _by_listener(self._lines[self._place : end]), _by_listener(self._said)
        self._said.clear()
        for name in {**expected, **said}:
            pairs = zip_longest(expected.get(name, []), said.get(name, []))
            for one, other in pairs:
                if one != other:
                    raise Parted(self._explain(name, one, other))

    def _explain(self, name: str, expected: Document | None, got: Document | None) -> str:
        where = f"the conversation parted {self.place}\nin what the controller says to {name}:"
        return "\n".join([where, *_diff(expected, got)])


def is_said(line: Document) -> bool:
    """Whether the controller says a line."""
    return not {"to", "start", "kill", "asks"}.isdisjoint(line)


def _by_listener(lines: Sequence[Document]) -> dict[str, list[Document]]:
    found: dict[str, list[Document]] = {}
    for line in lines:
        name = line.get("to") or ("worker threads" if "asks" in line else "the launcher")
        found.setdefault(name, []).append(line)
    return found


def _diff(expected: Any, got: Any) -> list[str]:
    """Lines that say how two documents differ."""
    one, other = (
        ["nothing"] if document is None else json.dumps(document, indent=1).splitlines()
        for document in (expected, got)
    )
    return list(difflib.unified_diff(one, other, "stored", "found", lineterm="", n=2))[:60]
