"""`arena evaluate`: a tournament between players of any origin, or more evaluation of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from populations.views.league import PAIRS, RATED
from populations.views.parts import Table

from ..show.text import print_framed
from ..terminal.options import AsJson, Code, Trust
from ..terminal.output import print_json, say
from .into_run import evaluate_run

_OF_TOURNAMENTS = ("matches", "greedy", "seed", "environment")
"""Options that a run decides itself."""


def evaluate(
    context: typer.Context,
    players: Annotated[
        list[str],
        typer.Argument(
            metavar="PLAYER PLAYER...",
            help="Runs, policies, exports, bots; with --into the run alone.",
        ),
    ],
    matches: Annotated[int, typer.Option(min=1, help="Matches per ordered pair.")] = 100,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Play the likeliest actions instead of sampling.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of episodes and actions.")] = 1,
    environment: Annotated[
        str | None, typer.Option(metavar="ID", help="Environment to play, if all players are bots.")
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Run that is evaluated and keeps the results."),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Time of --into: 90s, 2m, 1h30m."),
    ] = None,
    trust: Trust = False,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Let every ordered pair of players meet, and rate them.

    A PLAYER is a run directory (its champion), RUN:player/p003, RUN:player/p003@120000 (a kept
    checkpoint or a ghost) or its directory, a directory that arena export wrote, bot:random or
    bot:package.module:Class(depth=3). Players of one population among several sit in its seats
    only.

    RUN --into RUN --for 2m goes on with a finished or stopped run in evaluation only. Its own
    scheduler chooses the matches, its ratings are fitted anew, and nothing is trained.
    """
    if into is not None or duration is not None:
        given = [name for name in _OF_TOURNAMENTS if _is_given(context, name)]
        evaluate_run(players, into, duration, not_for_it=given, trust=trust, json_=as_json)
        return
    from ..terminal.progress import play_progress
    from .tournament import play

    played = play(
        players,
        environment=environment,
        num_matches=matches,
        greedy=greedy,
        seed=seed,
        trust=trust,
        show=play_progress,
    )
    if as_json:
        print_json(played.document)
    else:
        print_framed(Table(PAIRS, played.pairs), title="pairs")
        print_framed(Table(RATED, played.ratings), title="ratings")
        if played.of_repeats:
            say(played.of_repeats)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
