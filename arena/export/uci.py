"""A policy of PettingZoo's chess for any chess program, by UCI: ``python champion.py --uci``.

Needs PettingZoo's chess (``pip install 'pettingzoo[classic]'``) beside numpy and onnxruntime. The
file is copied unchanged beside ``champion.py`` into exports of chess and imports nothing of Arena.

The policy looks at a position once and searches nothing, so every time control is kept and depth
and nodes are 1. The protocol: https://backscattering.de/chess/uci/ (Meyer-Kahlen and Huber, 2006).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import chess
import numpy as np
from pettingzoo.classic import chess_v6
from pettingzoo.classic.chess import chess_utils

_PLANES = 13
"""Planes of one position in the environment's history."""


class Position:
    """Position as the environment shows it, by the environment's own functions.

    Args:
        fen: Position to begin with. None: a new game.

    Attributes:
        board: The board; not to be changed.
        agent: Agent that is to move.

    Raises:
        ValueError: If it is no position of chess.
    """

    def __init__(self, fen: str | None = None) -> None:
        self._env: Any = chess_v6.env().unwrapped
        self._env.reset()
        self.board = self._env.board = chess.Board(fen or chess.STARTING_FEN)
        if not self.board.is_valid():
            raise ValueError(f"not a position of chess: {fen}")
        if fen is not None:
            # The environment shows an empty history only at the beginning of a game.
            self._remember()
        self._select()

    def observe(self) -> dict[str, Any]:
        """Return what the agent that is to move sees, with its action mask."""
        observation: dict[str, Any] = self._env.observe(self.agent)
        return observation

    def move_of(self, action: int) -> chess.Move:
        """Return the move of an action of the agent that is to move."""
        move: chess.Move = chess_utils.action_to_move(self.board, action, int(not self.board.turn))
        return move

    def push(self, move: chess.Move) -> None:
        """Make a move.

        Games go on where the environment ends them, at a draw that could be claimed: the program
        in front decides that.

        Raises:
            ValueError: If it is illegal.
        """
        if move not in self.board.legal_moves:
            raise ValueError(f"illegal move {move.uci()} in {self.board.fen()}")
        self.board.push(move)
        self._remember()
        self._select()

    def _remember(self) -> None:
        shown = chess_utils.get_observation(self.board, player=0)[:, :, -_PLANES:]
        history = self._env.board_history[:, :, :-_PLANES]
        self._env.board_history = np.dstack((shown, history))

    def _select(self) -> None:
        self.agent = str(self._env.possible_agents[int(not self.board.turn)])
        self._env.agent_selection = self.agent


class Engine:
    """Engine that answers lines of UCI.

    Args:
        make: Maker of the player of a level; 0: the champion.
        card: Content of the export's ``card.json``.
        level: Level at first.
        sample: Whether the champion samples its moves at first, instead of the likeliest.
    """

    def __init__(
        self,
        make: Callable[[int], Any],
        card: Mapping[str, Any],
        *,
        level: int = 0,
        sample: bool = False,
    ) -> None:
        self._make = make
        self._player = make(level)
        self._name = card["player"]
        self._num_levels = len(card.get("levels", []))
        self._level = level
        self._sample = sample
        self._position = Position()
        # Earlier observations of the agents, in order, for a recurrent player.
        self._seen: list[tuple[str, dict[str, Any]]] = []
        # The answer that is due at the next stop, after go infinite.
        self._pending: str | None = None

    def answers(self, line: str) -> Iterator[str]:
        """Yield the answers to a line; unknown ones have none."""
        command, *words = line.split() or [""]
        try:
            if command == "uci":
                yield from self._introduced()
            elif command == "isready":
                yield "readyok"
            elif command == "ucinewgame":
                self._player.reset()
            elif command == "setoption":
                self._set_option(words)
            elif command == "position":
                self._set_position(words)
            # After ponderhit the opponent has played what was expected, and the clock runs. Every
            # go has its move, and before that of another.
            elif command in ("stop", "ponderhit", "go"):
                if self._pending is not None:
                    yield self._pending
                    self._pending = None
                if command == "go":
                    yield from self._chosen(words)
        except ValueError as error:
            # A chess program shows such a line to its user.
            yield f"info string {error}"

    def _introduced(self) -> Iterator[str]:
        yield f"id name {self._name}"
        yield "id author Arena"
        yield f"option name Sample type check default {str(self._sample).lower()}"
        if self._num_levels:
            # Level 0 is the champion.
            at = f"default {self._level} min 0 max {self._num_levels}"
            yield f"option name Level type spin {at}"
        yield "uciok"

    def _set_option(self, words: Sequence[str]) -> None:
        # setoption name NAME value VALUE
        given = _after(words, "name", ("value",)), _after(words, "value", ())
        name, value = " ".join(given[0]).lower(), " ".join(given[1])
        if name == "sample" and value in ("true", "false"):
            self._sample = value == "true"
        elif name == "level" and value.isdecimal() and int(value) <= self._num_levels:
            self._player = self._make(int(value))
        else:
            raise ValueError(
                f"there is Sample (true or false) and Level (0 to {self._num_levels}), got "
                f"{name} {value}"
            )

    def _set_position(self, words: Sequence[str]) -> None:
        position = Position(" ".join(_after(words, "fen", ("moves",))) or None)
        seen = []
        for word in _after(words, "moves", ()):
            if self._player.is_recurrent:
                seen.append((position.agent, position.observe()))
            position.push(chess.Move.from_uci(word))
        # The state is set only now, so that an illegal line changes nothing.
        self._position, self._seen = position, seen

    def _chosen(self, words: Sequence[str]) -> Iterator[str]:
        position, agent = self._position, self._position.agent
        best = "bestmove (none)"
        if any(position.board.legal_moves):
            self._player.clear()
            for one, seen in self._seen:
                # A recurrent state contains only the agent's own earlier decisions.
                if one == agent:
                    self._player.act(seen, agent=agent)
            observation = position.observe()
            score = ""
            if self._player.has_value:
                score = f" score cp {_centipawns(self._player.value(observation, agent=agent))}"
            action = self._player.act(observation, agent=agent, sample=self._sample)
            move = position.move_of(action).uci()
            yield f"info depth 1 nodes 1{score} pv {move}"
            best = f"bestmove {move}"
        if "infinite" in words or "ponder" in words:
            self._pending = best
        else:
            yield best


def _after(words: Sequence[str], word: str, ends: Sequence[str]) -> list[str]:
    """Return the words after one, up to the first of some others."""
    if word not in words:
        return []
    rest = list(words[list(words).index(word) + 1 :])
    last = min([rest.index(end) for end in ends if end in rest], default=len(rest))
    return rest[:last]


def _centipawns(value: float) -> int:
    """Return the value of a position in hundredths of a pawn: 400 are odds of 10 to 1."""
    # A value is an expected return in [-1, 1], but a network may leave the interval.
    share = min(max((1.0 + value) / 2.0, 0.001), 0.999)
    return round(400.0 * math.log10(share / (1.0 - share)))


def serve(engine: Engine, *, lines: Iterable[str] = sys.stdin) -> None:
    """Answer lines of UCI on standard output until ``quit`` or the end of the input."""
    for line in lines:
        if line.split()[:1] == ["quit"]:
            return
        for answer in engine.answers(line):
            # Lines are printed one by one, because the chess program waits for each.
            print(answer, flush=True)  # noqa: T201  (the protocol)
