"""Parts of charts: who reads them, axes, colours, labels, layers.

A specification names colours by expressions, and its configuration says which ones they are. Texts
of users and environments are values in rows, never names of fields and never part of an
expression, so whatever they contain is shown as it is. No specification has an address to load.

Source: Vega-Lite 6 (https://vega.github.io/vega-lite/docs/).

Tests: `tests/populations/views/test_charts.py`, `tests/populations/views/test_palette.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from populations.league.names import short_name
from populations.views.parts import Row as Row
from populations.views.texts import one_line

Rows = list[dict[str, Any]]
Spec = dict[str, Any]


class Colour(NamedTuple):
    """Colour on white, and on a dark page."""

    light: str
    dark: str


# Hues of Okabe and Ito. The first seven and grey are readable as text (4.5 to 1, WCAG 2.2), and
# colour-blind readers can tell the seven apart.
COLOURS = {
    "blue": Colour("#0072B2", "#56B4E9"),
    "orange": Colour("#BD4C07", "#E0682A"),
    "green": Colour("#1D7F5D", "#8FDCC0"),
    "purple": Colour("#8B3F7E", "#B57AA8"),
    "ochre": Colour("#6B4A06", "#FAC131"),
    "violet": Colour("#42208F", "#8577F0"),
    "brown": Colour("#3C2111", "#BC9E85"),
    # Less of what blue stands for.
    "pale": Colour("#4398CF", "#2E7DB8"),
    "grey": Colour("#6E7781", "#9AA5B1"),
    "paper": Colour("#FFFFFF", "#12161B"),
    # Paul Tol's muted colours, for areas.
    "area1": Colour("#332288", "#6655CC"),
    "area2": Colour("#88CCEE", "#88CCEE"),
    "area3": Colour("#44AA99", "#44AA99"),
    "area4": Colour("#117733", "#1E8A45"),
    "area5": Colour("#999933", "#999933"),
    "area6": Colour("#DDCC77", "#DDCC77"),
    "area7": Colour("#CC6677", "#CC6677"),
    "area8": Colour("#882255", "#B04070"),
    "area9": Colour("#AA4499", "#BB5FAC"),
}

PALETTE = ("blue", "orange", "green", "purple", "ochre", "violet", "brown")
"""Colours of what has a name, in their order."""

AREAS = tuple(name for name in COLOURS if name.startswith("area"))
"""Colours of areas, where `PALETTE` has too few."""

NUM_BEST = 5
"""Policies with a colour where there are more than colours."""

SCORES = ("#b35806", "#f1a340", "#f7f7f7", "#67a9cf", "#08519c")
"""Colours of scores from 0 to 1, told apart without red and green; even is white."""

HEIGHT, PANEL = 250, 130
"""Pixels (1/96 inch) of the height of a chart, and of a panel of many."""

MIDDLE = 220
"""Pixels of the width of each of two panels beside each other in a file."""

LABEL = 13
"""Distance of two lines of labels in pixels."""

MARGIN = 0.1
"""Part of the drawn range by which an interval that is open above goes past the others."""

COPIES = ("exploit", "immigrate")
"""Causes of a generation that begins with weights of another player."""

CONFIG: Spec = {
    # Each mark would have its values as a text beside them; the table has the figures.
    "aria": False,
    "view": {"stroke": None},
    # A page with another look has the other members.
    "params": [{"name": "colours", "value": {name: one.light for name, one in COLOURS.items()}}],
    "axis": {"titleFontWeight": "normal", "labelLimit": 170},
    "legend": {"orient": "bottom", "titleFontWeight": "normal", "symbolStrokeWidth": 0},
    "title": {"anchor": "start", "fontWeight": "normal", "frame": "group"},
}

STEPS: Spec = {"labelExpr": "format(datum.value, '~s')", "tickCount": 5}
"""Axis of agent steps."""


def paint(name: str) -> Spec:
    """Return a colour in a specification."""
    return {"expr": f"colours.{name}"}


def coloured(best_first: Sequence[str]) -> dict[str, str]:
    """Return the colours of the players that have one, by player."""
    if len(best_first) <= len(PALETTE):
        # Colours go by name, so that a policy keeps its own.
        return dict(zip(sorted(best_first), PALETTE, strict=False))
    return dict(zip(best_first[:NUM_BEST], PALETTE, strict=False))


# A stroke through a cell that has no score.
HATCH: Spec = {"shape": "M-1,1L1,-1", "color": paint("grey"), "size": 60, "strokeWidth": 0.7}
DOTS: Spec = {"filled": True, "size": 45, "opacity": 1}

TITLES = {"x": "from", "x2": "to", "y": "value", "row": "player", "column": "opponent"}


MAX_NAME = 24
"""Characters of a label."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Page or file that a chart is for.

    Attributes:
        populations: Names of the run's populations; a single one is left out of players' names.
        href: Address of a player's page; empty: it has none.
        versus: Address of what two players have played; empty: there is none.
        width: Pixels of a plot; None: those of the page, which tells more where it is pointed at.
        colours: Colours of players, the same in all charts; those of others are free.
    """

    populations: Sequence[str]
    href: Callable[[str], str] = lambda player: ""
    versus: Callable[[str, str], str] = lambda player, opponent: ""
    width: int | None = None
    colours: Mapping[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """Return any text as a label: of one line, and short."""
        # The text is cut twice: what controls or turns round text is written longer than it was.
        return one_line(one_line(text[: 4 * MAX_NAME]), max_chars=MAX_NAME)

    def player(self, player: str) -> str:
        """Return a player's name as a label."""
        return self.text(short_name(player, populations=self.populations))

    def most(self, page: int, file: int) -> int:
        """Return the limit that holds for this reader."""
        return page if self.width is None else file

    def link(self, player: str) -> dict[str, str]:
        """Return the part of a row by which it leads to a player's page."""
        return linked(self.href(player))

    def coloured(self, best_first: Sequence[str]) -> dict[str, str]:
        """Return the colours of the players of a chart that have one, the best player first.

        No two of them have the same; all others are grey.
        """
        if not self.colours:
            return coloured(best_first)
        free = [name for name in PALETTE if name not in self.colours.values()]
        strangers = [player for player in best_first if player not in self.colours]
        known = {**self.colours, **dict(zip(strangers, free, strict=False))}
        first = {known[one]: one for one in reversed(best_first) if known.get(one) in PALETTE}
        return {player: colour for colour, player in first.items()}

    def colour(self, name: str) -> str:
        """Return a colour in an SVG; a page chooses its member."""
        return f"var(--colour-{name})" if self.width is None else COLOURS[name].light

    def framed(self, title: str) -> tuple[str, int]:
        """Return the title of a panel's axis, and its height: in a file its name is above it."""
        return (title, HEIGHT) if self.width is None else ("", PANEL)

    def panel(self, spec: Spec, height: float) -> Spec:
        """Return one of many charts of a view, two of which are beside each other in a file."""
        return self.sized(spec, height, width=self.width and MIDDLE)

    def sized(self, spec: Spec, height: float, *, width: int | None = None) -> Spec:
        """Return a chart of one view, whole, as wide as asked for."""
        size: Spec = {"width": width or self.width, "height": round(height)}
        if size["width"] is None:
            fit = {"type": "fit-x", "contains": "padding"}
            size = {**size, "width": "container", "autosize": fit}
        return {**size, **spec, "config": CONFIG}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Vertical axis whose ends are known, so that labels can be placed beside it.

    Attributes:
        title: Its title.
        low: Value at its lower end.
        high: Value at its upper end.
        scale: ``linear``, ``log``, or ``complement``: logarithmic in the distance to 1.
        categories: Labels of the values 0, 1, ... in place of numbers.
    """

    title: str
    low: float
    high: float
    scale: str = "linear"
    categories: Sequence[str] = ()

    @classmethod
    def around(cls, title: str, values: Iterable[float], *, scale: str = "linear") -> Axis:
        """Return an axis with a little room around values."""
        known = list(values) or [0.0]
        low, high = min(known), max(known)
        if scale == "linear":
            room = 0.04 * (high - low) or 0.04 * abs(high) or 1.0
            return cls(title=title, low=low - room, high=high + room)
        ratios = (low, high) if scale == "log" else (1.0 - high, 1.0 - low)
        ends = _rounded(ratios[0], up=False), _rounded(ratios[1], up=True)
        if ends[0] == ends[1]:
            ends = ends[0] / 2.0, ends[1] * 2.0
        if scale == "complement":
            ends = 1.0 - ends[1], 1.0 - ends[0]
        return cls(title=title, low=ends[0], high=ends[1], scale=scale)

    def place(self, value: float) -> float:
        """Return how far above the lower end a value is, as a share of the axis."""
        ends = [self.drawn(one) for one in (self.low, value, self.high)]
        if self.scale != "linear":
            ends = [math.log(one) for one in ends]
        return (ends[1] - ends[0]) / (ends[2] - ends[0])

    def drawn(self, value: float) -> float:
        """Return a value as rows have it, or the value of what rows have."""
        # Vega has no scale that is a complement.
        return float(f"{1.0 - value:.9g}") if self.scale == "complement" else value

    def encoding(self, field: str = "y") -> Spec:
        """Return the encoding of its values."""
        ends = sorted((self.drawn(self.low), self.drawn(self.high)))
        encoding = quantity(field, self.title or None, domain=ends)
        if self.scale != "linear":
            is_log = self.scale == "log"
            encoding["scale"] = {"type": "log", "domain": ends, "reverse": not is_log}
            shown = "format(datum.value, '.4~g')" if is_log else "format(1 - datum.value, '.6~g')"
            encoding["axis"] = {"values": _round_numbers(*ends), "labelExpr": shown}
        if self.categories:
            # Their labels are a layer: texts of users are no part of an expression.
            encoding["axis"] = dict.fromkeys(("labels", "ticks", "grid", "domain"), False)
        return encoding


def upper_ends(lines: Sequence[Row]) -> list[float | None]:
    """Return the upper end of each interval as it is drawn; None where there is none.

    Args:
        lines: Players or points with a rating and its interval, as documents have them.
    """
    keys = ("rating", "rating_low", "rating_high")
    known = [value for line in lines for key in keys if isinstance(value := line[key], int | float)]
    top = max(known, default=0.0) + MARGIN * (max(known, default=0.0) - min(known, default=0.0))
    return [top if line.get("open") else line["rating_high"] for line in lines]


def spread(wanted: Sequence[float], *, gap: float) -> list[float]:
    """Return places near the wanted ones, in their order and at least a gap apart.

    Groups of neighbours that are too near are spread about their middle.
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    groups: list[list[int]] = []
    middles: list[float] = []
    for place in order:
        group, middle = [place], wanted[place]
        # Two groups that overlap become one, which may overlap the one before.
        while groups and middle - middles[-1] < gap * (len(groups[-1]) + len(group)) / 2.0:
            last = groups.pop()
            weight = middles.pop() * len(last) + middle * len(group)
            group = last + group
            middle = weight / len(group)
        groups.append(group)
        middles.append(middle)
    places = [0.0] * len(wanted)
    for group, middle in zip(groups, middles, strict=True):
        for index, place in enumerate(group):
            places[place] = middle + gap * (index - (len(group) - 1) / 2.0)
    return places


