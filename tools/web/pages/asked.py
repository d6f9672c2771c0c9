"""Request for a page: documents, links, and the chosen part of long tables.

Tests: `tests/tools/web/test_pages.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from populations.league.names import short_name

from ..content import Cell, Links, Row, Table, cell, page_name, shown

Line = Mapping[str, object]
Document = Mapping[str, object]

MAX_ROWS = 200
"""Rows of one page of a long table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Page that is asked for.

    Attributes:
        documents: Documents of the views that it needs, by view.
        links: Addresses of other pages.
        page: Name of the page in addresses.
        number: Part of its long table, from 1.
        query: Filters.
        populations: Names of the run's populations.
        others: Names of other runs, by the addresses of the differences to them.
    """

    documents: Mapping[str, Document]
    links: Links
    page: str
    number: int = 1
    query: Mapping[str, str] = field(default_factory=dict)
    populations: Sequence[str] = ()
    others: Mapping[str, str] = field(default_factory=dict)

    def short(self, player: object) -> str:
        """Return a player's name in few characters."""
        return shown(short_name(str(player), populations=self.populations))

    def player(self, player: object, *, anchor: str = "") -> Cell:
        """Return the cell of a player, with a link to its page."""
        if player is None:
            return cell(None)
        name = str(player)
        return Cell(
            text=self.short(name), href=self.links.player(name, anchor=anchor), title=shown(name)
        )

    def part(
        self,
        columns: Sequence[str],
        lines: Sequence[Line],
        make_row: Callable[[Line], Row],
        *,
        csv: str = "",
        size: int = MAX_ROWS,
    ) -> Table:
        """Return the asked part of a table; rows are made for that part only."""
        start = (self.number - 1) * size
        return Table(
            columns=columns,
            rows=[make_row(line) for line in lines[start : start + size]],
            total=len(lines),
            csv=f"{self.links.base}{csv}.csv" if csv else "",
            previous=self._numbered(self.number - 1) if self.number > 1 else "",
            following=self._numbered(self.number + 1) if start + size < len(lines) else "",
        )

    def _numbered(self, number: int) -> str:
        return self.links.page(self.page, number=number, **self.query)


def lines_of(document: Document, key: str) -> list[Line]:
    """Return a document's list of lines."""
    return cast("list[Line]", document[key])


def standing_lines(document: Document) -> dict[str, list[Line]]:
    """Return the lines of the standings by population."""
    return cast("dict[str, list[Line]]", document["populations"])


def names_of(standings: Document) -> dict[str, str]:
    """Return the names of the pages of all players that have one, by player."""
    found = {
        str(line["player"]): page_name(str(line["player"]), cast("str | None", line["weights"]))
        for lines in standing_lines(standings).values()
        for line in lines
        if line["kind"] != "bot"
    }
    return {player: name for player, name in found.items() if name}


def with_ends(generations: Sequence[Line], standings: Document) -> list[Line]:
    """Return generations, those that go on with the agent steps that they have reached."""
    steps = {
        line["player"]: line["agent_steps"]
        for lines in standing_lines(standings).values()
        for line in lines
    }
    return [
        line
        if line["agent_steps_end"] is not None
        else {**line, "agent_steps_end": steps.get(line["policy"], line["agent_steps_begin"])}
        for line in generations
    ]


def number(value: object) -> float | None:
    """Return a number of a document; None where it has none."""
    return float(value) if isinstance(value, int | float) else None


def interval(line: Line) -> str:
    """Return a rating's 95% interval as text."""
    low, high = number(line["rating_low"]), number(line["rating_high"])
    if low is not None and line.get("open"):
        return f"{low:z.0f}+"
    return "-" if low is None or high is None else f"{low:z.0f} to {high:z.0f}"


def ranks(line: Line) -> str:
    """Return the ranks that a player may have as text."""
    low, high = line["rank_low"], line["rank_high"]
    if low is None:
        return "-"
    return f"{low}" if low == high else f"{low} to {high}"


def best_policies(asked: Asked, population: str) -> list[str]:
    """Return the policies of a population, best rated first."""
    lines = standing_lines(asked.documents["standings"])[population]
    return [str(line["player"]) for line in lines if line["kind"] == "policy"]
