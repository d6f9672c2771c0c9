"""Exact value of a perfect opponent against a mixture of tic-tac-toe policies.

A mixture draws one policy for a whole game, so an opponent learns from its moves which one it has
met: not the board but the whole history counts. All 549,946 histories are walked, one length after
the other. Each carries, by policy, how likely it is drawn and makes its own moves of the history;
backwards, the policies' decisions add up and the opponent takes the best.

Shapes: K policies, N boards on which a player decides, H histories of one length.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from experiments.learning import tictactoe
from experiments.learning.tictactoe import NUM_CELLS, Board

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

OVER = -1


@cache
def asked() -> list[Board]:
    """Return all boards on which a player decides, fewer stones first; N of them."""
    return [board for board in tictactoe.positions() if not tictactoe.is_over(board)]


def observations() -> npt.NDArray[np.int8]:
    """Return the observations of the player on turn. [N, 3, 3, 2]."""
    return np.stack([tictactoe.observe(board) for board in asked()])


def legal() -> npt.NDArray[np.bool_]:
    """Return the legal cells. [N, 9]."""
    return np.asarray(np.array(asked()) == 0)


@cache
def _following() -> tuple[IntArray, IntArray]:
    """Return the next board's index or `OVER`, and then the winner, by board and cell. [N, 9]
    each.
    """
    boards = asked()
    index = {board: number for number, board in enumerate(boards)}
    child = np.full((len(boards), NUM_CELLS), OVER, dtype=np.int64)
    won = np.zeros((len(boards), NUM_CELLS), dtype=np.int64)
    for number, board in enumerate(boards):
        for cell in tictactoe.legal_cells(board):
            after = tictactoe.after(board, cell)
            child[number, cell] = index.get(after, OVER)
            won[number, cell] = tictactoe.winner(after)
    return child, won


def exploitability(plays: FloatArray, *, shares: FloatArray) -> float:
    """Return the mean of what a perfect opponent gets in its two seats: half of NashConv.

    The game's own value is 0.

    Args:
        plays: Probabilities of each policy on each board. [K, N, 9].
        shares: Probability of each to be drawn for a game. [K].
    """
    drawn = shares > 0.0
    return 0.5 * sum(response(plays[drawn], shares[drawn], seat=seat) for seat in (1, 2))


def response(plays: FloatArray, shares: FloatArray, *, seat: int) -> float:
    """Return a perfect opponent's value where the mixture has a seat, 1 or 2.

    Args:
        plays: Plays of each member, as in `exploitability`.
        shares: Shares of the members, as there.
        seat: Seat of the mixture.
    """
    child, won = _following()
    board = np.zeros(1, dtype=np.int64)
    reach = shares[:, None]
    walked: list[tuple[int, IntArray, FloatArray]] = []
    for ply in range(NUM_CELLS):
        parent, cell = legal()[board].nonzero()
        if ply % 2 == seat - 1:
            reach = reach[:, parent] * plays[:, board[parent], cell]
        else:
            reach = reach[:, parent]
        after, winner = child[board[parent], cell], won[board[parent], cell]
        outcome = np.where(winner == 0, 0.0, np.where(winner == seat, -1.0, 1.0))
        walked.append((len(board), parent, outcome * reach.sum(axis=0)))
        goes_on = after != OVER
        board, reach = after[goes_on], reach[:, goes_on]
        # Where the game goes on, the value is that of the next history: filled in on the way back.
        walked[-1][2][goes_on] = np.nan
    value: FloatArray = np.zeros(0)
    for ply, (num_histories, parent, gain) in reversed(list(enumerate(walked))):
        gain[np.isnan(gain)] = value
        if ply % 2 == seat - 1:
            value = np.bincount(parent, weights=gain, minlength=num_histories).astype(np.float64)
        else:
            value = np.full(num_histories, -np.inf)
            np.maximum.at(value, parent, gain)
    return float(value[0])


def values(plays: FloatArray) -> FloatArray:
    """Return each policy's value as first player against each as the second. [K, K].

    Args:
        plays: [K, N, 9].
    """
    child, won = _following()
    num_policies = len(plays)
    value = np.zeros((len(child), num_policies, num_policies), dtype=np.float32)
    for number in reversed(range(len(child))):
        is_first = tictactoe.mover(asked()[number]) == 1
        for cell in tictactoe.legal_cells(asked()[number]):
            chance = plays[:, number, cell].astype(np.float32)
            weight = chance[:, None] if is_first else chance[None, :]
            after = child[number, cell]
            gain = {0: 0.0, 1: 1.0, 2: -1.0}[int(won[number, cell])]
            value[number] += weight * (value[after] if after != OVER else gain)
    return np.asarray(value[0], dtype=np.float64)
