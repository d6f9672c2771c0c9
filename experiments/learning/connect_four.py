"""How strong is a Connect Four player? Scores against two bots, and the outcomes it gives away.

    python -m experiments.learning.connect_four PLAYER... [--matches 400] [--json]

A PLAYER is what ``arena evaluate`` takes: of a run the champion plays. Policies play greedily, half
of the matches in each seat. One line a player: its scores against `Tactical` (wins at once, else
blocks, else plays evenly) and against `Search` of depth 4, and the share of the decisive positions
in ``connect_four_positions.txt`` that it gives away, each with Wilson's 95% interval. In a decisive
position the legal moves do not all have the same exact value; a move of less than the best value
gives it away. Against `Search` the first move of either side is drawn evenly: else a greedy policy
would repeat a few games. Some still repeat, which makes the interval too narrow; how many games
were different is printed, too.

The positions are from games between bots and random play, of 16 to 36 stones, and solved exactly;
the last commit that draws them is df9c237f.

Shapes: N boards, 7 columns. Boards are bitboards as in `arena.bots.connect_four`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import arena
from arena.bots.connect_four import (
    CELLS,
    COLUMNS,
    ROWS,
    Bits,
)
from arena.core import Actor, ActorInput, ActorOutput
from arena.errors import ArenaError
from arena.matches.pair_scores import wilson
from arena.matches.tournament import ActorMixture
from arena.types import is_bot
from experiments.commands import TACTICAL
from experiments.harness import parser_of, say
from experiments.learning.connect_four_search import (
    Values,
    board_after,
)
from tools.evaluate.meeting import resolve_players
from tools.terminal.progress import play_progress

ENVIRONMENT = "classic/connect_four-v3"
OPPONENTS = {
    "tactical": (TACTICAL, 0),
    "search": ("bot:experiments.learning.connect_four_search:Search(depth=4)", 2),
}
"""Opponents, and how many moves at the start of a game against them are drawn evenly."""

POSITIONS = Path(__file__).with_name("connect_four_positions.txt")
SEED = 1

Chooser = Callable[[npt.NDArray[np.int8], npt.NDArray[np.bool_], str], Values]
"""Player: observations [N, 6, 7, 2], legal columns [N, 7] and the deciding agent to columns [N]."""

SYMBOLS = ".-=+"
"""How a file shows what a column leads to: no room, a loss, a draw, a win."""

NO_ROOM = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Solved positions.

    Attributes:
        moves: Columns in the order of play, 0 to 6. [N].
        own: Stones of the player on turn. [N].
        other: Stones of the opponent. [N].
        values: 1, 0 or -1 where a column wins, draws or loses, else `NO_ROOM`. [N, 7].
    """

    moves: tuple[str, ...]
    own: Bits
    other: Bits
    values: Values

    @classmethod
    def read(cls, path: Path = POSITIONS) -> Positions:
        """Read a file with a position a line: moves, then values by column."""
        moves, symbols = zip(*(line.split() for line in path.read_text().splitlines()), strict=True)
        boards = np.array([board_after(one) for one in moves], dtype=np.uint64)
        values = np.array([[SYMBOLS.index(symbol) + NO_ROOM for symbol in one] for one in symbols])
        return cls(moves=moves, own=boards[:, 0], other=boards[:, 1], values=values)

    def given_away(self, choose: Chooser) -> npt.NDArray[np.bool_]:
        """Return where a player's move is worth less than the best one. [N]."""
        chosen = np.zeros(len(self.own), dtype=np.int64)
        for index in (0, 1):
            rows = np.flatnonzero(np.bitwise_count(self.own | self.other) % 2 == index)
            observation = observe(self.own[rows], self.other[rows])
            chosen[rows] = choose(observation, self.values[rows] != NO_ROOM, f"player_{index}")
        value = np.take_along_axis(self.values, chosen[:, np.newaxis], axis=1)[:, 0]
        return np.asarray(value < self.values.max(axis=1))


def observe(own: Bits, other: Bits) -> npt.NDArray[np.int8]:
    """Return PettingZoo's observations for the player on turn. [N, 6, 7, 2]."""
    stones = np.stack((own, other), axis=1)[:, np.newaxis, :]
    planes = stones >> CELLS.astype(np.uint64)[:, np.newaxis] & np.uint64(1)
    return planes.astype(np.int8).reshape(len(own), ROWS, COLUMNS, 2)


