"""Search for the drawing of an environment's id. Imports no drawing until it has found one.

Tests: `tests/arena/drawings/test_games.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from arena.drawings.picture import Drawing
from arena.envs.openspiel.game import is_openspiel
from arena.envs.twins import TWINS
from arena.errors import ConfigError
from arena.resolve import resolve

CLASSIC: Mapping[str, str] = {
    "chess": "chess:draw",
    "connect_four": "connect_four:draw",
    "go": "go:draw",
    "rps": "rock_paper_scissors:draw",
    "tictactoe": "tictactoe:draw",
}
OPENSPIEL: Mapping[str, str] = {
    "backgammon": "backgammon:draw",
    "breakthrough": "breakthrough:draw",
    "connect_four": "connect_four:draw_openspiel",
    "hex": "hex:draw",
    "kuhn_poker": "kuhn_poker:draw",
    "leduc_poker": "leduc_poker:draw",
    "nim": "nim:draw",
    "othello": "othello:draw",
    "tic_tac_toe": "tictactoe:draw_openspiel",
}
DRAWINGS: Mapping[str, str] = {
    **{f"classic/{name}": f"games.{drawing}" for name, drawing in CLASSIC.items()},
    **{f"openspiel:{name}": f"games.{drawing}" for name, drawing in OPENSPIEL.items()},
}
"""Drawing in this package by an environment's id without version and parameters."""

OPTIONS = re.compile(r"[-_]v\d+$|\(.*\)$")


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
    # A batched game is drawn as the environment that it stands for.
    originals = {game: original for original, game in TWINS.items()}
    game = originals.get(environment_id, environment_id)
    text = "openspiel:draw_text" if is_openspiel(game) else None
    own = DRAWINGS.get(OPTIONS.sub("", game), text)
    if reference is None and own is None:
        return None
    place = None if reference is None else launch_directory
    found = resolve(reference or f"arena.drawings.{own}", launch_directory=place)
    if not callable(found):
        raise ConfigError(f"{reference} must be a function that draws, got {found!r}")
    return cast("Drawing", found)
