"""Go of PettingZoo."""

from __future__ import annotations

from arena.drawings.boards import draw_board
from arena.drawings.openspiel import STONES
from arena.drawings.picture import Moment, Picture

LETTERS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"


def draw(moment: Moment) -> Picture:
    """Draw the stones: an action is a crossing, row by row, or the last one, a pass."""
    position = moment.env.unwrapped._go
    size = len(position.board)
    last = [divmod(action, size) for _, action in moment.moves[-1:] if action < size * size]
    return draw_board(
        moment,
        # 0: empty, 1: black, -1: white.
        [[".xo"[int(stone)] for stone in row] for row in position.board],
        STONES,
        move="".join(f"{LETTERS[column]}{size - row}" for row, column in last) or "pass",
        notes=[f": took {number}" for number in position.caps],
        ground="points",
        last=last,
        rows=[str(size - row) for row in range(size)],
        columns=LETTERS[:size],
    )
