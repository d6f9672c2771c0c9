"""View of the differences between two runs, side by side; equal values are named or counted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena.errors import ConfigError
from arena.types import RANDOM_BOT
from populations.views.parts import (
    SIDES,
    Beside,
    Column,
    Document,
    Kind,
    Line,
    Room,
    Row,
    Section,
    Table,
    hidden,
    said,
)
from populations.views.run import COUNTS, status_document, title_of
from populations.views.run import KINDS as KINDS_OF_STATUS
from populations.views.texts import plain
from populations.views.view import Operand, View

if TYPE_CHECKING:
    from populations.views.questions.inspection import Inspection

MAX_LABEL = 20
"""Maximum length of a run's name in characters."""

PLACES = 5
"""Number of policies of each run that are shown by default."""

KINDS: Mapping[str, Kind] = {
    **{key: KINDS_OF_STATUS[key] for key in ("elapsed_s", *COUNTS[:3])},
    **dict.fromkeys(("mean_agent_steps_per_s", "agent_steps_per_training_s"), "count"),
    "environment_digest": "digest",
}
"""Kinds of values in the first table, by key."""

Pair = tuple[str, Kind, object, object]


def diff_document(
    run: Inspection, population: str | None, *, other: str | os.PathLike[str] | None = None
) -> Document:
    """Return the differences between a run and a second one.

    An entry has ``key``, ``first`` and ``second``: a value or an object of each run, or null. The
    ratings of each run have their own scale and cannot be compared; ``evaluate`` has the command
    that compares the champions by matches.

    Args:
        run: First run.
        population: Population of policies, players and their events; None for all.
        other: Directory of the second run.

    Raises:
        ConfigError: If no second run is named, or the directory has none.
        StorageError: If the other run's journal cannot be read.
    """
    from populations.views.questions.diff import Side, differences

    if other is None:
        raise ConfigError("the view diff needs the directory of a second run")
    with closing(type(run).open(Path(other))) as second:
        sides = [
            Side.of(one, population, status=status_document(one, population))
            for one in (run, second)
        ]
    return differences(*sides)


def rows_of(document: Document) -> list[Row]:
    """Return a flat row for each value: section, key, and the value of each run."""
    sections = {
        "figures": document["figures"],
        "versions": document["versions"]["different"],
        "configuration": document["configuration"]["different"],
        **{
            name: document[name]
            for name in ("evolution", "champions", "standings", "opponents", "alerts")
        },
    }
    return [
        {**dict.fromkeys(("section", "population", "key", *SIDES)), "section": name, **row}
        for name, entries in sections.items()
        for entry in entries
        for row in _flat(entry)
    ]


def _flat(entry: Row) -> Iterator[Row]:
    """Yield an entry or, if its values are objects, an entry with a dotted key for each of their
    keys.
    """
    values = [entry[side] for side in SIDES]
    objects = [value for value in values if isinstance(value, Mapping)]
    keys = list(dict.fromkeys(key for one in objects for key in one))
    if not keys:
        yield entry
    for key in keys:
        of = {
            side: value.get(key) if isinstance(value, Mapping) else None
            for side, value in zip(SIDES, values, strict=True)
        }
        yield from _flat({**entry, "key": f"{entry['key']}.{key}", **of})


def diff(document: Document, room: Room) -> Iterator[Section]:
    """Yield the differences: counts, configuration, PBT, players and alerts of both runs."""
    runs = document["runs"]
    labels = [room.cut(plain(str(runs[side]["label"])), MAX_LABEL) for side in SIDES]
    figures: list[Pair] = [
        (title_of(str(entry["key"])), KINDS.get(str(entry["key"]), "value"), *_values(entry))
        for entry in document["figures"]
        if _values(entry) != (None, None)
    ]
    names = {"one": labels[0], "two": labels[1]}
    yield _compared(Line("differences of {one} and {two}", names), labels, figures)
    kinds: Mapping[str, Kind] = {"versions": "value", "configuration": "exact"}
    for name, kind in kinds.items():
        part = document[name]
        entries = part["different"]
        yield Section(
            title=Line(
                f"{name}: {{different}} different, {{equal}} equal",
                {**part, "different": len(entries)},
            ),
            body=Beside(
                labels,
                [(str(entry["key"]), kind, *_values(entry)) for entry in entries],
            ),
        )
    for name, own in _by_population(document, "evolution").items():
        # Leave out counts that are 0 in both runs.
        counts: list[Pair] = [
            (str(entry["key"]), "value", *_values(entry))
            for entry in own
            if any(entry[side] for side in SIDES)
        ]
        yield _compared(Line("PBT of {name}", {"name": name}), labels, counts)
    yield from _standings(document, room, labels)
    yield from _hyperparameters(document, labels)
    yield from _opponents(document, labels)
    alerts = [
        Line(
            "alert of {label}: {key}: {text}",
            {"label": label, "key": entry["key"], "text": entry[side]},
            most_lines=4,
        )
        for entry in document["alerts"]
        for side, label in zip(SIDES, labels, strict=True)
        if entry[side] is not None
    ]
    notes = [said(note) for note in document["notes"]]
    asked = document["evaluate"]
    if asked["command"] is None:
        notes.append(Line("No matches between them: {reason}.", asked))
    else:
        notes.append(Line("Matches between their champions would tell which is better:"))
    yield Section(below=[*alerts, *notes], command=str(asked["command"] or ""))


