"""`arena league`: inspect a run while it goes on, after a crash, or after the end.

Tests: `tests/tools/players/test_exploitability.py`, `tests/integration/test_launch.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from ..terminal.options import AsJson, OnlyPopulation, RunDirectory
from ..terminal.output import console, print_json
from .documents import inspected, view_document, view_documents
from .tables import print_csv, print_view
from .views import VIEWS

if TYPE_CHECKING:
    ViewName = str
else:
    # typer reads the names from the Literal; mypy cannot, so it sees str above.
    ViewName = Literal[tuple(VIEWS)]

WATCH_S = 2.0


def league(
    run: RunDirectory,
    view: Annotated[
        ViewName, typer.Argument(metavar="[VIEW]", help=f"View to show: {', '.join(VIEWS)}.")
    ] = "standings",
    population: OnlyPopulation = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every two seconds.")] = False,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated rows.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png|svg|pdf",
            help="File to draw the view into, for a paper; needs matplotlib.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Metric to show, with metrics; may be repeated. Default: all.",
            show_default=False,
        ),
    ] = None,
    seats: Annotated[
        bool, typer.Option("--seats", help="Show each pair of seats by itself, with payoff.")
    ] = False,
    exploitability: Annotated[
        bool,
        typer.Option(
            "--exploitability",
            help="Measure exploitability in small two-player zero-sum games, with standings.",
        ),
    ] = False,
    optuna: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.db",
            help="Optuna study of all generations to write, with hyperparameters.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show a run: its players, their results, its events and its state."""
    from arena.errors import ConfigError

    if as_json and as_csv:
        raise ConfigError("--json and --csv exclude each other")
    if plot is not None:
        others = {
            "--csv": as_csv,
            "--watch": watch,
            "--seats": seats,
            "--exploitability": exploitability,
            "--optuna": optuna is not None,
        }
        for name in (name for name, is_given in others.items() if is_given):
            raise ConfigError(f"--plot and {name} exclude each other")
    # An option that would change nothing is refused, not ignored.
    if metric and view != "metrics":
        raise ConfigError(f"--metric belongs to the view metrics, not to {view}")
    if seats and view != "payoff":
        raise ConfigError(f"--seats belongs to the view payoff, not to {view}")
    if exploitability and view != "standings":
        raise ConfigError(f"--exploitability belongs to the view standings, not to {view}")
    if optuna is not None:
        if view != "hyperparameters":
            raise ConfigError(f"--optuna belongs to the view hyperparameters, not to {view}")
        _write_studies(run, optuna, population, as_json=as_json)
        return
    options: dict[str, object] = {"names": metric} if metric else {}
    if plot is not None:
        _plot(run, view, plot, population, options, as_json=as_json)
        return
    if seats:
        options["by_seats"] = True
    while True:
        # In each round: players appear while the run goes on, and only new ones are measured.
        if exploitability:
            _measure(run, population)
        document = view_document(run, view, population, **options)
        if as_json:
            print_json(document)
        elif as_csv:
            print_csv(VIEWS[view].rows(document))
        else:
            print_view(view, VIEWS[view], document, clear=watch)
            # Only for people: documents and rows have the figures.
            if VIEWS[view].warns:
                _print_warnings(run, document)
        if not watch:
            return
        time.sleep(WATCH_S)


def _measure(run: Path, population: str | None) -> None:
    """Measure how exploitable the players are, once each; the run's directory keeps it."""
    from populations.config.run_file import learner_setup

    from ..players.exploitability import measure_run
    from ..players.game import Game

    with inspected(run, population) as inspection:
        game = Game.of_setup(learner_setup(inspection.run_file, root=inspection.run_dir))
        measure_run(inspection, game, population=population)


def _plot(
    run: Path,
    view: str,
    file: Path,
    population: str | None,
    options: Mapping[str, object],
    *,
    as_json: bool,
) -> None:
    """Draw a view into a file, and say which."""
    from ..plots.kinds import find_plot

    # Before the run is read, which may take long.
    plot = find_plot(view, file)
    # Only now: matplotlib is there.
    from ..plots.files import write_plot

    write_plot(plot, view_documents(run, plot.documents, population, **options), file)
    if as_json:
        print_json({"run": str(run), "view": view, "file": str(file)})
        return
    console().print(f"{file}: plot of {view}", markup=False, soft_wrap=True)


def _write_studies(run: Path, file: Path, population: str | None, *, as_json: bool) -> None:
    """Write Optuna studies, and say which."""
    import optuna

    from populations.inspection.study import write_studies

    # Optuna would print a line per study on standard error.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with inspected(run, population) as inspection:
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


def _print_warnings(run: Path, document: Mapping[str, object]) -> None:
    from ..notices import cyclic_warnings, misfit_warnings

    # The view calibration has a fit, but no cyclicity.
    cyclicity = cast("dict[str, float | None]", document.get("cyclicity", {}))
    fits = cast("dict[str, dict[str, float]]", document["fit"])
    for warning in (*misfit_warnings(fits, run=run), *cyclic_warnings(cyclicity, run=run)):
        console().print(warning, markup=False, soft_wrap=True)
