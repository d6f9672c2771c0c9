"""`arena compare`: several runs of one environment, as seeds or settings, together.

Tests: `tests/tools/test_simulate.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from populations.views.league import RATED
from populations.views.parts import Column, Table, player

from .show.text import print_framed
from .terminal.options import AsJson, Code, OnlyPopulation, Trust
from .terminal.output import console, print_json, say

if TYPE_CHECKING:
    from populations.views.questions.inspection import Document

RUNS = (
    *(player("run_dir", "run"), Column("seed"), Column("agent_steps")),
    player("champion"),
)
CURVE = (
    Column("agent_steps"),
    *RATED[1:],
    *(Column("score", "share"), Column("score_low", "share", "low")),
    *(Column("score_high", "share", "high"), Column("rating_runs", title="runs")),
)


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN RUN...", help="Run directories, one of each seed."),
    ],
    matches: Annotated[
        int,
        typer.Option(min=0, help="Matches per ordered pair of champions; 0: no tournament."),
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the tournament.")] = 1,
    population: OnlyPopulation = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for a plot of the curves (.png, .svg, .pdf)."),
    ] = None,
    trust: Trust = False,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs of one environment: their curves pooled, and a tournament of their champions.

    Curves are means over the runs with 95% intervals of the mean: the rating of each run's best
    policy, and the score of its policies against bot:random. Each run's ratings are on its own
    scale, with bot:random at 0; the tournament, in which bot:random takes part, has one scale.
    """
    from arena.types import RANDOM_BOT
    from populations.views.questions.comparison import comparison
    from populations.views.questions.inspection import Inspection

    from .show.chart_files import check_plot_file, write_figure

    # The file is checked before the runs are read, which may take long.
    if plot is not None:
        check_plot_file(plot)
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(Inspection.open(run))) for run in runs]
        document = comparison(opened, population=population)
    tournament: dict[str, object] | None = None
    if matches:
        from .evaluate.tournament import play
        from .terminal.progress import play_progress

        tournament, _ = play(
            [*map(str, runs), str(RANDOM_BOT)],
            environment=None,
            num_matches=matches,
            greedy=False,
            seed=seed,
            trust=trust,
            show=play_progress,
        )
    if plot is not None:
        from populations.views.charts.figures import COMPARISON

        write_figure(COMPARISON, {"comparison": document}, plot)
    if as_json:
        print_json({**document, "tournament": tournament})
        return
    _print(document, tournament)
    if plot is not None:
        say(f"{plot}: plot of the curves")


def _print(document: Document, tournament: Mapping[str, Any] | None) -> None:
    from populations.league.names import compact

    runs = [
        {
            **run,
            "agent_steps": compact(run["agent_steps"]),
            "champion": ", ".join(name or "-" for name in run["champions"].values()),
        }
        for run in cast("Sequence[Mapping[str, Any]]", document["runs"])
    ]
    print_framed(Table(RUNS, runs), title=f"runs of {document['environment']}")
    curves = cast("Mapping[str, Sequence[Mapping[str, Any]]]", document["populations"])
    for name, points in curves.items():
        if not points:
            console().print(f"{name}: no curve, for a run has no rated policy yet")
            continue
        rows = [{**point, "agent_steps": compact(point["agent_steps"])} for point in points]
        print_framed(Table(CURVE, rows), title=f"{name}: mean over runs, 95%")
    if tournament is not None:
        print_framed(Table(RATED, tournament["ratings"]), title="tournament of the champions")
