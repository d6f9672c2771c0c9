"""Names of moves as people write them, and the cells of a board by which they are pointed out.

Tests: `tests/arena/drawings/test_moves.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import ascii_lowercase
from typing import Any, NamedTuple

from arena.drawings.find import OPTIONS
from arena.drawings.picture import Moment
from arena.envs.openspiel.game import is_openspiel
from arena.envs.registry import TWINS

ANY = "*"
"""Row of a cell of which the column alone counts."""


class Move(NamedTuple):
    """Move that an agent can make.

    Attributes:
        name: Name, without blanks.
        cells: Cells that are pointed at one after the other, as in ``3,0``. Empty: it has none.
    """

    name: str
    cells: tuple[str, ...] = ()


def move_of(moment: Moment, agent: str, action: int) -> Move | None:
    """Return a move of an agent that is on turn; None: the game has no name for it.

    Args:
        moment: Moment before it.
        agent: The agent.
        action: Index of the action from 0.
    """
    originals = {game: original for original, game in TWINS.items()}
    game = OPTIONS.sub("", originals.get(moment.environment_id, moment.environment_id))
    if (named := NAMED.get(game.removeprefix("classic/"))) is not None:
        return named(moment, agent, action)
    if not is_openspiel(game):
        return None
    name = "_".join(moment.env.action_to_string(moment.agents.index(agent), action).split())
    if game in COUNTED:
        # The action counts the cells, row by row; othello's last one passes.
        size = COUNTED[game] or int(moment.env.get_game().get_parameters()["num_cols"])
        return Move(name, (_cell(*divmod(action, size)),) if action < size * size else ())
    if game == "openspiel:breakthrough":
        size = int(moment.env.get_game().get_parameters()["rows"])
        return Move(name, _squares(name, size))
    return Move(name)


def _cell(row: int | str, column: int) -> str:
    return f"{row},{column}"


def _squares(name: str, size: int) -> tuple[str, ...]:
    """Return the squares in a name such as a7b6, the last row being 1."""
    return tuple(
        _cell(size - int(row), ascii_lowercase.index(column))
        for column, row in re.findall(r"([a-z])(\d+)", name)
    )


def _words(*words: str) -> Callable[[Moment, str, int], Move]:
    return lambda _moment, _agent, action: Move(
        words[action] if action < len(words) else str(action)
    )


def _column(_moment: Moment, _agent: str, action: int) -> Move:
    return Move(str(action + 1), (_cell(ANY, action),))


def _tictactoe(_moment: Moment, _agent: str, action: int) -> Move:
    # An action counts the cells, column by column.
    return Move(f"{action % 3 + 1},{action // 3 + 1}", (_cell(action % 3, action // 3),))


def _chess(moment: Moment, agent: str, action: int) -> Move:
    from pettingzoo.classic.chess import chess_utils

    env: Any = moment.env.unwrapped
    name = chess_utils.action_to_move(env.board, action, moment.agents.index(agent)).uci()
    return Move(name, _squares(name, 8))


def _go(moment: Moment, _agent: str, action: int) -> Move:
    from arena.drawings.games import GO_COLUMNS

    size = len(moment.env.unwrapped._go.board)
    row, column = divmod(action, size)
    if row == size:
        return Move("pass")
    return Move(f"{GO_COLUMNS[column]}{size - row}".lower(), (_cell(row, column),))


NAMED: Mapping[str, Callable[[Moment, str, int], Move]] = {
    "chess": _chess,
    "connect_four": _column,
    "go": _go,
    "rps": _words("rock", "paper", "scissors", "spock", "lizard"),
    "tictactoe": _tictactoe,
    "openspiel:connect_four": _column,
    "openspiel:kuhn_poker": _words("pass", "bet"),
    "openspiel:leduc_poker": _words("fold", "call", "raise"),
}
"""Names by an environment's id without ``classic/``, version and parameters."""

COUNTED: Mapping[str, int] = {
    "openspiel:tic_tac_toe": 3,
    "openspiel:othello": 8,
    "openspiel:hex": 0,
}
"""Games of OpenSpiel in which an action is a cell, and their columns; 0: a parameter says."""
