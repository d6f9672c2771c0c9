"""The loop that plays: B environments, stepped by the players who have their seats.

Matches (`arena.matches.match`) are this loop and a log of episodes; training
(`arena.rollout.collector`) is this loop with recorders. Shapes: B environments, S decisions of a
population at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Generic, Protocol

import torch

from arena.envs.base import BatchedEnv, Group, Turn
from arena.matches.seated import NOBODY, PlayerT, SeatedPlayers
from arena.matches.tally import OpenEpisodes, played_to_the_end


class Progress(Protocol):
    """Counter of a loop's turns, which shows that it goes on."""

    def advance(self, agent_steps: int = 0) -> None:
        """Count one turn of the loop."""


class Play(Generic[PlayerT]):
    """Play of B environments, step by step. Subclasses add what is done beside.

    Args:
        env: Environments, stepped as one; reset here, and owned from then on.
        seeds: Seeds, one per environment.
        generator: Source of all actions, on the environments' device.
        seated: Players in their seats.
        episodes: Episodes that each environment plays to their ends before it stands still. Void
            ones do not count. int64 [B]. None: they go on.

    Attributes:
        turn: Turn that asks for the next decisions.
        seated: Players in their seats.
        open: Episodes that have not ended.
    """

    def __init__(
        self,
        env: BatchedEnv,
        *,
        seeds: Sequence[int],
        generator: torch.Generator,
        seated: SeatedPlayers[PlayerT],
        episodes: torch.Tensor | None = None,
    ) -> None:
        self._env = env
        self._generator = generator
        self.seated = seated
        self.turn: Turn = env.reset(seeds)
        self.open = OpenEpisodes(
            num_envs=env.num_envs, num_agents=len(env.agents), device=generator.device
        )
        self._remaining = episodes
        if episodes is not None:
            self._halt(episodes <= 0)

    @property
    def is_done(self) -> bool:
        """Return whether each environment has played its number of episodes."""
        return self._remaining is not None and not bool((self._remaining > 0).any())

    def step(self) -> None:
        """Let the players decide, and step all environments; call it under ``no_grad``."""
        actions = {name: self._decide(name, group) for name, group in self.turn.groups.items()}
        self._decided(actions)
        turn = self.turn = self._env.step(actions)
        self._received(turn)
        self.seated.recurrent_state.reset(turn)
        self.open.add(turn)
        self._record(turn)
        if bool(turn.episode_over.any()):
            self._end(turn)
            self.open.forget(turn.episode_over)
            self._begin_next(turn)

    def _decide(self, population: str, group: Group) -> torch.Tensor:
        """Return the actions of one population. int64 [B, S] or float32 [B, S, K]."""
        return self.seated.decide(population, group, generator=self._generator)

    def _decided(self, actions: Mapping[str, torch.Tensor]) -> None:
        """Take in the decisions that `turn` asked for, before they are carried out."""

    def _received(self, turn: Turn) -> None:
        """Take in the result of a step, before recurrent states are reset."""

    def _record(self, turn: Turn) -> None:
        """Take in the result of a step."""

    def _end(self, turn: Turn) -> None:
        """Take in the episodes that have ended."""

    def _begin_next(self, turn: Turn) -> None:
        """Prepare the next episodes of environments whose episode is over."""
        if self._remaining is not None:
            over = played_to_the_end(turn)
            self._remaining = self._remaining - over.long()
            self._halt(over & (self._remaining <= 0))

    def _halt(self, environments: torch.Tensor) -> None:
        """Halt environments (bool [B]), and ask for no decisions there."""
        if not bool(environments.any()):
            return
        self._env.halt(environments)
        groups = {
            # The turn was made before the halt and asks for decisions there.
            name: replace(
                group, agent_index=group.agent_index.masked_fill(environments[:, None], NOBODY)
            )
            for name, group in self.turn.groups.items()
        }
        self.turn = replace(self.turn, groups=groups)
