"""Family tree of policies as one SVG, for a page and for a file: lanes, generations and copies.

Everything has the place that its agent steps give it, as a part of the width, so that the tree fits
any page; texts of users are escaped, and no part has a style or a script.

Tests: `tests/populations/views/test_family_tree.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from arena.drawings.picture import tag
from populations.league.names import compact

from .curves import with_ends
from .parts import COPIES, Reader, Row

LANE, TOP, BOTTOM = 30, 14, 40
"""Pixels of a lane, above the first one, and below the last one."""

LEFT, RIGHT = 62, 44
"""Pixels of names at the left of a page, and of ratings at the right."""

COPY, GAIN, BIG_GAIN, LOSS, NEITHER = "purple", "pale", "blue", "orange", "grey"
"""Colours of copies, and of generations by what they gained."""

BEST_COPY = "currentColor"
MIN_SHARE = 0.05
"""Share of the width from which on a generation has room for the Elo that it gained."""

Place = Callable[[float], str]


def family_tree(populations: Sequence[Sequence[Row]], document: Row, reader: Reader) -> str:
    """Draw generations as bars in the lanes of their policies, and copies as arrows between lanes.

    A bar is blue where Elo was gained and orange where it was lost. Copies that the best policy of
    a population goes back to stand out.

    Args:
        populations: Policies of each population with ``policy`` and ``rating``, the best first.
        document: Row of the view `lineage`, each generation with an end or going on.
        reader: Page, or file with its pixels between names and ratings.

    Returns:
        A whole SVG without scripts. That of a page has no width, and needs the margins `LEFT` and
        `RIGHT`.
    """
    rows = [row for rows in populations for row in rows]
    lanes = {row["policy"]: lane for lane, row in enumerate(rows)}
    ends = {row["policy"]: row["agent_steps"] for row in document["policies"]}
    every = with_ends(document["generations"], ends)
    bars = [line for line in every if line["policy"] in lanes]
    last = max((line["agent_steps_end"] for line in bars), default=0) or 1

    width = reader.width

    def place(steps: float) -> str:
        share = steps / last
        return f"{share:.2%}" if width is None else f"{share * width:.1f}"

    height = TOP + LANE * len(rows) + BOTTOM
    # A page has margins of its own.
    names = [reader.player(row["policy"]) for row in rows]
    left = LEFT if width is None else max(LEFT, 7 * max(map(len, names), default=0))
    drawn = [
        *_axis(place, last, height, reader),
        *_copies(document, lanes, [own[0]["policy"] for own in populations if own], place, reader),
        *(part for bar in _bars(bars, lanes, last, place, reader) for part in bar),
        *(part for row in rows for part in _ends(row, lanes[row["policy"]], reader, left)),
    ]
    size = 'width="100%"'
    if width is not None:
        drawn.append(_legend(height, reader))
        height += LANE
        whole = left + width + RIGHT
        size = f'width="{whole}" viewBox="{-left} 0 {whole} {height}"'
    heads = _head("copy", reader.colour(COPY)) + _head("best", BEST_COPY)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} height="{height}" font-size="12">'
        f"<defs>{heads}</defs>{''.join(drawn)}</svg>"
    )


def _y(lane: int) -> int:
    return TOP + LANE * lane + LANE // 2


def _head(name: str, colour: str) -> str:
    return (
        f'<marker id="head-{name}" markerWidth="6" markerHeight="6" refX="5" refY="3" '
        f'orient="auto"><path d="M0,0L6,3L0,6z" fill="{colour}"/></marker>'
    )


def _text(content: str, **attributes: object) -> str:
    return tag("text", escape(content), fill="currentColor", **attributes)


def _linked(href: str, part: str) -> str:
    return tag("a", part, href=href) if href else part


def _axis(place: Place, last: int, height: int, reader: Reader) -> list[str]:
    # The next of 1, 2 and 5 times a power of ten, so that about five fit.
    power = 10.0 ** math.floor(math.log10(last / 5))
    step = power * next(one for one in (1, 2, 5, 10) if one * power >= last / 5)
    parts = []
    for tick in range(int(last / step) + 1):
        at = place(tick * step)
        ends: dict[str, Any] = {"x1": at, "x2": at, "y1": TOP - 8, "y2": height - BOTTOM + 2}
        anchor = "middle" if tick else "start"
        parts += [
            tag("line", **ends, stroke=reader.colour(NEITHER), stroke_opacity=0.35),
            _text(compact(round(tick * step)), x=at, y=height - BOTTOM + 16, text_anchor=anchor),
        ]
    return [*parts, _text("agent steps", x=place(last / 2), y=height - 8, text_anchor="middle")]


def _legend(y: int, reader: Reader) -> str:
    """Return the legend of colours, for a chart in a file: pages have one above the chart."""
    named = ((BIG_GAIN, "gained Elo"), (LOSS, "lost"), (NEITHER, "neither"), (COPY, "copy"))
    entries = (
        *((reader.colour(name), text) for name, text in named),
        (BEST_COPY, "copy that the best policy goes back to"),
    )
    parts, x = [], 0
    for colour, text in entries:
        parts.append(tag("rect", x=x, y=y + 4, width=12, height=7, fill=colour))
        parts.append(_text(text, x=x + 17, y=y + 12))
        x += 34 + 6 * len(text)
    return "".join(parts)


def _bars(
    bars: Sequence[Row],
    lanes: Mapping[str, int],
    last: int,
    place: Place,
    reader: Reader,
) -> list[list[str]]:
    """Return the bar of each generation with what it gained."""
    most = max((abs(line.get("elo_gain") or 0.0) for line in bars), default=0.0) or 1.0
    parts = []
    for line in bars:
        begin, end = line["agent_steps_begin"], line["agent_steps_end"]
        y = _y(lanes[line["policy"]])
        gain = line.get("elo_gain")
        share = 0.0 if gain is None else gain / most
        colour = NEITHER
        if abs(share) >= MIN_SHARE:
            colour = LOSS if share < 0.0 else BIG_GAIN if share > 0.5 else GAIN
        title = tag("title", escape(_told(line, reader)))
        bar = tag(
            *("line", title),
            x1=place(begin),
            x2=place(max(end, begin + last / 400)),
            y1=y,
            y2=y,
            stroke=reader.colour(colour),
            stroke_width=7,
        )
        own = [_linked(reader.href(line["policy"]), bar)]
        if line["generation"] > 0:
            mark = reader.colour(COPY) if line["cause"] in COPIES else "currentColor"
            at = place(begin)
            own.append(tag("line", x1=at, x2=at, y1=y - 5, y2=y + 5, stroke=mark, stroke_width=1.5))
        room = (end - begin) / last
        if gain is not None and room > MIN_SHARE:
            # A narrow page has no room for it.
            small = {"class_": "small"} if room < 2.5 * MIN_SHARE else {}
            middle = {"x": place((begin + end) / 2), "y": y - 6, "text_anchor": "middle"}
            own.append(_text(f"{gain:+z.0f}", **middle, font_size=10, **small))
        parts.append(own)
    return parts


def _told(line: Row, reader: Reader) -> str:
    """Return what is told where a generation is pointed at."""
    values = {
        name: f"{value:.4g}" if isinstance(value, float) else str(value)
        for name, value in line["hyperparameters"].items()
    }
    changed = ", ".join(f"{reader.text(name)} {reader.text(one)}" for name, one in values.items())
    gain = line.get("elo_gain")
    return (
        f"{reader.player(line['policy'])} generation {line['generation']}, "
        f"{reader.text(line['cause'])}, {line['agent_steps_begin']:,} to "
        f"{line['agent_steps_end']:,} agent steps"
        + ("" if gain is None else f", {gain:+z.0f} Elo")
        + f"\n{changed}"
    )


def _copies(
    document: Row,
    lanes: Mapping[str, int],
    best: Sequence[str],
    place: Place,
    reader: Reader,
) -> list[str]:
    """Return an arrow for each copy, from the donor to the copier; those of the best on top."""
    line = {one for policy in best for one in _line_of(policy, document["generations"])}
    found = []
    for event in document["exploits"]:
        if event["subject"] not in lanes or event["donor"] not in lanes:
            continue
        is_best = (event["subject"], event["generation"]) in line
        title = (
            f"{reader.player(event['subject'])} copied {reader.player(event['donor'])} at "
            f"{event['donor_agent_steps']:,} agent steps"
        )
        y1, y2 = _y(lanes[event["donor"]]), _y(lanes[event["subject"]])
        # Arrows begin and end at the edges of the bars.
        inset = 4 if y2 > y1 else -4
        arrow = tag(
            *("line", tag("title", escape(title))),
            x1=place(event["donor_agent_steps"]),
            x2=place(event["agent_steps"]),
            y1=y1 + inset,
            y2=y2 - inset,
            stroke=BEST_COPY if is_best else reader.colour(COPY),
            stroke_width=1.8 if is_best else 1.1,
            marker_end=f"url(#head-{'best' if is_best else 'copy'})",
        )
        found.append((is_best, arrow))
    return [arrow for _, arrow in sorted(found, key=lambda one: one[0])]


def _line_of(policy: str, generations: Sequence[Row]) -> set[tuple[str, int]]:
    """Return the generations that a policy's weights go back to, by policy and number."""
    rows = {row["entrant"]: row for row in generations}
    own = [row for row in generations if row["policy"] == policy]
    row: Any = max(own, key=lambda row: row["generation"], default=None)
    line: set[tuple[str, int]] = set()
    # A row of a repaired journal may name itself.
    while row is not None and (row["policy"], row["generation"]) not in line:
        line.add((row["policy"], row["generation"]))
        row = rows.get(row["parent"])
    return line


def _ends(row: Row, lane: int, reader: Reader, left: int) -> list[str]:
    """Return a policy's name before its lane, and its rating behind it."""
    y = _y(lane) + 4
    name = _text(reader.player(row["policy"]), x=-left, y=y)
    parts = [_linked(reader.href(row["policy"]), name)]
    if row.get("rating") is not None:
        at = reader.width or "100%"
        parts.append(_text(f"{row['rating']:z.0f}", x=at, y=y, dx=6))
    return parts
