"""`arena evaluate`: a tournament between players of any origin, or more evaluation of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from populations.views.league import PAIRS, RATED
from populations.views.parts import Table

from ..show.text import print_framed
from ..terminal.options import AsJson, Code, Trust
from ..terminal.output import print_json, say

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

    document, of_repeats = play(
        players,
        environment=environment,
        num_matches=matches,
        greedy=greedy,
        seed=seed,
        trust=trust,
        show=play_progress,
    )
    if as_json:
        print_json(document)
    else:
        print_framed(Table(PAIRS, document["pairs"]), title="pairs")
        print_framed(Table(RATED, document["ratings"]), title="ratings")
        if of_repeats:
            say(of_repeats)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def evaluate_run(
    players: Sequence[str],
    into: Path | None,
    duration: str | None,
    *,
    not_for_it: Sequence[str],
    trust: bool,
    json_: bool,
) -> None:
    """Evaluate a run for a while under its lock, and print how it ended.

    Args:
        players: Players on the command line: the run alone.
        into: Run directory.
        duration: Time, as the user wrote it.
        not_for_it: Options that were given and belong to a tournament.
        trust: Whether code that its run.yaml names may be imported, wherever it is from.
        json_: Whether to print the final status as JSON.

    Raises:
        ConfigError: If options do not fit, or there is no such run, or nothing to evaluate.
        RunInUse: If the run is going on.
    """
    from arena.errors import ConfigError
    from populations.config.trust import trusted
    from populations.fields import seconds_of

    from ..launch.preflight import look_at_world
    from ..launch.serving import held_run, serve

    # One thread is enough, as learners occupy the cores, as in `arena launch`.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if into is None:
        raise ConfigError(f"--for {duration} needs --into: the run that is evaluated")
    if duration is None:
        raise ConfigError(f"--into {into} needs --for: a time, as 90s, 2m or 1h30m")
    try:
        seconds = seconds_of(duration)
    except ValueError as error:
        raise ConfigError(f"--for {error}, got {duration!r}") from error
    if [Path(player).resolve() for player in players] != [into.resolve()]:
        raise ConfigError(
            f"--into evaluates the players of one run, so {into} must be the only PLAYER, got "
            f"{' '.join(players)}"
        )
    if not_for_it:
        raise ConfigError(
            f"--into takes no --{', --'.join(not_for_it)}: the run's own scheduler decides"
        )
    with held_run(into) as found:
        run_file = trusted(found, into, trust=trust)
        world = look_at_world(run_file, run_file.config, run_dir=into)
        serve(
            into,
            launch_directory=run_file.launch_directory,
            world=world,
            evaluate_s=seconds,
            json_=json_,
        )
