"""`arena play`: a person plays against a player, in the terminal or in a browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from ..terminal.options import Code, Trust


def play(
    player: Annotated[str, typer.Argument(metavar="PLAYER", help="Run, policy, export or bot.")],
    environment: Annotated[
        str | None,
        typer.Option("--env", metavar="ID", help="Environment to play, if the player is a bot."),
    ] = None,
    seat: Annotated[
        str | None,
        typer.Option(
            metavar="AGENT|N",
            help="Agent that you play, or its number from 1. Default: the first one.",
            show_default=False,
        ),
    ] = None,
    level: Annotated[
        int | None,
        typer.Option(
            min=1, help="Level of an export that has some. Default: the best.", show_default=False
        ),
    ] = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Let it play its likeliest actions, not sample.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Seed of the first game. Default: another one each time.",
            show_default=False,
        ),
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
    number; ? shows what the player would do in your place, and help what else there is. A game that
    is saved is shown by arena replay FILE.
    """
    import os
    import secrets

    from arena.drawings.draw import NO_WINDOWS

    from .table import sit_down, with_level

    first = secrets.randbelow(1 << 31) if seed is None else seed
    name = with_level(player, level)
    if web:
        chosen = {"environment": environment, "seat": seat, "greedy": greedy, "trust": trust}
        _serve({**chosen, "player": name, "code": code and str(code)}, seed=first, port=port)
        return
    from .terminal import Evening

    # Before an environment looks: pictures are text or pixels here.
    os.environ.update(NO_WINDOWS)
    table = sit_down(name, environment=environment, seat=seat, greedy=greedy, trust=trust)
    Evening(table, seed=first).run()


def _serve(table: Mapping[str, object], *, seed: int, port: int) -> None:
    from functools import partial

    from ..web.command import require_packages, serve

    require_packages("arena play --web")
    from .site import METHODS, make_app
    from .tables import Tables

    with Tables(table, seed=seed) as tables:
        tables.begin_first()
        serve(
            partial(make_app, tables),
            host="127.0.0.1",
            port=port,
            methods=METHODS,
            opens=False,
            ends="Ctrl-C ends it, and its games.",
        )
