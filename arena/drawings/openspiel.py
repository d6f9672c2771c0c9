"""Boards of OpenSpiel, read from the text that a state prints. Needs no OpenSpiel itself.

Tests: `tests/arena/drawings/test_games.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain
from textwrap import wrap
from typing import Any

from arena.drawings.boards import draw_board
from arena.drawings.picture import BLACK, NUM_COLUMNS, WHITE, Moment, Picture, Piece

TWO = {"x": BLACK, "o": WHITE}
CHANCE = -1
"""Player that OpenSpiel calls chance."""


def cells_of(state: Any, pieces: Mapping[str, Piece] = TWO) -> list[list[Piece | None]]:  # noqa: ANN401
    """Return the board that a state prints: its rows are the lines with the most cells.

    Args:
        state: A ``pyspiel.State``.
        pieces: Pieces by their letters; ``.`` and ``-`` are empty.
    """
    known = {".", "-", *pieces}
    lines = [[letter for letter in line if letter in known] for line in str(state).splitlines()]
    num_columns = max(map(len, lines), default=0)
    return [[pieces.get(letter) for letter in line] for line in lines if len(line) == num_columns]


def draw_cells(
    moment: Moment,
    *,
    pieces: Mapping[str, Piece] = TWO,
    notes: Collection[str] = (),
    last: Collection[tuple[int, int]] | None = None,
    **look: Any,  # noqa: ANN401
) -> Picture:
    """Draw the board of two players that a state prints.

    Args:
        moment: Moment; ``env`` is a ``pyspiel.State``.
        pieces: Pieces by the letters that the state prints; those of the players come first.
        notes: Texts behind the players' names.
        last: Cells of the last move; None: its action counts the cells, row by row.
        look: Ground of the board and names of rows and columns, as in `draw_board`.
    """
    cells = cells_of(moment.env, pieces)
    if last is None:
        last = [divmod(action, len(cells[0])) for _, action in moment.moves[-1:]]
    legend = moment.legend(pieces.values(), notes=notes)
    return draw_board(moment.caption(), cells, last=last, legend=legend, **look)


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