class Opened(Actor):
    """Player whose moves are drawn evenly while there are few stones on the board.

    Args:
        player: Player that it is after that.
        num_moves: Number of moves of both sides that are drawn.
    """

    def __init__(self, player: Actor, *, num_moves: int) -> None:
        self._player = player
        self._num_moves = num_moves

    @property
    def state_size(self) -> int:
        """H of the player."""
        return self._player.state_size

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        """Choose one action per row."""
        output = self._player.act(inputs, agent=agent, generator=generator)
        drawn = torch.randint(COLUMNS, output.action.shape, generator=generator)
        num_stones = inputs.observation[:, : 2 * ROWS * COLUMNS].sum(dim=1)
        return replace(
            output, action=torch.where(num_stones < self._num_moves, drawn, output.action)
        )


def judge(name: str, *, matches: int, positions: Positions) -> dict[str, object]:
    """Return the figures of a player.

    Args:
        name: PLAYER of ``arena evaluate``.
        matches: Matches against each bot, both seats together; even.
        positions: Solved positions.

    Raises:
        ConfigError: If there is no such player, or it plays another game.
        CheckpointError: If its weights are missing or damaged.
    """
    found: dict[str, object] = {"player": name}
    game, (player,) = resolve_players([name], environment=ENVIRONMENT)
    for key, (bot, num_moves) in OPPONENTS.items():
        both = {
            "player": player.make_actors(game, greedy=True),
            "bot": game.make_bots(bot, is_named=True),
        }
        contenders = {
            who: {of: _opened(actor, num_moves) for of, actor in actors.items()}
            for who, actors in both.items()
        }
        with (
            closing(game.make_env(game.batch_size(matches))) as env,
            play_progress(f"{name}: {matches} matches against {bot}") as progress,
        ):
            result = game.play(
                env, contenders, num_matches=matches // 2, seed=SEED, progress=progress
            )
        first, second = result.pairs
        score = (first.score + 1.0 - second.score) / 2
        found[key] = _with_interval(score, matches) | {"distinct": first.distinct + second.distinct}
    loaded = arena.load(name, environment=ENVIRONMENT if is_bot(name) else None, seed=SEED)

    def choose(
        observation: npt.NDArray[np.int8], legal: npt.NDArray[np.bool_], agent: str
    ) -> Values:
        chosen: Values = loaded.act(observation, legal, agent=agent)
        return chosen

    given_away = positions.given_away(choose)
    found["given_away"] = _with_interval(float(given_away.mean()), len(given_away))
    return found


def _opened(actor: Actor | ActorMixture, num_moves: int) -> Actor | ActorMixture:
    if isinstance(actor, ActorMixture):
        return replace(
            actor, actors=tuple(Opened(member, num_moves=num_moves) for member in actor.actors)
        )
    return Opened(actor, num_moves=num_moves)


def _with_interval(value: float, number: int) -> dict[str, object]:
    low, high = wilson(value, number)
    return {"value": round(value, 4), "low": round(low, 4), "high": round(high, 4)}


def _line(figures: Mapping[str, Any]) -> str:
    cells = [
        f"{key} {one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"
        + (f" ({one['distinct']} different games)" if "distinct" in one else "")
        for key, one in figures.items()
        if key != "player"
    ]
    return f"{figures['player']}: {', '.join(cells)}"


def main() -> None:
    """Judge players and print."""
    parser = parser_of(__doc__)
    parser.add_argument("players", nargs="*", metavar="PLAYER", help="player of arena evaluate")
    parser.add_argument("--matches", type=int, default=400, help="matches against each bot")
    parser.add_argument("--json", action="store_true", help="one JSON document a line")
    options = parser.parse_args()
    if not options.players:
        parser.error("a PLAYER is needed")
    if options.matches < 2 or options.matches % 2:
        parser.error(f"--matches must be even, as each seat has half, got {options.matches}")
    positions = Positions.read()
    for name in options.players:
        try:
            figures = judge(name, matches=options.matches, positions=positions)
        except ArenaError as error:
            parser.error(str(error))
        say(figures if options.json else _line(figures))


if __name__ == "__main__":
    main()
