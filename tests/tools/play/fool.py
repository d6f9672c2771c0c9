"""A bot that plays the first moves of the fool's mate."""

from __future__ import annotations

from typing import Any

import chess
from pettingzoo.classic.chess import chess_utils


def action_of(move: chess.Move, board: chess.Board, mask: Any, *, player: int) -> int:
    """The legal action by which PettingZoo's chess makes a move."""
    (found,) = [
        action
        for action in mask.nonzero()[0].tolist()
        if chess_utils.action_to_move(board, action, player) == move
    ]
    return int(found)


class Fool:
    """Plays f3, then g4, whatever the other does."""

    def __init__(self) -> None:
        self._moves = ["f2f3", "g2g4"]

    def reset(self, *_: Any, **__: Any) -> None:
        self._moves = ["f2f3", "g2g4"]

    def act(self, observation: Any, action_mask: Any, **_: Any) -> list[int]:
        wanted = chess.Move.from_uci(self._moves.pop(0))
        return [action_of(wanted, chess.Board(), action_mask[0], player=0)]
