"""Search for the drawing of an environment's id. Imports no drawing until it has found one.

Tests: `tests/arena/drawings/test_games.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from arena.drawings.picture import Drawing
from arena.envs.openspiel.game import is_openspiel
from arena.envs.registry import TWINS
from arena.errors import ConfigError
from arena.resolve import resolve

CLASSIC = ("chess", "connect_four", "go", "rps", "tictactoe")
BOARDS = ("backgammon", "breakthrough", "connect_four", "hex", "nim", "othello")
CARDS = ("kuhn_poker", "leduc_poker")
DRAWINGS: Mapping[str, str] = {
    **{f"classic/{name}": name for name in CLASSIC},
    **{f"openspiel:{name}": name for name in (*BOARDS, *CARDS)},
    "openspiel:tic_tac_toe": "tictactoe",
}
"""Function ``draw_NAME`` of `arena.drawings.games` by an id without version and parameters."""

OPTIONS = re.compile(r"[-_]v\d+$|\(.*\)$")


def game_of(environment_id: str) -> str:
    """Return an environment's id as `DRAWINGS` has it; a batched game stands for its original."""
    originals = {game: original for original, game in TWINS.items()}
    return OPTIONS.sub("", originals.get(environment_id, environment_id))


def find_drawing(
    environment_id: str, *, reference: str | None = None, launch_directory: str | None = None
) -> Drawing | None:
    """Return the function that draws an environment; None: it can only render itself.

    Args:
        environment_id: Canonical id, or that of a batched game.
        reference: Function of the user's, as ``package.module:function``, instead of Arena's own.
        launch_directory: Directory put first on ``sys.path`` for it.

    Raises:
        ConfigError: If there is no such function, or it cannot be imported.
        NotTrusted: If the user has not said that it may be imported.
    """
    if reference is None:
        game = game_of(environment_id)
        if name := DRAWINGS.get(game):
            reference = f"arena.drawings.games:draw_{name}"
        elif is_openspiel(game):
            reference = "arena.drawings.boards:draw_text"
        else:
            return None
        launch_directory = None
    found = resolve(reference, launch_directory=launch_directory)
    if not callable(found):
        raise ConfigError(f"{reference} must be a function that draws, got {found!r}")
    return cast("Drawing", found)
