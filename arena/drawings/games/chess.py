"""Chess of PettingZoo, with the pieces of python-chess."""

from __future__ import annotations

import re

import chess
import chess.svg

from arena.drawings.boards import draw_board
from arena.drawings.openspiel import cells_of
from arena.drawings.picture import Moment, Picture
from arena.drawings.svg import tag

STYLE = re.compile(r'style="fill:([^;"]+); ?stroke:([^;"]+);"')
PIECES = {
    # A square of python-chess has 45 units, and a page allows no styles.
    letter: tag("g", STYLE.sub(r'fill="\1" stroke="\2"', shape), transform="scale(2.22)")
    for letter, shape in chess.svg.PIECES.items()
}


def draw(moment: Moment) -> Picture:
    """Draw the board, White below."""
    board: chess.Board = moment.env.unwrapped.board
    moves = board.move_stack[-1:]
    squares = [square for move in moves for square in (move.from_square, move.to_square)]
    return draw_board(
        moment,
        cells_of(board, PIECES),
        PIECES,
        move="".join(map(chess.Move.uci, moves)),
        players="Kk",
        ground="checks",
        last=[(7 - square // 8, square % 8) for square in squares],
        rows="87654321",
        columns="abcdefgh",
    )
