"""`arena league`: inspect a run while it goes on, after a crash, or after the end."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from ..terminal.output import console, print_json
from ..terminal.text import plain

if TYPE_CHECKING:
    from populations.inspection.views import Inspection
    from populations.records.rows import Json

View = Literal[
    "standings",
    "payoff",
    "calibration",
    "lineage",
    "hyperparameters",
    "matches",
    "checkpoints",
    "events",
    "status",
]
Cell = object
WATCH_S = 2.0
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""How a text begins that a spreadsheet takes for a formula."""


def league(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    view: Annotated[View, typer.Argument(metavar="[VIEW]", help="What to show.")] = "standings",
    population: Annotated[str | None, typer.Option(help="Only this population.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show again every two seconds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated rows.")] = False,
    seats: Annotated[
        bool, typer.Option("--seats", help="With payoff: each pair of seats by itself.")
    ] = False,
    exploitability: Annotated[
        bool,
        typer.Option(
            "--exploitability",
            help="With standings: measure it, in small two-player zero-sum games.",
        ),
    ] = False,
    optuna: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.db",
            help="With hyperparameters: write all generations as an Optuna study.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the league: standings, payoff, calibration, lineage, hyperparameters, matches,
    checkpoints, events, status.
    """
    from arena.errors import ConfigError

    if as_json and as_csv:
        raise ConfigError("--json and --csv exclude each other")
    if seats and view != "payoff":
        raise ConfigError(f"--seats belongs to the view payoff, not to {view}")
    if exploitability and view != "standings":
        raise ConfigError(f"--exploitability belongs to the view standings, not to {view}")
    if optuna is not None:
        if view != "hyperparameters":
            raise ConfigError(f"--optuna belongs to the view hyperparameters, not to {view}")
        _write_studies(run, optuna, population, as_json=as_json)
        return
    while True:
        if exploitability:
            _measure(run, population)
        document = _document(run, view, population, by_seats=seats)
        if as_json:
            print_json(document)
        elif as_csv:
            _print_csv(_rows(view, document))
        else:
            _print_table(view, document, clear=watch)
            if view in ("standings", "calibration"):
                _print_warnings(run, document)
        if not watch:
            return
        time.sleep(WATCH_S)


def _document(
    run: Path, view: View, population: str | None, *, by_seats: bool = False
) -> dict[str, object]:
    from populations.gc_pause import collector_paused
    from populations.inspection.views import VIEWS, payoff_view

    with collector_paused(), _inspection(run, population) as inspection:
        if by_seats:
            return cast("dict[str, object]", payoff_view(inspection, population, by_seats=True))
        return cast("dict[str, object]", VIEWS[view](inspection, population))


def _measure(run: Path, population: str | None) -> None:
    """Measure how exploitable the players are, once each; the run's directory keeps it."""
    from populations.config.run_file import learner_setup

    from ..players.exploitability import measure_run
    from ..players.game import Game

    with _inspection(run, population) as inspection:
        game = Game.of_setup(learner_setup(inspection.run_file, root=inspection.run_dir))
        measure_run(inspection, game, population=population)


@contextmanager
def _inspection(run: Path, population: str | None) -> Iterator[Inspection]:
    """A run that is read, and closed afterwards."""
    from arena.errors import ConfigError
    from populations.inspection.views import Inspection

    if not (run / "run.yaml").is_file():
        raise ConfigError(f"{run} is no run directory: it has no run.yaml")
    inspection = Inspection.open(run)
    try:
        known = dict.fromkeys(seat.population for seat in inspection.league.seats)
        if population is not None and population not in known:
            raise ConfigError(f"--population {population}: the run has {', '.join(known)}")
        yield inspection
    finally:
        inspection.close()


def _write_studies(run: Path, file: Path, population: str | None, *, as_json: bool) -> None:
    """Write Optuna studies, and say which."""
    import optuna

    from populations.inspection.study import write_studies

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with _inspection(run, population) as inspection:
        written = write_studies(inspection, file, population=population)
    if as_json:
        print_json({"run": str(run), "file": str(file), "studies": written})
        return
    for name, num_trials in written.items():
        console().print(
            f"{file}: study {name} with {num_trials} generations; "
            f"optuna-dashboard sqlite:///{file} shows it",
            soft_wrap=True,
        )


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
            from ..notices import alert_lines

            lines = alert_lines(cast("Mapping[str, Json]", document))
            shown = {**document, "alerts": "  ".join(lines) or None}
            return [{"key": key, "value": value} for key, value in shown.items() if key != "schema"]
        case "matches":
            return cast("list[dict[str, Cell]]", document["tallies"])
        case "lineage":
            return cast("list[dict[str, Cell]]", document["policies"])
        case _:
            return cast("list[dict[str, Cell]]", document[view])


COLUMNS: dict[str, tuple[str, ...]] = {
    "standings": (
        "player",
        "role",
        "rating",
        "95%",
        "matches",
        "wins",
        "draws",
        "losses",
        "return",
        "exploitability",
        "gen",
        "agent_steps",
        "parent",
        "state",
    ),
    "payoff": (
        "player",
        "seat",
        "opponent",
        "opponent_seat",
        "matches",
        "wins",
        "draws",
        "losses",
        "score",
        "mean_return",
    ),
    "calibration": (
        "player",
        "opponent",
        "matches",
        "score",
        "predicted",
        "deviations",
    ),
    "matches": (
        *("sequence", "assignment", "kind", "seats", "matches", "distinct"),
        *("mean_return", "mean_length"),
    ),
    "checkpoints": ("policy", "agent_steps", "generation", "learner_updates", "state", "key"),
    "events": ("sequence", "time", "kind", "subject", "why"),
}
WIDE = 160


def _print_table(view: View, document: Mapping[str, object], *, clear: bool) -> None:
    from rich.table import Table

    shorten = {"standings": _shown_standing, "events": _explained}.get(view)
    rows = _rows(view, document)
    columns = COLUMNS.get(view) or tuple(dict.fromkeys(key for row in rows for key in row))
    if view == "payoff":
        columns = tuple(name for name in columns if any(name in row for row in rows))
    if all(row.get("role") in (None, "main") for row in rows):
        columns = tuple(name for name in columns if name != "role")
    if all(row.get("exploitability") is None for row in rows):
        columns = tuple(name for name in columns if name != "exploitability")
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


def _print_warnings(run: Path, document: Mapping[str, object]) -> None:
    from ..notices import cyclic_warnings, misfit_warnings

    cyclicity = cast("dict[str, float | None]", document.get("cyclicity", {}))
    fits = cast("dict[str, dict[str, float]]", document["fit"])
    for warning in (*misfit_warnings(fits, run=run), *cyclic_warnings(cyclicity, run=run)):
        console().print(warning, markup=False, soft_wrap=True)


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
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 100 else f"{value:.0f}"
    return plain(str(value))


def _print_csv(rows: Iterable[Mapping[str, Cell]]) -> None:
    rows = list(rows)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.writer(sys.stdout)
    writer.writerow(columns)
    writer.writerows([_csv_cell(row.get(column)) for column in columns] for row in rows)


def _csv_cell(value: Cell) -> Cell:
    """A cell that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value[:1] in FORMULA:
        return "'" + value
    return value
