"""Differences of two runs side by side; what is equal is named or counted in a line."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, cast

from arena.types import RANDOM_BOT

from ...terminal.quantities import duration
from ...terminal.text import plain
from .look import Document, Look, Row, interval, share, steps, text_of, title_of, whole
from .tables import GAP, Column, table

if TYPE_CHECKING:
    from rich.console import RenderableType

SIDES = ("first", "second")

PLACES = 5
"""Policies of each run that are shown."""

MAX_KEY = 34
"""Most characters of a line of a key beside two values."""

MAX_LABEL = 20

MAX_VALUE = 80
"""Most characters of a value, in several lines."""

_SHOWN: Mapping[str, Callable[[object], str]] = {
    "elapsed_s": lambda value: duration(cast("float", value)),
    "environment_digest": lambda value: str(value)[:8],
    "mean_agent_steps_per_s": steps,
    "agent_steps_per_training_s": steps,
    **dict.fromkeys(("agent_steps", "matches", "assignments_finished"), steps),
}
"""Functions that write figures for people, by key."""


def rows_of(document: Document) -> list[Row]:
    """Return a flat row for each number of both runs: section, key, and a value of each."""
    sections = {
        "figures": document["figures"],
        "versions": _part(document, "versions")["different"],
        "configuration": _part(document, "configuration")["different"],
        **{
            name: document[name]
            for name in ("evolution", "champions", "standings", "opponents", "alerts")
        },
    }
    return [
        {**dict.fromkeys(("section", "population", "key", *SIDES)), "section": name, **row}
        for name, entries in sections.items()
        for entry in cast("Sequence[Row]", entries)
        for row in _flat(entry)
    ]


def _flat(entry: Row) -> Iterator[Row]:
    """Yield an entry, or one for each key of its objects, with a dotted key."""
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


def diff(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield what differs: figures, configuration, PBT, players and alerts of both runs."""
    from rich.text import Text

    runs = cast("Mapping[str, Row]", document["runs"])
    labels = [look.cut(plain(str(runs[side]["label"])), MAX_LABEL) for side in SIDES]
    yield from _figures(document, look, labels)
    yield from _different(document, look, labels, name="versions", show=text_of)
    yield from _different(document, look, labels, name="configuration", show=exact)
    for section in (_evolution, _standings, _hyperparameters, _opponents):
        yield from section(document, look, labels)
    for entry in cast("Sequence[Row]", document["alerts"]):
        for side, label in zip(SIDES, labels, strict=True):
            if entry[side] is not None:
                line = f"alert of {label}: {text_of(entry['key'])}: {text_of(entry[side])}"
                yield Text(look.cut(line, 4 * look.width))
    for note in cast("Sequence[str]", document["notes"]):
        yield Text(plain(note))
    asked = _part(document, "evaluate")
    if asked["command"] is None:
        yield Text(f"No matches between them: {plain(str(asked['reason']))}.")
    else:
        yield Text("Matches between their champions would tell which is better:")
        # Not wrapped, however long a path is: it is there to be copied.
        command = _command(str(asked["command"]), look)
        yield Text(command, no_wrap=True, overflow="ignore")


def _command(command: str, look: Look) -> str:
    """Return a command in one line, or one for each argument as a shell reads it."""
    line = f"    {plain(command)}"
    if look.is_wide or len(line) <= look.width:
        return line
    words = [plain(shlex.quote(word)) for word in shlex.split(command)]
    return "    " + " \\\n        ".join((" ".join(words[:2]), *words[2:]))


def exact(value: object) -> str:
    """Return a value as a configuration writes it."""
    return plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _part(document: Document, key: str) -> Row:
    return cast("Row", document[key])


def _figures(document: Document, look: Look, labels: Sequence[str]) -> Iterator[RenderableType]:
    rows = [
        {
            "key": figure_title(entry),
            **{side: figure_text(entry, side) for side in SIDES},
            "is_equal": entry["first"] == entry["second"],
        }
        for entry in figures_of(document)
    ]
    title = f"differences of {' and '.join(labels)}"
    yield from _compared(rows, look, labels, title=title)


def figures_of(document: Document) -> list[Row]:
    """Return the figures that a run of both has."""
    entries = cast("Sequence[Row]", document["figures"])
    # An empty text says that there is no reason for a state.
    return [entry for entry in entries if any(entry[side] not in (None, "") for side in SIDES)]