def unique(labels: Sequence[str]) -> list[str]:
    """Return labels that differ: two names may be the same when they are cut."""
    seen: dict[str, int] = {}
    made = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        made.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return made


def rounded(value: float | None, digits: int = 1) -> float | None:
    """Return a number with as many digits as can be seen."""
    return None if value is None else round(value, digits)


def linked(href: str) -> dict[str, str]:
    """Return the part of a row by which it leads somewhere."""
    return {"href": href} if href else {}


def layer(rows: Rows, mark: str, encoding: Spec, **look: object) -> Spec:
    """Return a layer of marks, one for each row."""
    return {"data": {"values": rows}, "mark": {"type": mark, **look}, "encoding": encoding}


def quantity(
    field: str, title: str | None, *, domain: Sequence[float] | None = None, **axis: object
) -> Spec:
    """Return the encoding of a number by a place."""
    scale = {"zero": False} if domain is None else {"domain": list(domain), "nice": False}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def names(field: str, domain: Sequence[str], title: str | None = None, **axis: object) -> Spec:
    """Return the encoding of a name by a place, in the order of a list."""
    bare = {"ticks": False, "domain": False, "grid": False, **axis}
    scale = {"domain": list(domain)}
    kind: Spec = {"field": field, "type": "nominal", "sort": None}
    return {**kind, "title": title, "scale": scale, "axis": bare}


