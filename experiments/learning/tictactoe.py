"""Whole game of Tic-tac-toe, and the value of a perfect opponent against a policy.

Written beside Arena's environments and not with them, so that it can check them. Observations are
PettingZoo's: own stones, then the opponent's, cell by cell in rows. Shapes: N positions, 9 cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from arena.core import ActorInput
from arena.export.actor import ExportedActor

NUM_CELLS = 9
LINES = (
    (0, 1, 2), (3, 4, 5), (6, 7, 8),
    (0, 3, 6), (1, 4, 7), (2, 5, 8),
    (0, 4, 8), (2, 4, 6),
)  # fmt: skip

Board = tuple[int, ...]
"""0 for an empty cell, 1 for the first player's stone, 2 for the second's."""

Policy = Callable[[npt.NDArray[np.int8], npt.NDArray[np.bool_]], npt.NDArray[np.float64]]
"""Observations int8 [N, 3, 3, 2] and legal actions bool [N, 9] to probabilities [N, 9]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestResponse:
    """Mean value of a perfect opponent: 1 for its win, 0 for a draw, -1 for its defeat.

    Against a policy that never draws lots it is 0 or 1: unbeatable, or there is a forced win.

    Attributes:
        first: The policy moves first, its opponent second.
        second: The policy moves second.
    """

    first: float
    second: float


def best_response(policy: Policy) -> BestResponse:
    """Solve the game against a policy, exactly."""
    boards = positions()
    asked = [board for board in boards if not is_over(board)]
    observation = np.stack([observe(board) for board in asked])
    legal = np.array(asked) == 0
    probabilities = dict(zip(asked, policy(observation, legal).tolist(), strict=True))
    return BestResponse(
        first=_value_against(probabilities, boards=boards, seat=1),
        second=_value_against(probabilities, boards=boards, seat=2),
    )


def _value_against(
    probabilities: dict[Board, list[float]], *, boards: Sequence[Board], seat: int
) -> float:
    """Return the value of the empty board to a perfect player against the policy in a seat (1 or
    2).
    """
    values: dict[Board, float] = {}
    for board in reversed(boards):
        if is_over(board):
            values[board] = {0: 0.0, seat: -1.0, 3 - seat: 1.0}[winner(board)]
            continue
        following = {cell: values[after(board, cell)] for cell in legal_cells(board)}
        if mover(board) == seat:
            chances = probabilities[board]
            values[board] = sum(chances[cell] * value for cell, value in following.items())
        else:
            values[board] = max(following.values())
    return values[boards[0]]


def positions() -> list[Board]:
    """Return every board that play can lead to, once each, fewer stones first."""
    found: list[Board] = []
    current: list[Board] = [(0,) * NUM_CELLS]
    while current:
        found += current
        following = (
            after(board, cell)
            for board in current
            if not is_over(board)
            for cell in legal_cells(board)
        )
        current = list(dict.fromkeys(following))
    return found


def mover(board: Board) -> int:
    """Return the player on turn: 1 or 2."""
    return 1 if board.count(1) == board.count(2) else 2


def legal_cells(board: Board) -> list[int]:
    """Return the empty cells."""
    return [cell for cell, stone in enumerate(board) if stone == 0]


def after(board: Board, cell: int) -> Board:
    """Return the board with one more stone."""
    return (*board[:cell], mover(board), *board[cell + 1 :])


def winner(board: Board) -> int:
    """Return the player with three in a line: 1, 2, or 0 for neither."""
    for a, b, c in LINES:
        if board[a] and board[a] == board[b] == board[c]:
            return board[a]
    return 0


def is_over(board: Board) -> bool:
    """Return whether the game is over."""
    return winner(board) != 0 or 0 not in board


def observe(board: Board) -> npt.NDArray[np.int8]:
    """Return PettingZoo's observation for the player on turn. [3, 3, 2]."""
    cells = np.array(board).reshape(3, 3)
    own = mover(board)
    return np.stack([cells == own, cells == 3 - own], axis=2).astype(np.int8)


def greedy_export(directory: Path) -> Policy:
    """Return the policy that ``arena export`` wrote, playing its likeliest actions."""
    actor = ExportedActor(directory, greedy=True)

    def play(
        observation: npt.NDArray[np.int8], legal: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.float64]:
        rows = torch.from_numpy(observation.reshape(len(observation), -1)).float()
        action = actor.act(
            ActorInput(observation=rows, action_mask=torch.from_numpy(legal)),
            agent="player_1",
            generator=torch.Generator(),
        ).action
        return np.asarray(np.eye(NUM_CELLS)[action.numpy()])

    return play