def figure_title(entry: Row) -> str:
    """Return the words for a figure."""
    return title_of(str(entry["key"]))


def figure_text(entry: Row, side: str) -> str:
    """Return a figure of one run as people read it."""
    value = entry[side]
    if value in (None, ""):
        return "-"
    return _SHOWN.get(str(entry["key"]), text_of)(value)


def _different(
    document: Document,
    look: Look,
    labels: Sequence[str],
    *,
    name: str,
    show: Callable[[object], str],
) -> Iterator[RenderableType]:
    part = _part(document, name)
    entries = cast("Sequence[Row]", part["different"])
    title = f"{name}: {len(entries)} different, {text_of(part['equal'])} equal"
    rows = [
        {"key": text_of(entry["key"]), **{side: show(entry[side]) for side in SIDES}}
        for entry in entries
    ]
    yield from _pairs(rows, look, labels, title=title)


def _evolution(document: Document, look: Look, labels: Sequence[str]) -> Iterator[RenderableType]:
    entries = cast("Sequence[Row]", document["evolution"])
    for name in dict.fromkeys(str(entry["population"]) for entry in entries):
        rows = [
            {
                "key": entry["key"],
                **{side: text_of(entry[side]) for side in SIDES},
                "is_equal": entry["first"] == entry["second"],
            }
            for entry in entries
            # Of what never happened nothing is said.
            if entry["population"] == name and any(entry[side] for side in SIDES)
        ]
        yield from _compared(rows, look, labels, title=f"PBT of {name}")


def _standings(document: Document, look: Look, labels: Sequence[str]) -> Iterator[RenderableType]:
    from rich.text import Text

    entries = [
        entry
        for key in ("champions", "standings")
        for entry in cast("Sequence[Row]", document[key])
    ]
    columns = [Column(key="key", title=" ", is_label=True, is_right=False)]
    for side, label in zip(SIDES, labels, strict=True):
        columns += [
            Column(
                key=f"{side}.player", title=label, show=look.name, is_label=True, is_right=False
            ),
            # Labels, because a line about what is constant would not say of which run.
            Column(key=f"{side}.rating", title="rating", show=whole, is_label=True),
            Column(key=f"{side}.95%", title="95%", is_label=True),
            Column(key=f"{side}.agent_steps", title="steps", show=steps, is_label=True, drop=1),
        ]
    for name in dict.fromkeys(text_of(entry["population"]) for entry in entries):
        own = [entry for entry in entries if text_of(entry["population"]) == name]
        shown = own if look.is_wide else [entry for entry in own if _is_top(entry, look)]
        title = f"standings of {name}, each run on its own scale"
        yield from table([_beside(entry) for entry in shown], columns, look, title=title)
        if hidden := len(own) - len(shown):
            yield Text(f"{hidden} more places hidden (--wide shows all)")


def _is_top(entry: Row, look: Look) -> bool:
    key = str(entry["key"])
    return not key.isdigit() or int(key) <= (look.limit or PLACES)


def _beside(entry: Row) -> Row:
    """Return an entry with the values of both runs in one row."""
    row = dict(entry)
    for side in SIDES:
        found = cast("Row", entry[side] or {})
        row |= {f"{side}.{key}": value for key, value in found.items()}
        row[f"{side}.95%"] = interval(found)
    return row


def _hyperparameters(
    document: Document, look: Look, labels: Sequence[str]
) -> Iterator[RenderableType]:
    for entry in cast("Sequence[Row]", document["champions"]):
        # Numbers of one champion alone are no difference.
        if entry["first"] is None or entry["second"] is None:
            continue
        values = [cast("Row", cast("Row", entry[side])["hyperparameters"]) for side in SIDES]
        rows = [
            {
                "key": key,
                **{side: text_of(one.get(key)) for side, one in zip(SIDES, values, strict=True)},
                "is_equal": values[0].get(key) == values[1].get(key),
            }
            for key in dict.fromkeys((*values[0], *values[1]))
        ]
        title = f"hyperparameters of the champions of {text_of(entry['population'])}"
        yield from _compared(rows, look, labels, title=title)