def look(field: str, domain: Sequence[str], values: Sequence[str], **legend: object) -> Spec:
    """Return the encoding of a name by a colour or shape; without anything about it, no legend."""
    shown = [paint(value) if value in COLOURS else value for value in values]
    scale = {"domain": list(domain), "range": shown}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend or None}


def score_colour(title: str) -> Spec:
    """Return the encoding of a score from 0 to 1 by a colour."""
    scale = {"domain": [0, 0.25, 0.5, 0.75, 1], "range": list(SCORES)}
    legend = {"title": title, "gradientLength": 160, "values": [0, 0.5, 1]}
    return {"field": "score", "type": "quantitative", "scale": scale, "legend": legend}


def tip(**formats: str) -> Rows:
    """Return what is told where a mark is pointed at: fields with their formats."""
    return [
        {
            "field": field,
            "title": TITLES.get(field, field),
            **({"type": "quantitative", "format": form} if form else {"type": "nominal"}),
        }
        for field, form in formats.items()
    ]


def _round_numbers(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten from low to high."""
    first, last = math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1
    numbers = [float(f"{digit}e{power}") for power in range(first, last + 1) for digit in (1, 2, 5)]
    return [one for one in numbers if low * 0.999999 <= one <= high * 1.000001]


def _rounded(value: float, *, up: bool) -> float:
    """Return the next of the numbers 1, 2 and 5 times a power of ten."""
    near = _round_numbers(value / 10.0, value * 10.0)
    if up:
        return min(one for one in near if one >= value * 0.999999)
    return max(one for one in near if one <= value * 1.000001)
