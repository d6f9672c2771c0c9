"""`arena play`: a person plays against a player, in the terminal or in a browser."""

from __future__ import annotations

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

    # Before an environment looks: pictures are text or pixels here.
    os.environ.update(NO_WINDOWS)
    table = sit_down(
        with_level(player, level), environment=environment, seat=seat, greedy=greedy, trust=trust
    )
    first = secrets.randbelow(1 << 31) if seed is None else seed
    from .terminal import Evening

    Evening(table, seed=first).run()