def _values(entry: Row) -> tuple[Any, Any]:
    # An empty text, such as a missing reason for a state, is shown like null.
    first, second = (None if entry[side] == "" else entry[side] for side in SIDES)
    return first, second


def _by_population(document: Document, *keys: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for key in keys:
        for entry in document[key]:
            found.setdefault(str(entry["population"]), []).append(entry)
    return found


def _compared(title: Line, labels: Sequence[str], pairs: Sequence[Pair]) -> Section:
    """Return a table of the values that differ, and a line of the values that are equal."""
    same = [
        Line(f"{{key}} {{value:{kind}}}", {"key": key, "value": first})
        for key, kind, first, second in pairs
        if first == second
    ]
    return Section(
        title=title,
        body=Beside(labels, [pair for pair in pairs if pair[2] != pair[3]]),
        below=[Line("the same in both: {same:lines}", {"same": same})] if same else [],
    )


def _standings(document: Document, room: Room, labels: Sequence[str]) -> Iterator[Section]:
    columns = _of_both(" ", labels, PLACE)
    for name, own in _by_population(document, "champions", "standings").items():
        most = room.limit or PLACES
        shown = [
            entry
            for entry in own
            if room.is_wide or not str(entry["key"]).isdigit() or int(str(entry["key"])) <= most
        ]
        yield Section(
            title=Line("standings of {name}, each run on its own scale", {"name": name}),
            body=Table(columns, [_beside(entry) for entry in shown]),
            below=hidden(len(own) - len(shown), "more places"),
        )


PLACE = (
    Column("player", "player", "{label}"),
    Column("rating", "elo", "rating"),
    Column("rating", "interval", "95%"),
    Column("agent_steps", "count", "steps", drop=1),
)
SCORE = (
    Column("score", "share", "{label}"),
    Column("score", "shares", "95%"),
    Column("matches", "count", "matches", drop=1),
    Column("rating", "elo", "{label} rating", drop=2),
)


def _of_both(title: str, labels: Sequence[str], columns: Sequence[Column]) -> list[Column]:
    """Return a column of keys, and then the given columns once for each run."""
    every = [
        (side, label, one) for side, label in zip(SIDES, labels, strict=True) for one in columns
    ]
    return [
        Column("key", "word", title, is_label=True),
        # They are labels, as the line about constant columns would not name the run.
        *(
            Column(f"{side}.{one.key}", one.kind, one.title.format(label=label), one.drop, True)
            for side, label, one in every
        ),
    ]


def _beside(entry: Row) -> Row:
    """Return a row with the values of both runs under dotted keys."""
    return {
        "key": entry["key"],
        **{f"{side}.{key}": value for side in SIDES for key, value in (entry[side] or {}).items()},
    }


def _hyperparameters(document: Document, labels: Sequence[str]) -> Iterator[Section]:
    for entry in document["champions"]:
        # With only one champion there is nothing to compare.
        if None in _values(entry):
            continue
        one, two = (side["hyperparameters"] for side in _values(entry))
        pairs: list[Pair] = [
            (key, "value", one.get(key), two.get(key)) for key in dict.fromkeys((*one, *two))
        ]
        title = Line("hyperparameters of the champions of {population}", entry)
        yield _compared(title, labels, pairs)


def _opponents(document: Document, labels: Sequence[str]) -> Iterator[Section]:
    columns = _of_both("opponent", labels, SCORE)
    for name, own in _by_population(document, "opponents").items():
        rows = [_beside(entry) for entry in own]
        # Leave out the rating of the anchor, which is 0 in every run.
        rows = [
            {k: v for k, v in row.items() if row["key"] != RANDOM_BOT or not k.endswith("rating")}
            for row in rows
        ]
        title = Line("scores of the champions of {name} against bots of both runs", {"name": name})
        yield Section(title=title, body=Table(columns, rows))


VIEWS: dict[str, View] = {
    "diff": View(
        document=diff_document,
        flat=rows_of,
        sections=diff,
        operand=Operand("other", "second run", "RUN2"),
        is_whole=False,
    ),
}
