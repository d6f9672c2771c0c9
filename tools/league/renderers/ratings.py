"""Ratings over training: a line per policy with its curve, its best and its last rating."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from .look import Document, Look, Row, clock, steps
from .tables import Column, label, table

if TYPE_CHECKING:
    from rich.console import RenderableType

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-=+*%#"
COPIED, CHANGED = "c", "m"
CURVE = (16, 48)
"""Fewest and most characters of a curve."""


def ratings(document: Document, look: Look) -> Iterator[RenderableType]:
    """Yield a table per population, and the champions."""
    from rich.text import Text

    for name, lines in cast("Mapping[str, Sequence[Row]]", document["populations"]).items():
        points = [point for line in lines for point in _points(line)]
        if not points:
            yield Text(f"ratings of {name}: none yet; they need evaluation matches")
            continue
        low = min(cast("float", point["rating"]) for point in points)
        high = max(cast("float", point["rating"]) for point in points)
        most = max(cast("int", point["agent_steps"]) for point in points)
        # What the figures beside the curve leave.
        width = max(CURVE[0], min(CURVE[1], look.width - 64))
        rows = [
            _row(line, look, scale=(low, high), most=most, width=width)
            for line in lines
            if _points(line)
        ]
        rows.sort(key=lambda row: -cast("float", row["order"]))
        title = (
            f"ratings of {name} by one fit: curves from {low:z.0f} to {high:z.0f} over "
            f"{steps(most)} agent steps"
        )
        yield from table(rows, _columns(look), look, title=title)
        yield Text(f"{COPIED}: copied another policy   {CHANGED}: hyperparameters changed")
    yield from _champions(cast("Sequence[Row]", document.get("champions", ())), look)


def _points(line: Row) -> Sequence[Row]:
    return cast("Sequence[Row]", line["points"])


def _columns(look: Look) -> list[Column]:
    return [
        label("player", look),
        Column(key="curve", is_label=True, is_right=False, most=CURVE[1]),
        Column(key="first", is_label=True),
        Column(key="best", is_label=True),
        Column(key="at", is_label=True),
        Column(key="last", is_label=True),
        Column(key="generation", title="gen", is_label=True),
        Column(key="copies", is_label=True),
        Column(key="points", drop=1, is_label=True),
    ]


def _row(
    line: Row, look: Look, *, scale: tuple[float, float], most: int, width: int
) -> dict[str, object]:
    points = _points(line)
    first, last = points[0], points[-1]
    best = max(points, key=lambda point: cast("float", point["rating"]))
    causes = {point["generation"]: point["cause"] for point in points}
    return {
        "player": line["player"],
        "order": last["rating"],
        "curve": curve(points, scale=scale, most=most, width=width, is_ascii=look.is_ascii),
        "first": _with_error(first, look),
        "best": _with_error(best, look),
        "at": steps(best["agent_steps"]),
        "last": _with_error(last, look),
        "generation": last["generation"],
        "copies": sum(1 for cause in causes.values() if cause == "exploit"),
        "points": len(points),
    }


def _with_error(point: Row, look: Look) -> str:
    rating = cast("float", point["rating"])
    half = rating - cast("float", point["rating_low"])
    if point.get("open"):
        return f"{cast('float', point['rating_low']):z.0f}+"
    return f"{rating:z.0f}{'+-' if look.is_ascii else '±'}{half:z.0f}"


def curve(
    points: Sequence[Row],
    *,
    scale: tuple[float, float],
    most: int,
    width: int,
    is_ascii: bool = False,
) -> str:
    """Return a policy's ratings as a line of blocks over agent steps.

    Args:
        points: Points in the order of training.
        scale: Rating of the lowest and of the highest block.
        most: Agent steps of the last character.
        width: Number of characters.
        is_ascii: Whether blocks are ASCII characters.
    """
    blocks = ASCII_BLOCKS if is_ascii else BLOCKS
    low, high = scale
    drawn: list[str] = []
    generation = points[0]["generation"]
    for point in points:
        place = round(cast("int", point["agent_steps"]) / max(most, 1) * (width - 1))
        level = (cast("float", point["rating"]) - low) / max(high - low, 1e-9)
        block = blocks[min(int(level * len(blocks)), len(blocks) - 1)]
        # Without a rated checkpoint the one before it holds.
        drawn += [drawn[-1] if drawn and drawn[-1] in blocks else block] * (place - len(drawn))
        character = block
        if point["generation"] != generation:
            generation = point["generation"]
            character = COPIED if point["cause"] == "exploit" else CHANGED
        if len(drawn) <= place:
            drawn.append(character)
        elif drawn[place] in blocks:
            drawn[place] = character
        elif character == COPIED:
            drawn[place] = COPIED
    return "".join(drawn)


def _champions(spans: Sequence[Row], look: Look) -> Iterator[RenderableType]:
    """Yield who leads each population, since when, and how many led it before."""
    from rich.text import Text

    for name in dict.fromkeys(str(span["population"]) for span in spans):
        own = [span for span in spans if span["population"] == name]
        last = own[-1]
        until = "now" if last["until"] is None else f"{clock(last['until'])} UTC"
        before = f", after {len(own) - 1} changes" if len(own) > 1 else ""
        yield Text(
            f"champion of {name}: {look.name(last['player'])}, from {clock(last['since'])} UTC "
            f"until {until}{before}"
        )
