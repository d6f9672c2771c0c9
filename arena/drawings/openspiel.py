"""Boards and cards of OpenSpiel, read from the state. Needs no OpenSpiel itself.

Tests: `tests/arena/drawings/test_games.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from textwrap import wrap
from typing import Any

from arena.drawings.boards import BLACK, WHITE, draw_board
from arena.drawings.picture import NUM_COLUMNS, Moment, Picture

STONES = {"x": BLACK, "o": WHITE}
CHANCE = -1
"""Player that OpenSpiel calls chance."""


def cells_of(board: object, letters: Iterable[str] = STONES) -> list[list[str]]:
    """Return the cells of a board that prints itself: its rows are the lines with the most cells.

    Args:
        board: A ``pyspiel.State``, or whatever else prints a board.
        letters: Letters of pieces; ``.`` and ``-`` are empty.
    """
    known = {".", "-", *letters}
    lines = [[letter for letter in line if letter in known] for line in str(board).splitlines()]
    return [line for line in lines if len(line) == max(map(len, lines))]


def draw_stones(moment: Moment, **look: Any) -> Picture:  # noqa: ANN401
    """Draw the stones that a state prints; an action counts the cells, row by row.

    Args:
        moment: Moment; ``env`` is a ``pyspiel.State``.
        look: Look of the board, as in `draw_board`.
    """
    cells = cells_of(moment.env)
    last = [divmod(action, len(cells[0])) for _, action in moment.moves[-1:]]
    return draw_board(moment, cells, STONES, last=last, **look)


def draw_text(moment: Moment) -> Picture:
    """Return what a state of any game prints, or what an agent that plays observes."""
    state = moment.env
    facts = state.get_game().get_type()
    if moment.viewer is None or facts.information.name == "PERFECT_INFORMATION":
        return Picture(text=f"{moment.caption()}\n{state}")
    viewer = moment.agents.index(moment.viewer)
    # What others did may be hidden, too.
    observed = (
        state.observation_string(viewer)
        if facts.provides_observation_string
        else state.information_state_string(viewer)
    )
    lines = (wrap(line, NUM_COLUMNS) or [""] for line in observed.splitlines())
    return Picture(text="\n".join(chain.from_iterable(lines)))


def dealt(moment: Moment) -> list[int]:
    """Return the cards that were dealt: by a batched game, or by chance in a state of OpenSpiel."""
    if hasattr(moment.env, "full_history"):
        return [one.action for one in moment.env.full_history() if one.player == CHANCE]
    cards: list[int] = moment.env.dealt()[0].tolist()
    return cards
