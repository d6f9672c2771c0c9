"""A recorded game, played again in a batch of one environment and checked step by step.

Tests: `tests/arena/games/test_recording.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from arena.envs.base import BatchedEnv, Phase, Told, Turn
from arena.errors import ArenaError, EnvironmentFault
from arena.games.recording import shown
from arena.types import SHOWN_BYTES, Game


class GameParted(ArenaError):
    """The environment does not show what it showed in the game."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """State of a game before its next step, or after its last one.

    Attributes:
        step: Calls of ``step`` so far.
        turn: Turn of the environment, B = 1.
        actions: Actions that were chosen at it, by population; None at the end.
    """

    step: int
    turn: Turn
    actions: Mapping[str, torch.Tensor] | None


def replay(
    env: BatchedEnv, game: Game, *, phase: Phase | None = None, is_over: bool = True
) -> Iterator[Moment]:
    """Play a recorded game again.

    A turn is valid until the next one is asked for.

    Args:
        env: One environment, as matches of the run are played in.
        game: The game.
        phase: Phase that the environment is told before, if it wants to know.
        is_over: Whether the game was played to its end.

    Yields:
        Each moment, after its digest was found to be that of the game.

    Raises:
        GameParted: If the environment shows or pays something else than in the game, does not take
            an action of it, breaks, or ends elsewhere.
        EnvironmentFault: If the environment breaks at its reset.
    """
    if phase is not None and isinstance(env, Told):
        env.tell([phase])
    here = torch.zeros(1, dtype=torch.int64)
    turn = env.reset([game.seed])
    actions = _actions(game, turn)
    for step in range(game.steps + 1):
        digest = game.shown[SHOWN_BYTES * step : SHOWN_BYTES * (step + 1)]
        if shown(turn, here.to(turn.reward.device)) != [digest]:
            raise GameParted(
                f"at step {step} of {game.steps} it shows or pays something else than in the game"
            )
        chosen = next(actions, None)
        if chosen is None and is_over and not bool(turn.episode_over[0]):
            raise GameParted(f"after step {game.steps} it goes on, where the game was over")
        yield Moment(step=step, turn=turn, actions=chosen)
        if chosen is not None:
            try:
                turn = env.step(chosen)
            # No game is kept in which it broke.
            except (ValueError, EnvironmentFault) as error:
                raise GameParted(f"at step {step} of {game.steps} it refuses: {error}") from error


def _actions(game: Game, turn: Turn) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the actions of each step of a game, by population, B = 1."""
    blank = {name: group.new_actions() for name, group in turn.groups.items()}
    wanted = game.steps * sum(one.nbytes for one in blank.values())
    unpacker = zlib.decompressobj()
    try:
        # Bounded: what is packed may unpack to much more than it should be.
        data = bytearray(unpacker.decompress(game.actions, max(wanted, 1)))
    except zlib.error as error:
        raise GameParted(f"its actions cannot be read: {error}") from error
    if len(data) != wanted or unpacker.unconsumed_tail:
        raise GameParted(
            f"its actions are {len(data)} bytes, and {game.steps} steps of this environment have "
            f"{wanted}"
        )
    at = 0
    for _ in range(game.steps):
        actions = {}
        for name, one in blank.items():
            rows = one.flatten()
            if one.nbytes:
                rows = torch.frombuffer(data, dtype=one.dtype, count=one.numel(), offset=at)
            actions[name] = rows.reshape(one.shape).to(one.device)
            at += one.nbytes
        yield actions
