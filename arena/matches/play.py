"""The loop that plays: B environments, stepped with the actions of the seated players.

Matches (`arena.matches.match`) add a log of episodes to this loop; training
(`arena.rollout.collector`) adds recorders. In both, some episodes may begin with uniformly random
decisions, which lead to positions that the players would not reach by themselves. Shapes: B
environments, A agents, S decisions of a population at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar, Generic, Protocol

import torch

from arena.config import NO_OPENINGS, RandomOpenings
from arena.envs.base import BatchedEnv, Group, Turn
from arena.matches.actors import RandomActor
from arena.matches.seated import NOBODY, PlayerT, SeatedPlayers, decide
from arena.matches.tally import OpenEpisodes, played_to_the_end
from arena.spaces import ActionLayout


class Progress(Protocol):
    """Counter of a loop's turns, which shows that the loop is alive."""

    def advance(self, agent_steps: int = 0) -> None:
        """Count one turn of the loop."""


class Openings:
    """The number of random decisions left in each environment's episode.

    Args:
        settings: Share of episodes with an opening, and its largest length.
        num_envs: B.
        num_agents: A.
        device: Device of the environments.
    """

    def __init__(
        self, settings: RandomOpenings, *, num_envs: int, num_agents: int, device: torch.device
    ) -> None:
        self._settings = settings
        self._num_agents = num_agents
        self._left = torch.zeros(num_envs, dtype=torch.int64, device=device)

    def begin(self, environments: torch.Tensor, *, generator: torch.Generator) -> torch.Tensor:
        """Draw the openings of episodes that begin now.

        Args:
            environments: Environments in which an episode begins. bool [B].
            generator: Source of the openings and their lengths.

        Returns:
            Environments whose episode begins with an opening. bool [B].
        """
        if self._settings.share == 0.0:
            return torch.zeros_like(environments)
        size, device = self._left.shape, self._left.device
        # Drawing for all environments keeps the number of draws independent of which of them
        # begin.
        draw = torch.rand(size, generator=generator, device=device)
        length = torch.randint(
            1, self._settings.max_decisions + 1, size, generator=generator, device=device
        )
        opened = environments & (draw < self._settings.share)
        # Elsewhere it is 0, because an episode may have ended within its opening.
        self._left = torch.where(environments, torch.where(opened, length, 0), self._left)
        return opened

    def claim(self, groups: Mapping[str, Group]) -> torch.Tensor | None:
        """Mark the random decisions of this turn, and count them.

        Of agents that decide at once, the first ones in the environment's order are random, up to
        the number of random decisions left.

        Returns:
            bool [B, A]; None if there are none.
        """
        if self._settings.share == 0.0 or not bool(self._left.any()):
            return None
        num_envs = len(self._left)
        deciding = torch.zeros(
            num_envs, self._num_agents, dtype=torch.int64, device=self._left.device
        )
        for group in groups.values():
            asked = (group.agent_index >= 0).long()
            # Index -1, no decision, adds 0 to agent 0.
            deciding.scatter_add_(1, group.agent_index.clamp(min=0), asked)
        # cumsum numbers the deciding agents of each environment from 1.
        random = (deciding > 0) & (deciding.cumsum(dim=1) <= self._left[:, None])
        self._left -= random.sum(dim=1)
        return random


def random_decisions(random: torch.Tensor, agent_index: torch.Tensor) -> torch.Tensor:
    """Bring [B, A] into the shape of a group's decisions. bool [B, S]."""
    return random.gather(1, agent_index.clamp(min=0)) & (agent_index >= 0)


class Play(Generic[PlayerT]):
    """Play of B environments, step by step. Subclasses add recording.

    Args:
        env: Environments, stepped as one; reset here, and owned from then on.
        seeds: Seeds, one per environment.
        generator: Source of all actions, on the environments' device.
        seated: Players in their seats.
        episodes: Episodes that each environment completes before it is halted. Void ones do not
            count. int64 [B]. None: no limit.
        openings: Share of episodes that begin with random decisions, and how many.
        actions: Layouts by population, from which random decisions are drawn.

    Attributes:
        turn: Turn that asks for the next decisions.
        seated: Players in their seats.
        open: Episodes that have not ended.
    """

    _OPENINGS_ARE_VOID: ClassVar[bool] = False
    """Whether an episode is no match if it began with random decisions."""

    def __init__(
        self,
        env: BatchedEnv,
        *,
        seeds: Sequence[int],
        generator: torch.Generator,
        seated: SeatedPlayers[PlayerT],
        episodes: torch.Tensor | None = None,
        openings: RandomOpenings = NO_OPENINGS,
        actions: Mapping[str, ActionLayout] = MappingProxyType({}),
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
        self._openings = Openings(
            openings, num_envs=env.num_envs, num_agents=len(env.agents), device=generator.device
        )
        self._random = {name: RandomActor(layout) for name, layout in actions.items()}
        self._drawn: torch.Tensor | None = None
        self._open(torch.ones(env.num_envs, dtype=torch.bool, device=generator.device))

    @property
    def is_done(self) -> bool:
        """Return whether each environment has played its number of episodes."""
        return self._remaining is not None and not bool((self._remaining > 0).any())

    def step(self) -> None:
        """Let the players decide, and step all environments; call it under ``no_grad``."""
        self._drawn = self._openings.claim(self.turn.groups)
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
        owner, action = self.seated.owners(group.agent_index), group.new_actions()
        if self._drawn is not None:
            # Random decisions have no owner, so neither policies nor recurrent states see them.
            drawn = random_decisions(self._drawn, group.agent_index)
            owner = owner.masked_fill(drawn, NOBODY)
            decide(
                self._random[population],
                group,
                where=drawn,
                action=action,
                agents=self._env.agents,
                generator=self._generator,
            )
        self._learn(population, group, owner=owner, action=action)
        self.seated.play_frozen(
            population, group, owner=owner, action=action, generator=self._generator
        )
        return action

    def _learn(
        self, population: str, group: Group, *, owner: torch.Tensor, action: torch.Tensor
    ) -> None:
        """Let the policies that learn make their decisions and write them into ``action``."""

    def _decided(self, actions: Mapping[str, torch.Tensor]) -> None:
        """Handle the decisions that `turn` asked for, before they are carried out."""

    def _received(self, turn: Turn) -> None:
        """Handle the result of a step, before recurrent states are reset."""

    def _record(self, turn: Turn) -> None:
        """Handle the result of a step."""

    def _end(self, turn: Turn) -> None:
        """Handle the episodes that have ended."""

    def _begin_next(self, turn: Turn) -> None:
        """Prepare the next episodes of environments whose episode is over."""
        self._open(turn.episode_over)
        if self._remaining is not None:
            over = played_to_the_end(turn)
            self._remaining = self._remaining - over.long()
            self._halt(over & (self._remaining <= 0))

    def _open(self, environments: torch.Tensor) -> None:
        """Draw the openings of the episodes that begin in environments (bool [B])."""
        opened = self._openings.begin(environments, generator=self._generator)
        if self._OPENINGS_ARE_VOID:
            self.open.void |= opened

    def _halt(self, environments: torch.Tensor) -> None:
        """Halt environments (bool [B]), and remove their pending decisions."""
        if not bool(environments.any()):
            return
        self._env.halt(environments)
        groups = {
            # The turn was made before the halt and still has decisions in these environments.
            name: replace(
                group, agent_index=group.agent_index.masked_fill(environments[:, None], NOBODY)
            )
            for name, group in self.turn.groups.items()
        }
        self.turn = replace(self.turn, groups=groups)
