"""Games of players that meet, recorded as an evaluation records them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import torch
from msgspec import structs

from arena.core import Actor
from arena.envs.base import BatchedEnv
from arena.games.recording import GameRecorder
from arena.matches.match import Block, play_matches
from arena.types import RANDOM_BOT, Player, PlayerId
from arena.types import Game as RecordedGame
from populations.records.rows import GameRow
from tools.players.game import Game

RANDOM = Player(player=PlayerId(RANDOM_BOT), weights=None)


def play(
    game: Game,
    *,
    num_envs: int,
    most: int | None = None,
    players: Sequence[Player] | None = None,
    actors: Sequence[Actor] | None = None,
    num_matches: int = 1,
    first_seed: int = 0,
    seed: int = 1,
    env: BatchedEnv | None = None,
) -> tuple[GameRecorder, Any]:
    """Let players meet, random ones by default.

    Args:
        game: What they play.
        num_envs: Environments; each is a pairing of its own, whose first game is recorded.
        most: Environments that are recorded. None: all.
        players: Player in each seat.
        actors: Actor in each seat.
        num_matches: Matches.
        first_seed: Seed of the first environment; those of the others follow.
        seed: Seed of the actors' draws.
        env: Environments that are there already.

    Returns:
        What was recorded, and the tallies.
    """
    bots = game.make_bots(RANDOM_BOT)
    num_plays = 2 if len(game.sides) == 1 else 1
    recorder = GameRecorder(num_plays * (num_envs if most is None else most))
    recorder.choose([(number, 1) for number in range(num_envs)], num_plays=num_plays)
    block = Block(
        entrants=tuple(one.entrant for one in players or [RANDOM] * len(game.seats)),
        actors=tuple(actors or [bots[seat.population] for seat in game.seats]),
        num_envs=num_envs,
        num_matches=num_matches,
    )
    with closing(env or game.make_env(num_envs)) as made:
        tallies = play_matches(
            made,
            blocks=[block],
            seats=game.seats,
            sides=game.sides,
            seeds=range(first_seed, first_seed + num_envs),
            generator=torch.Generator().manual_seed(seed),
            recorder=recorder,
        )
    return recorder, tallies


def row_of(name: str, game: RecordedGame, players: Sequence[Player]) -> GameRow:
    """A recorded game as it is kept; the players are those of the seats that took part."""
    return GameRow(
        **structs.asdict(game),
        game=name,
        time="2026-11-28T12:00:00.000+00:00",
        players=tuple(one.player for one in players),
        entrants=tuple(one.entrant for one in players),
        keys=tuple("" if one.weights is None else one.weights.key for one in players),
    )
