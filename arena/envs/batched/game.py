"""The rules of a game for B games at once: what a user implements to be as fast as the hardware.

`arena.envs.batched.batch.GameBatch` makes a `BatchedEnv` of it: seeds, episodes, populations,
scores, halting and checks are its work, so that a game is rules and nothing else. Written in torch
operations on whole batches, the same game runs on a CPU and on a GPU.

Shapes: B games, A agents, S slots of a group (1 where agents take turns, all agents of the group
where they decide at once), F features of a flattened observation, n actions.
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
    """What one step brought, before any game starts anew.

    Attributes:
        reward: What each agent received. float32 [B, A].
        terminated: Agents whose episode ended for good in this step. bool [B, A].
        truncated: Agents whose episode was cut off in this step. bool [B, A]; None: never.
        final_observation: By group, what its agents see last, in the order of ``groups``; read
            only where ``truncated``. float32 [B, agents of the group, F].
    """

    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor | None = None
    final_observation: tuple[torch.Tensor, ...] = ()


class BatchedGame(Protocol):
    """B games of one kind: struct of arrays on one device. One owner.

    A game draws nothing by itself: what is random in an episode is a function of its key (see
    `arena.envs.chance`).
    """

    @property
    def api(self) -> Literal["aec", "parallel"]:
        """Agents take turns, one slot in each group, or all decide at once."""
        ...

    @property
    def agents(self) -> tuple[str, ...]:
        """The A agents in the order of ``reward``'s columns."""
        ...

    @property
    def agent_specs(self) -> Mapping[str, AgentSpec]:
        """What each agent sees and does, as PettingZoo would say it."""
        ...

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Agents with equal spaces; every agent is in one group."""
        ...

    def reset(self, games: torch.Tensor, *, key: torch.Tensor) -> None:
        """Begin new episodes.

        Args:
            games: Which games; the others go on. bool [B].
            key: Decides all chance in the new episodes. int64 [B], each in [0, 2**31).
        """
        ...

    def decisions(self) -> Sequence[Group]:
        """What is asked now, one `Group` per entry of ``groups``.

        Tensors may be views of the game's state: they are read before the next ``step``.
        """
        ...

    def step(self, actions: Sequence[torch.Tensor]) -> StepResult:
        """Carry out the decisions that were asked for.

        Args:
            actions: By group, legal where a decision was asked for (0 elsewhere). int64 [B, S].
        """
        ...


class BatchedGameClass(Protocol):
    """What ``package.module:Class`` must be to serve as ``environment.id`` or as a twin."""

    def __call__(
        self,
        num_games: int,
        *,
        device: torch.device,
        **kwargs: object,
    ) -> BatchedGame:
        """Make B games; ``reset`` begins the first episodes."""
        ...


def refuse_kwargs(name: str, kwargs: Mapping[str, object]) -> None:
    """For games without options.

    Raises:
        ConfigError: If there are any.
    """
    if kwargs:
        raise ConfigError(f"environment.kwargs: {name} takes none, got {dict(kwargs)}")
