"""`arena replay`: a game of a run, step by step.

Tests: `tests/tools/replay/test_page.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from arena.errors import ConfigError
from populations.views.log import game
from populations.views.parts import Document

from ..league.keys import has_keys, read_keys
from ..league.tables import fit_screen, room_of
from ..show.text import drawn
from ..terminal.options import AsJson, Code, Trust, optional
from ..terminal.output import console, print_json, say

KEY_WAIT_S = 1.0
BACK, ENDING = ("b", "B", "\x7f", "left", "up"), ("q", "Q", "\x04", "escape")


Played = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="Run directory, or a game that arena play has saved."),
]
OfPlayer = Annotated[
    str | None,
    optional(
        "PLAYER", "Player of the game (p003, p003@4.628M, bot:random). Default: the champion."
    ),
]
Opponent = Annotated[str | None, optional("PLAYER", "Another player of the game. Default: any.")]
Worst = Annotated[
    int | None,
    optional(
        "N", "Number of the player's game, its worst being 1. Default: its newest game.", least=1
    ),
]
GameId = Annotated[str | None, optional("ID", "Game, as arena league RUN games names it.", "--id")]
Beside = Annotated[
    str | None,
    optional("PLAYER", "Player of whom is shown what it would have done. Default: the champion."),
]
To = Annotated[
    Path | None,
    optional(
        "FILE",
        "File for the game, by its ending a page (.html), a film (.gif, .mp4), text (.txt), or an "
        "episode of Kaggle's (.json). Default: the terminal.",
    ),
]


def replay(
    run: Played,
    player: OfPlayer = None,
    opponent: Opponent = None,
    worst: Worst = None,
    game: GameId = None,
    beside: Beside = None,
    to: To = None,
    trust: Trust = False,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """Show a game of a run that evaluation has played, step by step.

    It is played again from its seed and its actions, and each step is checked against what it
    showed then. In a terminal Enter goes on, b goes back, q ends.
    """
    from .files import check_ending, write_file

    finds = {"--player": player, "--opponent": opponent, "--worst": worst}
    for name, given in {**finds, "--beside": beside, "--id": game}.items():
        if given is not None and game is not None and name in finds:
            raise ConfigError(f"--id and {name} exclude each other")
        if given is not None and run.is_file():
            raise ConfigError(f"{run} is one game, so {name} has no meaning")
    if to is not None:
        check_ending(to)
    from .retelling import retold

    told = retold(
        run, player=player, opponent=opponent, worst=worst, game=game, beside=beside, trust=trust
    )
    if to is not None:
        write_file(told, to)
    if as_json:
        print_json({"run": str(run), **told.document})
    elif to is not None:
        say(f"wrote {to}")
    else:
        _show(told.document, told.populations)


def _show(document: Document, populations: tuple[str, ...]) -> None:
    """Show a game: all of it, or step by step to who can press keys."""
    screen = console()
    fit_screen(screen, is_wide=False)
    room = replace(room_of(screen, populations=populations), more="--json")
    if not has_keys():
        for part in drawn(game(document), room):
            screen.print(part)
        return
    at, last = 0, len(document["steps"]) - 1
    with read_keys() as keys:
        while True:
            screen.clear()
            for part in drawn(game(document, at=at), room):
                screen.print(part)
            screen.print(f"step {at} of {last}: Enter goes on, b goes back, q ends")
            key = ""
            while not key:
                key = keys.wait(KEY_WAIT_S)
            if key in ENDING:
                return
            at = min(max(at + (-1 if key in BACK else 1), 0), last)
