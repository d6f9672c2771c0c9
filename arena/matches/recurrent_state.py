"""The recurrent state of each (environment, agent), a number for each episode, and a player's rows.

Shapes: B environments, A agents, S decisions of a population at once, N rows, H numbers of a
recurrent state, F features, n actions.
"""

from __future__ import annotations

import itertools

import torch

from arena.envs.base import Group, Turn

# The counter is global to the process, because a bot outlives an assignment and distinguishes
# episodes by these numbers.
_NUMBERS = itertools.count()


class RecurrentState:
    """One recurrent state for each (environment, agent): zeros when an episode begins.

    Players with smaller states use the first numbers.

    Args:
        num_envs: B.
        num_agents: A.
        size: Largest H of the players; 0: none of them is recurrent.
        device: Device of the environments.
        before: States of continuing episodes; None: all episodes begin.
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
            # `go_on` may seat other players, so the largest state size may change.
            known = min(size, before._state.shape[2])
            self._state[:, :, :known] = before._state[:, :, :known]
        # Numbers are made only when a bot reads them; otherwise no step waits for the device.
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
        # index_select copies, because `write` must not change a state that a rollout has stored.
        return self._state.flatten(0, 1)[:, :size].index_select(0, places)

    def write(self, places: torch.Tensor, state: torch.Tensor) -> None:
        """Write states [N, H] to places [N]."""
        self._state.view(-1, self._state.shape[2])[places, : state.shape[1]] = state

    def reset(self, turn: Turn) -> None:
        """Set the states of agents whose episode is over to zeros."""
        if self._state.shape[2]:
            # An agent's episode may end before the environment's episode does.
            over = turn.terminated | turn.truncated | turn.episode_over[:, None]
            self._state.masked_fill_(over[:, :, None], 0.0)
        if self._episodes is not None:
            ended = turn.episode_over.cpu()
            self._episodes[ended] = new_episodes(int(ended.sum()))


def new_episodes(count: int) -> torch.Tensor:
    """Return numbers for new episodes, unique in this process. int64 [count]."""
    return torch.tensor([next(_NUMBERS) for _ in range(count)], dtype=torch.int64)


class Rows:
    """The rows of a flattened group that one player decides.

    Args:
        group: Pending decisions.
        where: Decisions of the player. bool [B, S].
    """

    def __init__(self, group: Group, *, where: torch.Tensor) -> None:
        self._group = group
        self.index = where.flatten().nonzero().squeeze(1)
        """Positions in the flattened group. int64 [rows]."""
        # In mirror self-play without pauses one player has every row, so nothing needs to be
        # gathered.
        self._all = len(self.index) == where.numel()

    def __len__(self) -> int:
        """Return the number of decisions."""
        return len(self.index)

    def take(self, per_decision: torch.Tensor) -> torch.Tensor:
        """Return the rows of a tensor [B, S, ...]. Shape [rows, ...]."""
        flat = per_decision.flatten(0, 1)
        # index_select is several times faster than indexing.
        return flat if self._all else flat.index_select(0, self.index)

    @property
    def observation(self) -> torch.Tensor:
        """Observations [rows, F]."""
        return self.take(self._group.observation)

    @property
    def action_mask(self) -> torch.Tensor | None:
        """Legal actions, bool [rows, n], or None without masks."""
        mask = self._group.action_mask
        return None if mask is None else self.take(mask)

    def put(self, per_decision: torch.Tensor, values: torch.Tensor) -> None:
        """Write values [rows, ...] into a contiguous tensor [B, S, ...]."""
        # view raises instead of copying; a copy would receive the values and be lost.
        flat = per_decision.view(-1, *per_decision.shape[2:])
        if self._all:
            flat.copy_(values)
        else:
            flat.index_copy_(0, self.index, values.to(flat.dtype))
