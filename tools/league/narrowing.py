"""Choice of what a view shows: kinds of events, a player, a time, and how many rows.

Documents are narrowed, so that tables, CSV and JSON show the same.

Tests: `tests/tools/league/test_narrowing.py`.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from arena.errors import ConfigError
from populations.views.parts import Document, Row
from populations.views.texts import moment, texts
from populations.views.view import View

QUIET = ("start_assigned", "train_assigned", "evaluation_assigned", "ratings_fitted")
"""Kinds of events that people see only on request: most of all, and no decision about a policy."""

_AGO = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h|d)(?:\s+ago)?")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def checked_kinds(kinds: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the kinds of events that were asked for; None: all.

    Raises:
        ConfigError: If there is no such kind; it names the nearest ones.
    """
    from populations.records.event_kinds import EVENT_KINDS

    for kind in kinds or ():
        if kind not in EVENT_KINDS:
            near = difflib.get_close_matches(kind, EVENT_KINDS, n=3) or sorted(EVENT_KINDS)
            raise ConfigError(f"there is no kind of event {kind!r}; nearest: {', '.join(near[:3])}")
    return tuple(kinds or ()) or None


def since_time(text: str, *, now: datetime | None = None) -> datetime:
    """Return the time that is meant by ``10m``, ``2h ago`` or a time in ISO form (UTC).

    Raises:
        ConfigError: If it is neither.
    """
    if ago := _AGO.fullmatch(text.strip()):
        seconds = float(ago[1]) * _SECONDS[ago[2]]
        try:
            return (now or datetime.now(UTC)) - timedelta(seconds=seconds)
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)
    found = moment(text.strip())
    if found is None:
        raise ConfigError(
            f"--since takes a time such as 2026-01-31T12:00 (UTC) or a time ago such as 10m, "
            f"not {text!r}"
        )
    return found


def concerns(row: Row, player: str) -> bool:
    """Return whether a row names a player, or one of a policy's ghosts and generations."""
    return any(
        name == player or name.startswith((f"{player}@", f"{player}#"))
        for name in texts([*row.values()])
    )


def select_rows(
    rows: Iterable[Row], *, player: str | None = None, since: datetime | None = None
) -> list[Row]:
    """Return those rows that name a player, since a time."""
    return [
        row
        for row in rows
        if (player is None or concerns(row, player))
        and (since is None or ((found := moment(row["time"])) and found >= since))
    ]


def without_quiet(document: Document) -> tuple[Document, Counter[str]]:
    """Return a document of events without those that people see only on request, and the number of
    these by kind.
    """
    rows = document["events"]
    quiet = Counter(str(row["kind"]) for row in rows if row["kind"] in QUIET)
    loud = [row for row in rows if row["kind"] not in QUIET]
    return {**document, "events": loud}, quiet


def lists_of(entries: Any) -> Mapping[str, list[Any]]:  # noqa: ANN401 - a document's
    """Return lists of entries by their names; a single list, or what an object has, has none."""
    if isinstance(entries, list):
        return {"": entries}
    is_grouped = all(isinstance(rows, list) for rows in entries.values())
    return entries if is_grouped else {"": list(entries.items())}


def limited(document: Document, view: View, limit: int | None) -> tuple[Document, int]:
    """Return a document with the entries that matter most, in the order in which they are shown,
    and the number of those that are cut off.

    Args:
        document: Document of the view.
        view: The view.
        limit: Most entries of a list; None: all.
    """
    entries = document[view.limits]
    lists = lists_of(entries)
    hidden, shown = 0, {}
    for name, rows in lists.items():
        ordered = view.order(rows, document)
        if limit is not None and len(ordered) > limit:
            hidden += len(ordered) - limit
            ordered = ordered[len(ordered) - limit :] if view.keeps_last else ordered[:limit]
        shown[name] = ordered
    new = shown if lists is entries else type(entries)(shown[""])
    return {**document, view.limits: new}, hidden