def _opponents(document: Document, look: Look, labels: Sequence[str]) -> Iterator[RenderableType]:
    entries = cast("Sequence[Row]", document["opponents"])
    columns = [Column(key="key", title="opponent", is_label=True, is_right=False)]
    for side, label in zip(SIDES, labels, strict=True):
        columns += [
            Column(key=f"{side}.score", title=label, is_label=True),
            Column(key=f"{side}.95%", title="95%", is_label=True),
            Column(key=f"{side}.matches", title="matches", is_label=True, drop=1),
            Column(key=f"{side}.rating", title=f"{label} rating", is_label=True, drop=2),
        ]
    for name in dict.fromkeys(text_of(entry["population"]) for entry in entries):
        own = [entry for entry in entries if text_of(entry["population"]) == name]
        title = f"scores of the champions of {name} against bots of both runs"
        yield from table([_result(entry) for entry in own], columns, look, title=title)


def _result(entry: Row) -> Row:
    row = {"key": entry["key"]}
    for side in SIDES:
        found = cast("Row", entry[side])
        low, high = (share(found[f"score_{end}"]) for end in ("low", "high"))
        row[f"{side}.score"] = share(found["score"])
        row[f"{side}.95%"] = "-" if found["score"] is None else f"{low}..{high}"
        row[f"{side}.matches"] = steps(found["matches"])
        # That of the anchor is 0 in each run.
        row[f"{side}.rating"] = None if entry["key"] == RANDOM_BOT else whole(found["rating"])
    return row


def _compared(
    rows: Sequence[Row], look: Look, labels: Sequence[str], *, title: str
) -> Iterator[RenderableType]:
    """Yield a table of what differs, and a line of what is the same in both runs.

    Args:
        rows: Rows with a text of each run; ``is_equal`` is about the values, of which texts show
            three digits.
        look: Room for the table.
        labels: Names of the runs.
        title: Line above it.
    """
    from rich.text import Text

    different = [row for row in rows if not row["is_equal"]]
    yield from _pairs(different, look, labels, title=title)
    if equal := [f"{row['key']} {row['first']}" for row in rows if row["is_equal"]]:
        yield Text(f"the same in both: {', '.join(equal)}")


def _pairs(
    rows: Sequence[Row], look: Look, labels: Sequence[str], *, title: str
) -> Iterator[RenderableType]:
    """Yield a table of a key and a text of each run, in several lines where need be.

    Without rows the title is all.
    """
    keys = [_broken(str(row["key"]), look) for row in rows]
    used = max((len(line) for key in keys for line in key.splitlines()), default=0)
    # What the keys and two gaps leave.
    room = (look.width - used) // 2 - GAP
    texts = [
        cut_apart([str(row[side]) for side in SIDES], lambda text: look.cut(text, MAX_VALUE))
        for row in rows
    ]
    wrapped = [
        {
            "key": key,
            **{side: _wrapped(text, room, look) for side, text in zip(SIDES, pair, strict=True)},
        }
        for key, pair in zip(keys, texts, strict=True)
    ]
    columns = [
        Column(key="key", title=" ", is_text=True, show=str),
        *(
            Column(key=side, title=label, is_text=True, show=str)
            for side, label in zip(SIDES, labels, strict=True)
        ),
    ]
    yield from table(wrapped, columns, look, title=title)


def cut_apart(texts: Sequence[str], cut: Callable[[str], str]) -> list[str]:
    """Return two texts that differ in few characters, in which they differ.

    Args:
        texts: Text of each run.
        cut: Function that shortens a text at its end, to `MAX_VALUE` characters or more.
    """
    short = [cut(text) for text in texts]
    if short[0] != short[1] or texts[0] == texts[1]:
        return short
    # Equal so far: what differs is further on.
    equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
    begin = max(equal - MAX_VALUE // 2, 0)
    return [cut(f"... {text[begin:]}") for text in texts]


def _broken(key: str, look: Look) -> str:
    """Return a dotted key in lines that end after a dot where they can."""
    if look.is_wide:
        return key
    lines = [""]
    for part in re.findall(r"[^.]*\.?", key):
        if lines[-1].strip() and len(lines[-1]) + len(part) > MAX_KEY:
            lines.append("  ")
        lines[-1] += part
    return "\n".join(_wrapped(line, MAX_KEY, look) for line in lines)


def _wrapped(text: str, width: int, look: Look) -> str:
    """Return a text in lines of at most so many characters, unless everything is shown."""
    if look.is_wide:
        return text
    return "\n".join(
        textwrap.wrap(text, max(width, 1), break_on_hyphens=False, drop_whitespace=False)
    )
