"""`arena league`: inspect a run while it goes on, after a crash, or after the end.

Tests: `tests/tools/players/test_exploitability.py`, `tests/integration/test_launch.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from arena.errors import ConfigError
from populations.views.parts import Document
from populations.views.views import VIEWS

from ..terminal.options import AsJson, Code, OnlyPopulation, RunDirectory, Trust, optional
from ..terminal.output import print_json, say
from .documents import full_name, inspected, opened_views, view_named
from .keys import has_keys
from .narrowing import checked_kinds, limited, since_time
from .tables import Shown, print_view, warning_lines, write_csv
from .watch import Query, watch_views

WATCH_S = 2.0

UNDRAWN = ("--csv", "--watch", "--seats", "--exploitability", "--optuna")
"""Options that a plot excludes."""

OF_ALL = ("--json", "--csv", "--watch", "--plot", "--trust", "--code")
"""Options that belong to no view."""


ViewName = Annotated[str, typer.Argument(metavar="VIEW", help=f"View to show: {', '.join(VIEWS)}.")]
Operand = Annotated[
    str | None,
    typer.Argument(
        metavar="PLAYER|RUN2",
        help="Player of the view why, or second run of the view diff.",
        show_default=False,
    ),
]
Watch = Annotated[
    bool, typer.Option("--watch", help="Refresh every two seconds; keys change the view, q ends.")
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print comma-separated rows.")]
Plot = Annotated[
    Path | None,
    optional("FILE.png|svg|pdf", "File to draw the view into, for a paper; needs vl-convert."),
]
Metrics = Annotated[
    list[str] | None,
    optional("NAME", "Metric to show, with metrics; may be repeated. Default: all."),
]
Wide = Annotated[bool, typer.Option("--wide", help="Show all columns, full names and long texts.")]
Limit = Annotated[
    int | None,
    optional(
        "N",
        "Most rows of a table. Default: what the terminal's height takes, else all.",
        least=1,
    ),
]
Kinds = Annotated[
    list[str] | None,
    optional("KIND", "Kind of events to show, with events; may be repeated. Default: decisions."),
]
OnlyPlayer = Annotated[
    str | None,
    optional("PLAYER", "Player that rows must name (p003, p003@4.628M), with events and payoff."),
]
Since = Annotated[
    str | None,
    optional(
        "TIME", "Time of the first event (UTC), or a time ago such as 10m or 2h, with events."
    ),
]
Seats = Annotated[
    bool, typer.Option("--seats", help="Show each pair of seats by itself, with payoff.")
]
Measures = Annotated[
    bool,
    typer.Option(
        "--exploitability",
        help="Measure exploitability in small two-player zero-sum games, with standings.",
    ),
]
Studies = Annotated[
    Path | None,
    optional("FILE.db", "Optuna study of all generations to write, with hyperparameters."),
]


def league(
    run: RunDirectory,
    view: ViewName = "standings",
    operand: Operand = None,
    population: OnlyPopulation = None,
    watch: Watch = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    plot: Plot = None,
    metric: Metrics = None,
    wide: Wide = False,
    limit: Limit = None,
    kind: Kinds = None,
    player: OnlyPlayer = None,
    since: Since = None,
    seats: Seats = False,
    exploitability: Measures = False,
    optuna: Studies = None,
    trust: Trust = False,
    code: Code = None,
) -> None:
    """Show a run: its players, their results, its events and its state."""
    values = {
        "--json": as_json,
        "--csv": as_csv,
        "--watch": watch,
        "--seats": seats,
        "--exploitability": exploitability,
        "--optuna": optuna,
        "--metric": metric,
        "--kind": kind,
        "--since": since,
        "--player": player,
        "--limit": limit,
        "--plot": plot,
        "--trust": trust,
        "--code": code,
    }
    # An option without an effect is refused instead of ignored.
    _check(view, operand, [name for name, one in values.items() if one not in (None, False, [])])
    if optuna is not None:
        _write_studies(run, optuna, population, as_json=as_json)
        return
    if plot is not None:
        _plot(run, view, plot, population, names=metric or None, as_json=as_json)
        return
    query = Query(
        run=run,
        population=population,
        player=None if player is None else full_name(run, player, population=population),
        since=None if since is None else since_time(since),
        operand=operand,
        given={"by_seats": seats, "names": metric or None, "kinds": checked_kinds(kind)},
        measures=exploitability,
        trust=trust,
    )
    shown = Shown(name=view, limit=limit, is_wide=wide, all_kinds=bool(kind))
    _show(query, shown, watch=watch, as_json=as_json, as_csv=as_csv)


def _show(query: Query, shown: Shown, *, watch: bool, as_json: bool, as_csv: bool) -> None:
    """Show a view, again and again to who watches."""
    if watch and not (as_json or as_csv) and has_keys():
        watch_views(query, shown)
        return
    while True:
        opened = query.read(shown.name)
        if as_json or as_csv:
            _print_data(opened.document, shown.name, limit=shown.limit, as_json=as_json)
        else:
            said = warning_lines(query.run, shown.name, opened.document)
            print_view(shown, opened, warnings=said)
        if not watch:
            return
        time.sleep(WATCH_S)


def _check(view: str, operand: str | None, given: Sequence[str]) -> None:
    """Refuse a view that is none, and an option or argument that would change nothing.

    Args:
        view: View that was asked for.
        operand: Last argument.
        given: Options that were given.

    Raises:
        ConfigError: If there is one, or an argument is missing.
    """
    if "--json" in given and "--csv" in given:
        raise ConfigError("--json and --csv exclude each other")
    for name in UNDRAWN:
        if "--plot" in given and name in given:
            raise ConfigError(f"--plot and {name} exclude each other")
    for name in ("--trust", "--code"):
        if name in given and "--exploitability" not in given:
            raise ConfigError(f"{name} belongs to --exploitability: no view imports code")
    needed = view_named(view).operand
    for option in (name for name in given if name not in OF_ALL):
        views = [
            name
            for name, one in VIEWS.items()
            if (one.limits if option == "--limit" else option in one.takes)
        ]
        if view not in views:
            belongs = f"the view {views[0]}" if len(views) == 1 else f"the views {', '.join(views)}"
            raise ConfigError(f"{option} belongs to {belongs}, not to {view}")
    if needed is not None and operand is None:
        raise ConfigError(
            f"the view {view} needs a {needed.noun}: arena league RUN {view} {needed.example}"
        )
    if operand is not None and needed is None:
        raise ConfigError(f"the view {view} takes no further argument, but {operand!r} was given")


def _print_data(document: Document, view: str, *, limit: int | None, as_json: bool) -> None:
    """Print a document for programs: with all rows, unless a limit is given."""
    if limit is not None:
        document, _ = limited(document, VIEWS[view], limit)
    if as_json:
        print_json(document)
    else:
        write_csv(VIEWS[view].rows(document), sys.stdout)


def _plot(
    run: Path,
    view: str,
    file: Path,
    population: str | None,
    *,
    names: Sequence[str] | None,
    as_json: bool,
) -> None:
    """Draw a view into a file, and say which."""
    from ..show.chart_files import find_figure, write_figure

    # The file is checked before the run is read, which may take long.
    figure = find_figure(view, file)
    opened = opened_views(
        run, figure.documents, population, **VIEWS[view].arguments({"names": names})
    )
    documents = {name: one.document for name, one in zip(figure.documents, opened, strict=True)}
    write_figure(figure, documents, file, populations=opened[0].populations)
    if as_json:
        print_json({"run": str(run), "view": view, "file": str(file)})
        return
    say(f"{file}: plot of {view}")


def _write_studies(run: Path, file: Path, population: str | None, *, as_json: bool) -> None:
    """Write Optuna studies, and say which."""
    import optuna

    from populations.views.questions.study import UNIT, write_studies

    # Otherwise Optuna prints a line per study on standard error.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with inspected(run, population) as inspection:
        written = write_studies(inspection, file, population=population)
    if as_json:
        print_json({"run": str(run), "file": str(file), "studies": written})
        return
    for name, num_trials in written.items():
        say(
            f"{file}: study {name} with {num_trials} generations; "
            f"optuna-dashboard sqlite:///{file} shows it"
        )
    if written:
        say(
            f"values are {UNIT}; who begins untrained gains most, so compare generations of a "
            "similar agent_steps_begin"
        )
