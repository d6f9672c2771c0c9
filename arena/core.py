"""START HERE: the nouns of the worker's side, as Protocols.

    BatchedEnv   B environments stepped as one            arena.envs.base
    Actor        chooses actions for rows of observations  bots, ghosts, exported champions
    Algorithm    how a policy learns                       arena.learning.ppo
    Transport    moves messages                            arena.wire.transport
    Sink         takes metrics                             arena.metrics

A learner process loads policies from checkpoints, lets them play in a BatchedEnv against Actors,
hands the rollouts to an Algorithm, and publishes new checkpoints::

    turn = env.reset(seeds)
    while agent_steps < budget:
        rollout = collector.collect()      # T steps of B environments
        metrics = algorithm.update(rollout)
    publish(algorithm)

Shapes: N rows, F features of a flattened observation, n actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch

if TYPE_CHECKING:
    from arena.rollout.buffer import Rollout


@runtime_checkable
class Actor(Protocol):
    """Chooses actions: a frozen policy, a bot, an exported champion. Keeps no state."""

    def act(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        agent: str,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Choose one action per row.

        Args:
            observation: Flattened. float32 [N, F].
            action_mask: True for legal actions. bool [N, n], or None.
            agent: Whose decisions these are.
            generator: The only source of randomness.

        Returns:
            int64 [N].
        """
        ...


class Algorithm(Protocol):
    """How one policy learns: its network, its optimizer, and what a rollout does to them.

    Owned by one thread. Constructed by `arena.learning.algorithms.make_algorithm`.
    """

    @property
    def rollout_length(self) -> int:
        """Calls of ``step`` in one rollout."""
        ...

    @property
    def gamma(self) -> float:
        """Discount per own decision."""
        ...

    @property
    def gae_lambda(self) -> float:
        """Of generalized advantage estimation."""
        ...

    @property
    def learner_updates(self) -> int:
        """Optimizer steps so far."""
        ...

    def act(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sample actions while training.

        Returns:
            Actions int64 [N], their log-probabilities float32 [N], values float32 [N] (in units
            of reward).
        """
        ...

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """Expected discounted return. float32 [N, F] to float32 [N]."""
        ...

    def update(self, rollout: Rollout, *, generator: torch.Generator) -> dict[str, float]:
        """Learn from one rollout and return flat, finite metrics.

        Raises:
            NonFiniteError: After three updates in a row that had to be skipped.
        """
        ...

    def weights(self) -> dict[str, torch.Tensor]:
        """Network and normalizers: all that playing needs. float32 CPU copies."""
        ...

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """The optimizer's tensors, float32 CPU copies, by stable names; no hyperparameters."""
        ...

    def load(
        self,
        weights: Mapping[str, torch.Tensor],
        optimizer_state: Mapping[str, torch.Tensor] | None,
        *,
        learner_updates: int,
    ) -> None:
        """Take over weights and optimizer (None: a fresh one), then apply the hyperparameters.

        Raises:
            CheckpointCorrupt: If names or shapes differ from this architecture's.
        """
        ...
