"""`arena league`: inspect a run while it goes on, after a crash, or after the end."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from ._output import console, print_json

View = Literal[
    "standings",
    "payoff",
    "lineage",
    "hyperparameters",
    "matches",
    "checkpoints",
    "events",
    "status",
]
Cell = object
WATCH_S = 2.0


def league(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    view: Annotated[View, typer.Argument(metavar="[VIEW]", help="What to show.")] = "standings",
    population: Annotated[str | None, typer.Option(help="Only this population.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show again every two seconds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated rows.")] = False,
) -> None:
    """Show the league: standings, payoff, lineage, hyperparameters, matches, checkpoints, events,
    status.
    """
    from arena.errors import ConfigError

    if as_json and as_csv:
        raise ConfigError("--json and --csv exclude each other")
    while True:
        document = _document(run, view, population)
        if as_json:
            print_json(document)
        elif as_csv:
            _print_csv(_rows(view, document))
        else:
            _print_table(view, document, clear=watch)
        if not watch:
            return
        time.sleep(WATCH_S)


def _document(run: Path, view: View, population: str | None) -> dict[str, object]:
    from arena.errors import ConfigError
    from populations.league.views import VIEWS, Inspection

    if not (run / "run.yaml").is_file():
        raise ConfigError(f"{run} is no run directory: it has no run.yaml")
    inspection = Inspection.open(run)
    try:
        known = dict.fromkeys(seat.population for seat in inspection.league.seats)
        if population is not None and population not in known:
            raise ConfigError(f"--population {population}: the run has {', '.join(known)}")
        return cast("dict[str, object]", VIEWS[view](inspection, population))
    finally:
        inspection.close()


def _rows(view: View, document: Mapping[str, object]) -> list[dict[str, Cell]]:
    """A document's main list as flat rows."""
    match view:
        case "standings":
            populations = cast("dict[str, list[dict[str, Cell]]]", document["populations"])
            return [
                {"population": name, **line}
                for name, lines in populations.items()
                for line in lines
            ]
        case "hyperparameters":
            policies = cast("dict[str, dict[str, Cell]]", document["policies"])
            return [{"policy": name, **values} for name, values in policies.items()]
        case "status":
            return [
                {"key": key, "value": value} for key, value in document.items() if key != "schema"
            ]
        case "matches":
            return cast("list[dict[str, Cell]]", document["tallies"])
        case "lineage":
            return cast("list[dict[str, Cell]]", document["policies"])
        case _:
            return cast("list[dict[str, Cell]]", document[view])


COLUMNS: dict[str, tuple[str, ...]] = {
    "standings": (
        "player",
        "rating",
        "95%",
        "matches",
        "wins",
        "draws",
        "losses",
        "return",
        "gen",
        "agent_steps",
        "parent",
        "state",
    ),
    "payoff": ("player", "opponent", "matches", "score"),
    "matches": ("sequence", "assignment", "kind", "seats", "matches", "mean_return", "mean_length"),
    "checkpoints": ("policy", "agent_steps", "generation", "learner_updates", "state", "key"),
    "events": ("sequence", "time", "kind", "subject", "why"),
}
WIDE = 160


def _print_table(view: View, document: Mapping[str, object], *, clear: bool) -> None:
    from rich.table import Table

    shorten = {"standings": _shown_standing, "events": _explained}.get(view)
    rows = _rows(view, document)
    columns = COLUMNS.get(view) or tuple(dict.fromkeys(key for row in rows for key in row))
    screen = console()
    if not screen.is_terminal:
        screen.width = WIDE
    if clear and screen.is_terminal:
        screen.clear()
    groups = dict.fromkeys(str(row.get("population", "")) for row in rows)
    for group in groups if view == "standings" else [None]:
        table = Table(title=f"{view} {group or ''}".strip(), title_justify="left")
        for column in columns:
            is_text = column in ("player", "opponent", "parent", "kind", "subject", "key", "state")
            table.add_column(column.replace("_", " "), no_wrap=is_text, overflow="fold")
        for row in rows:
            if group in (None, row.get("population")):
                shown = shorten(row) if shorten is not None else row
                table.add_row(*(_text(shown.get(column)) for column in columns))
        screen.print(table)


def _shown_standing(row: Mapping[str, Cell]) -> dict[str, Cell]:
    low, high = row["rating_low"], row["rating_high"]
    interval = f"{low:.0f}..{high:.0f}" if isinstance(low, float) else None
    return {**row, "95%": interval, "return": row["mean_return"], "gen": row["generation"]}


def _explained(row: Mapping[str, Cell]) -> dict[str, Cell]:
    why = "  ".join(
        f"{key}={_text(value)}"
        for key, value in row.items()
        if key not in ("sequence", "time", "kind", "subject")
    )
    return {**{key: row[key] for key in ("sequence", "time", "kind", "subject")}, "why": why}


def _text(value: Cell) -> str:
    from rich.markup import escape

    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 100 else f"{value:.0f}"
    printable = "".join(c for c in str(value) if c.isprintable())
    return escape(printable)


def _print_csv(rows: Iterable[Mapping[str, Cell]]) -> None:
    rows = list(rows)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.writer(sys.stdout)
    writer.writerow(columns)
    writer.writerows([_csv_cell(row.get(column)) for column in columns] for row in rows)


def _csv_cell(value: Cell) -> Cell:
    """A cell that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@"):
        return "'" + value
    return value
