"""Random openings: some training episodes begin with uniformly random decisions.

They lead to positions that the policies would not reach by themselves. Shapes: B environments, A
agents, S decisions of a population at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.config import RandomOpenings
from arena.envs.base import Group


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
        # Draw for all environments: the number of draws does not depend on which of them begin.
        draw = torch.rand(size, generator=generator, device=device)
        length = torch.randint(
            1, self._settings.max_decisions + 1, size, generator=generator, device=device
        )
        opened = environments & (draw < self._settings.share)
        # 0 elsewhere: an episode may have ended within its opening and left a rest.
        self._left = torch.where(environments, torch.where(opened, length, 0), self._left)
        return opened

    def claim(self, groups: Mapping[str, Group]) -> torch.Tensor | None:
        """Take the decisions of this turn that are random, and count them.

        Of agents that decide at once the first ones in the environment's order are random, as many
        as are left.

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
            # -1, no decision, adds 0 to agent 0.
            deciding.scatter_add_(1, group.agent_index.clamp(min=0), asked)
        # cumsum numbers the deciding agents of each environment from 1.
        random = (deciding > 0) & (deciding.cumsum(dim=1) <= self._left[:, None])
        self._left -= random.sum(dim=1)
        return random


def random_decisions(random: torch.Tensor | None, agent_index: torch.Tensor) -> torch.Tensor:
    """Bring [B, A] into the shape of a group's decisions. bool [B, S]."""
    if random is None:
        return torch.zeros_like(agent_index, dtype=torch.bool)
    return random.gather(1, agent_index.clamp(min=0)) & (agent_index >= 0)
