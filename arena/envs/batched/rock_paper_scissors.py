"""Rock, paper, scissors and its larger variants: the twin of PettingZoo's ``classic/rps-v2``.

Shapes: B games, n actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeGuard

import torch

from arena.environment_spec import AgentSpec
from arena.envs.base import Group
from arena.envs.batched.game import StepResult
from arena.errors import ConfigError

AGENTS = ("player_0", "player_1")
DEFAULTS = {"num_actions": 3, "max_cycles": 15}


class RockPaperScissors:
    """A `BatchedGame` that truncates: both agents act at once and see the other's last action.

    Of two different actions the higher one wins if their sum is odd, else the lower one.
    """

    api: Literal["parallel"] = "parallel"
    agents = AGENTS
    groups = (AGENTS,)

    def __init__(self, num_games: int, *, device: torch.device, **kwargs: object) -> None:
        """Prepare B games.

        Args:
            num_games: B.
            device: Device of all tensors.
            kwargs: Options of the original: ``num_actions`` (n, an odd number of at least 3;
                default 3) and ``max_cycles`` (steps of an episode; default 15).

        Raises:
            ConfigError: If there are others, or one is out of its range.
        """
        num_actions, self._max_cycles = _checked(kwargs)
        self.agent_specs: Mapping[str, AgentSpec] = dict.fromkeys(
            AGENTS,
            AgentSpec(
                observation={"kind": "Discrete", "n": num_actions + 1, "start": 0},
                action={"kind": "Discrete", "n": num_actions, "start": 0},
                mask=None,
            ),
        )
        self._num_actions = num_actions
        # The dtype is explicit, because users' code in this process may have changed the default.
        self._one_hot = torch.eye(num_actions + 1, dtype=torch.float32, device=device)
        self._reward = _rewards(num_actions).to(device)
        self._slots = torch.arange(2, device=device).expand(num_games, 2)
        self._nobody = torch.zeros(num_games, 2, dtype=torch.bool, device=device)
        # `_seen` has the other agent's last action, as each agent sees it; n before the first one.
        # [B, 2]
        self._seen = torch.full((num_games, 2), num_actions, device=device)
        self._num_cycles = torch.zeros(num_games, dtype=torch.int64, device=device)

    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        """Clear the last actions. There is no chance in this game."""
        self._num_cycles = self._num_cycles.masked_fill(games, 0)
        self._seen = self._seen.masked_fill(games[:, None], self._num_actions)

    def decisions(self) -> tuple[Group]:
        """Return the decisions of both agents, which see the other's last action."""
        return (Group(self._slots, self._observation(), None),)

    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        """Compare the two actions of each game."""
        first, second = actions[0].unbind(dim=1)
        self._num_cycles = self._num_cycles + 1
        # Each agent sees the other's action. [B, 2]
        self._seen = actions[0].flip(1)
        cut_off = self._num_cycles >= self._max_cycles
        return StepResult(
            # The table [n, n] is flattened: row first * n + second.
            reward=self._reward.index_select(0, first * self._num_actions + second),
            terminated=self._nobody,
            truncated=cut_off[:, None].expand(-1, 2),
            # The observation is taken before the reset that follows the end.
            final_observation=(self._observation(),),
        )

    def _observation(self) -> torch.Tensor:
        """Return both observations, one-hot. float32 [B, 2, n + 1]."""
        return self._one_hot.index_select(0, self._seen.flatten()).view(*self._seen.shape, -1)


def _rewards(num_actions: int) -> torch.Tensor:
    """Return the rewards of both agents, by first and second action. float32 [n * n, 2]."""
    action = torch.arange(num_actions)
    first, second = action[:, None], action[None, :]
    # With an odd number of actions, each action beats half of the others.
    higher_wins = (first + second) % 2 == 1
    first_wins = torch.where(higher_wins, first > second, first < second)
    reward = torch.where(first == second, 0.0, torch.where(first_wins, 1.0, -1.0))
    # The game is zero-sum. [n, n, 2] -> [n * n, 2]
    return torch.stack((reward, -reward), dim=2).flatten(0, 1).float()


def _checked(kwargs: Mapping[str, object]) -> tuple[int, int]:
    unknown = sorted(set(kwargs) - set(DEFAULTS))
    if unknown:
        raise ConfigError(
            f"environment.kwargs: RockPaperScissors takes {' and '.join(DEFAULTS)}, "
            f"got {unknown[0]!r}"
        )
    found = {**DEFAULTS, **kwargs}
    num_actions, max_cycles = found["num_actions"], found["max_cycles"]
    if not _is_integer(num_actions) or num_actions < 3 or num_actions % 2 == 0:
        raise ConfigError(
            "environment.kwargs.num_actions must be an odd integer of at least 3, "
            f"got {num_actions!r}"
        )
    if not _is_integer(max_cycles):
        raise ConfigError(f"environment.kwargs.max_cycles must be an integer, got {max_cycles!r}")
    return num_actions, max_cycles


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
