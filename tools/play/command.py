"""`arena play`: a person plays against a player, in the terminal or in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..terminal.options import Code, Trust


def play(
    player: Annotated[
        str, typer.Argument(metavar="PLAYER", help="Run (its champion), policy, export or bot.")
    ],
    environment: Annotated[
        str | None,
        typer.Option("--env", metavar="ID", help="Environment to play, if the player is a bot."),
    ] = None,
    seat: Annotated[
        str | None,
        typer.Option(
            metavar="AGENT|N", help="Agent that you play, or its number from 1. Default: the first."
        ),
    ] = None,
    level: Annotated[
        int | None, typer.Option(min=1, help="Level of an export that has some: as PLAYER:level=N.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the game; without one all differ.")
    ] = None,
    web: Annotated[
        bool, typer.Option("--web", help="Play in a browser: the first line is the address.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of --web; 0: any that is free.")
    ] = 8518,
    trust: Trust = False,
    code: Code = None,
) -> None:
    """Play against a player: a champion, a policy, an export, a bot.

    The environment's picture is shown, or what you observe. A move is typed as its name or its
    number; ? shows what the player would do in your place, and help what else there is. The player
    draws its moves by their probabilities: as PLAYER:temperature=0.01 it nearly always plays the
    likeliest. A game that is saved is shown by arena replay FILE.
    """
    import os
    import secrets

    from arena.drawings.draw import NO_WINDOWS

    first = secrets.randbelow(1 << 31) if seed is None else seed
    table: dict[str, Any] = {
        "player": player if level is None else f"{player}:level={level}",
        "environment": environment,
        "seat": seat,
        "trust": trust,
    }
    if web:
        _serve(table, seed=first, code=code, port=port)
        return
    from ..terminal.progress import play_progress
    from .table import sit_down
    from .terminal import play_in_terminal

    # The variables are set before an environment reads them: pictures are text or pixels here.
    os.environ.update(NO_WINDOWS)
    with play_progress(f"{player} is being loaded"):
        seated = sit_down(**table)
    play_in_terminal(seated, seed=first)


def _serve(table: dict[str, Any], *, seed: int, code: Path | None, port: int) -> None:
    from functools import partial

    from ..web.command import require_packages, serve

    require_packages("arena play --web")
    from .site import METHODS, make_app
    from .tables import Tables

    with Tables(table, seed=seed, code=code) as tables:
        serve(
            partial(make_app, tables),
            host="127.0.0.1",
            port=port,
            methods=METHODS,
            opens=False,
            ends="Ctrl-C ends it, and its games.",
        )
