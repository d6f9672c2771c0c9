"""Room and characters that a view has, and how names, numbers and times are written in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from populations.league.names import short_name, short_names

from ...terminal.quantities import count
from ...terminal.text import plain

Row = Mapping[str, object]
Document = Mapping[str, object]

MAX_CELL = 28
"""Most characters of a name or another cell that is not the text of a row."""

DIGEST = re.compile("[0-9a-f]{64}")
"""Digest of weights, which is the name of players that nothing else names."""

DIGEST_CHARS = 8

TITLES = {"elapsed_s": "elapsed", "exploits": "copies"}
"""Words for figures whose keys are others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Room and characters for one view.

    Attributes:
        width: Columns of the screen.
        is_wide: Whether everything is shown, however wide.
        populations: Names of the run's populations.
        is_ascii: Whether the stream's encoding lacks blocks and arrows.
        limit: Most rows of a table that were asked for. None: what the screen takes.
    """

    width: int
    is_wide: bool = False
    populations: tuple[str, ...] = ()
    is_ascii: bool = False
    limit: int | None = None

    def name(self, player: object) -> str:
        """Return a player's name as it is shown."""
        if player is None:
            return "-"
        text = plain(str(player))
        if self.is_wide:
            return text
        if DIGEST.fullmatch(text):
            return text[:DIGEST_CHARS]
        return self.cut(short_name(text, populations=self.populations), MAX_CELL)

    def names(self, text: str) -> str:
        """Return a sentence with the names of players in it as they are shown."""
        return text if self.is_wide else short_names(text, populations=self.populations)

    def cut(self, text: str, most: int) -> str:
        """Return a text shortened at its end to so many characters, unless everything is shown."""
        if self.is_wide or len(text) <= most:
            return text
        dots = "..." if self.is_ascii else "…"
        return text[: max(most - len(dots), 0)] + dots


def text_of(value: object) -> str:
    """Return a cell as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        # From 100 on decimals of Elo and returns are noise; below 0.001 they are all there is.
        if abs(value) >= 100:
            return f"{value:z.0f}"
        if 0 < abs(value) < 0.01:
            return f"{value:.3g}"
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if value in ({}, [], ()):
        return "none"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={text_of(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(text_of(one) for one in value)
    # Names may come from another machine: no control characters.
    return plain(str(value))


def title_of(key: str) -> str:
    """Return the words for a figure, by its key in documents."""
    return TITLES.get(key, key.replace("_", " "))


def whole(value: object) -> str:
    """Return a rating or another number without decimals."""
    return f"{value:z.0f}" if isinstance(value, int | float) else "-"


def steps(value: object) -> str:
    """Return a count in few characters."""
    return count(round(value)) if isinstance(value, int | float) else "-"


def signed(value: object) -> str:
    """Return a difference with its sign."""
    return f"{value:+z.0f}" if isinstance(value, int | float) else "-"


def share(value: object) -> str:
    """Return a share or score between 0 and 1 with three decimals."""
    return f"{value:.3f}" if isinstance(value, int | float) else "-"


def interval(row: Row) -> str | None:
    """Return a row's 95% interval of its rating; None: it has none."""
    low, high = row.get("rating_low"), row.get("rating_high")
    if isinstance(low, int | float) and row.get("open"):
        return f"{low:z.0f}+"
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    return f"{low:z.0f}..{high:z.0f}"


def moment(time: object) -> datetime | None:
    """Return the moment of a document's time in UTC; None: there is none."""
    try:
        found = datetime.fromisoformat(str(time))
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def clock(time: object) -> str:
    """Return a document's time as hours, minutes and seconds in UTC."""
    found = moment(time)
    return "-" if found is None else f"{found:%H:%M:%S}"


def elapsed(since: object, until: object) -> str:
    """Return the time between two times of a document as hours, minutes and seconds."""
    first, last = moment(since), moment(until)
    if first is None or last is None:
        return "-"
    seconds = max(int((last - first).total_seconds()), 0)
    hours, rest = divmod(seconds, 3600)
    minutes = f"{rest // 60:02d}:{rest % 60:02d}"
    return f"{hours}:{minutes}" if hours else minutes
