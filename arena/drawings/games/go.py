"""Go of PettingZoo."""

from __future__ import annotations

from arena.drawings.boards import draw_board
from arena.drawings.picture import BLACK, WHITE, Moment, Picture

LETTERS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"


def draw(moment: Moment) -> Picture:
    """Draw the stones: an action is a crossing, row by row, or the last one, a pass."""
    position = moment.env.unwrapped._go
    size = len(position.board)
    stones = {1: BLACK, -1: WHITE}
    last = [divmod(action, size) for _, action in moment.moves[-1:] if action < size * size]
    taken = [f": took {number}" for number in position.caps]
    return draw_board(
        moment.caption("".join(f"{LETTERS[column]}{size - row}" for row, column in last) or "pass"),
        [[stones.get(int(stone)) for stone in row] for row in position.board],
        ground="points",
        last=last,
        legend=moment.legend((BLACK, WHITE), notes=taken),
        rows=[str(size - row) for row in range(size)],
        columns=LETTERS[:size],
    )
