"""Protocol of a batched game, the rules of B games at once; the fastest kind of environment.

`arena.envs.batched.batch.GameBatch` makes a `BatchedEnv` of it and is responsible for seeds,
episodes, populations, scores, halting and checks, so that a game is rules and nothing else. Written
in torch operations on whole batches, the same game runs on a CPU and on a GPU.

Shapes: B games, A agents, S slots of a group (1 where agents take turns, all agents of the group
where they decide at once), F features of a flattened observation, n actions.

Tests: `tests/arena/envs/batched/test_batch.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from arena.environment_spec import AgentSpec
from arena.envs.base import Group
from arena.errors import ConfigError


@dataclass(slots=True, kw_only=True)
class StepResult:
    """Result of one step, before any game starts anew.

    Attributes:
        reward: Reward of each agent. float32 [B, A].
        terminated: Agents whose episode ended for good in this step. bool [B, A].
        truncated: Agents whose episode was cut off in this step. bool [B, A]; None: never.
        final_observation: Last observations of the agents, by group in the order of ``groups``;
            read only where ``truncated``. float32 [B, agents of the group, F].
    """

    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor | None = None
    final_observation: tuple[torch.Tensor, ...] = ()


class BatchedGame(Protocol):
    """B games of one kind: struct of arrays on one device. One owner.

    A game has no generator of its own: everything random in an episode is a function of its key
    (see `arena.envs.chance`).
    """

    @property
    def api(self) -> Literal["aec", "parallel"]:
        """``aec``: agents take turns, with one slot per group; ``parallel``: all decide at once."""

    @property
    def agents(self) -> tuple[str, ...]:
        """The A agents in the order of ``reward``'s columns."""

    @property
    def agent_specs(self) -> Mapping[str, AgentSpec]:
        """Observation and action space of each agent, in PettingZoo's terms."""

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Agents with equal spaces; every agent is in one group."""

    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        """Begin new episodes.

        Args:
            games: Games to reset; the others go on. bool [B].
            key: Source of all chance in the new episodes. int64 [B], each in [0, 2**31).
        """

    def decisions(self) -> Sequence[Group]:
        """Return the pending decisions, one `Group` per entry of ``groups``.

        Tensors may be views of the game's state, which are read before the next ``step``.
        """

    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        """Carry out the pending decisions.

        Args:
            actions: Actions by group, legal where a decision is pending (0 elsewhere). int64 [B,
                S].
        """


class BatchedGameClass(Protocol):
    """Class that can serve as ``environment.id`` (``package.module:Class``) or as a twin."""

    def __call__(
        self,
        num_games: int,
        *,
        device: torch.device,
        **kwargs: object,
    ) -> BatchedGame:
        """Make B games; ``reset`` begins the first episodes."""


def refuse_kwargs(name: str, kwargs: Mapping[str, object]) -> None:
    """Refuse kwargs, for games without options.

    Raises:
        ConfigError: If there are any.
    """
    if kwargs:
        raise ConfigError(f"environment.kwargs: {name} takes none, got {dict(kwargs)}")
