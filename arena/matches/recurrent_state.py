"""The recurrent state of each (environment, agent), and a number for each episode.

Shapes: B environments, A agents, S decisions of a population at once, N rows, H numbers of a
recurrent state.
"""

from __future__ import annotations

import itertools

import torch

from arena.envs.base import Turn

# Of the process, not of an object: a bot outlives an assignment and tells episodes apart by them.
_NUMBERS = itertools.count()


class RecurrentState:
    """One recurrent state for each (environment, agent): zeros when an episode begins.

    Players with smaller states use the first numbers.

    Args:
        num_envs: B.
        num_agents: A.
        size: Largest H of the players; 0: none of them is recurrent.
        device: Device of the environments.
        before: States of the episodes that go on; None: all episodes begin.
    """

    def __init__(
        self,
        *,
        num_envs: int,
        num_agents: int,
        size: int,
        device: torch.device,
        before: RecurrentState | None = None,
    ) -> None:
        self._state = torch.zeros(num_envs, num_agents, size, device=device)
        if before is not None:
            # Other players may sit down with `go_on`, so the largest state may change.
            known = min(size, before._state.shape[2])
            self._state[:, :, :known] = before._state[:, :, :known]
        # Numbers only once a bot asks for them: without, no step waits for the device.
        self._episodes: torch.Tensor | None = None if before is None else before._episodes
        # place = b A + agent
        self._first = (torch.arange(num_envs, device=device) * num_agents)[:, None]

    @property
    def episodes(self) -> torch.Tensor:
        """Number of each environment's episode, unique in this process. CPU, int64 [B]."""
        if self._episodes is None:
            self._episodes = new_episodes(len(self._state))
        return self._episodes

    def places(self, agent_index: torch.Tensor) -> torch.Tensor:
        """Return the places of a group's states, for `read` and `write`.

        Args:
            agent_index: Index of the deciding agent, -1 for no decision. int64 [B, S].

        Returns:
            int64 [B, S]; undefined where there is no decision.
        """
        return self._first + agent_index.clamp(min=0)

    def read(self, places: torch.Tensor, *, size: int) -> torch.Tensor:
        """Return a copy of the states at some places. int64 [N] to float32 [N, H]."""
        # index_select copies: `write` must not change what a rollout has stored.
        return self._state.flatten(0, 1)[:, :size].index_select(0, places)

    def write(self, places: torch.Tensor, state: torch.Tensor) -> None:
        """Write states [N, H] to places [N]."""
        self._state.view(-1, self._state.shape[2])[places, : state.shape[1]] = state

    def reset(self, turn: Turn) -> None:
        """Set the states of agents whose episode is over to zeros."""
        if self._state.shape[2]:
            # An agent may end before its episode does.
            over = turn.terminated | turn.truncated | turn.episode_over[:, None]
            self._state.masked_fill_(over[:, :, None], 0.0)
        if self._episodes is not None:
            ended = turn.episode_over.cpu()
            self._episodes[ended] = new_episodes(int(ended.sum()))


def new_episodes(count: int) -> torch.Tensor:
    """Return numbers of new episodes, unique in this process. int64 [count]."""
    return torch.tensor([next(_NUMBERS) for _ in range(count)], dtype=torch.int64)
