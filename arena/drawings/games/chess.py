"""Chess of PettingZoo, with the pieces of python-chess."""

from __future__ import annotations

import re

import chess
import chess.svg

from arena.drawings.boards import draw_board
from arena.drawings.picture import Moment, Picture, Piece
from arena.drawings.svg import tag

STYLE = re.compile(r'style="fill:([^;"]+); ?stroke:([^;"]+);"')
PIECES = {
    # A square of python-chess has 45 units, and a page allows no styles.
    letter: Piece(
        letter, tag("g", STYLE.sub(r'fill="\1" stroke="\2"', shape), transform="scale(2.22)")
    )
    for letter, shape in chess.svg.PIECES.items()
}


def draw(moment: Moment) -> Picture:
    """Draw the board, White below."""
    board: chess.Board = moment.env.unwrapped.board
    ranks = [range(first, first + 8) for first in range(56, -8, -8)]
    pieces = {square: PIECES[piece.symbol()] for square, piece in board.piece_map().items()}
    move = board.peek() if board.move_stack else None
    return draw_board(
        moment.caption(move.uci() if move else ""),
        [[pieces.get(square) for square in rank] for rank in ranks],
        ground="checks",
        last=[(7 - at // 8, at % 8) for at in (move.from_square, move.to_square)] if move else (),
        legend=moment.legend((PIECES["K"], PIECES["k"])),
        rows="87654321",
        columns="abcdefgh",
    )
