"""What players remember of the episodes that they play, by environment and agent.

Shapes: B environments, A agents, S decisions of a population at once, N rows, H numbers of a state.
"""

from __future__ import annotations

import itertools

import torch

from arena.envs.base import Turn

_NUMBERS = itertools.count()


class Memory:
    """One state for each (environment, agent), of whoever sits there: zeros at first.

    Players with smaller states use the first numbers.

    Args:
        num_envs: B.
        num_agents: A.
        size: The largest H; 0: nobody remembers anything, and nothing is kept.
        device: Of the environments.
        before: States of the episodes that go on; None: all begin.
    """

    def __init__(
        self,
        *,
        num_envs: int,
        num_agents: int,
        size: int,
        device: torch.device,
        before: Memory | None = None,
    ) -> None:
        self._state = torch.zeros(num_envs, num_agents, size, device=device)
        if before is not None:
            known = min(size, before._state.shape[2])
            self._state[:, :, :known] = before._state[:, :, :known]
        self._episodes: torch.Tensor | None = None if before is None else before._episodes
        self._first = (torch.arange(num_envs, device=device) * num_agents)[:, None]

    @property
    def episodes(self) -> torch.Tensor:
        """A number for each episode that goes on, its own in this process. CPU, int64 [B]."""
        if self._episodes is None:
            self._episodes = new_episodes(len(self._state))
        return self._episodes

    def places(self, agent_index: torch.Tensor) -> torch.Tensor:
        """Where the states of a group's decisions are, for `recall` and `keep`.

        Args:
            agent_index: Which agent decides. int64 [B, S].

        Returns:
            int64 [B, S]; of no use where nobody decides.
        """
        return self._first + agent_index.clamp(min=0)

    def recall(self, places: torch.Tensor, *, size: int) -> torch.Tensor:
        """The states of some decisions, copied. int64 [N] to float32 [N, H]."""
        return self._state.flatten(0, 1)[:, :size].index_select(0, places)

    def keep(self, places: torch.Tensor, state: torch.Tensor) -> None:
        """Remember states [N, H] from now on."""
        self._state.view(-1, self._state.shape[2])[places, : state.shape[1]] = state

    def forget(self, turn: Turn) -> None:
        """Forget what belongs to episodes, or parts of agents in them, that are over."""
        if self._state.shape[2]:
            over = turn.terminated | turn.truncated | turn.episode_over[:, None]
            self._state.masked_fill_(over[:, :, None], 0.0)
        if self._episodes is not None:
            ended = turn.episode_over.cpu()
            self._episodes[ended] = new_episodes(int(ended.sum()))


def new_episodes(count: int) -> torch.Tensor:
    """Numbers that no other episode in this process has. int64 [count]."""
    return torch.tensor([next(_NUMBERS) for _ in range(count)], dtype=torch.int64)
