"""START HERE: the nouns of the worker's side, as Protocols.

    BatchedEnv   B environments stepped as one            arena.envs.base
    Actor        chooses actions for rows of observations  bots, ghosts, exported champions
    RememberingActor    the same, with a memory            ghosts with a GRU or LSTM
    ActorInGames    the same, told in which games it decides    users' bots
    Algorithm    how a policy learns                       arena.learning.ppo
    RememberingAlgorithm    the same, with a memory        arena.learning.ppo
    CentralizedAlgorithm    the same, with values that see more than the policy
    Transport    moves messages                            arena.wire.transport
    Sink         takes metrics                             arena.metrics

A learner process loads policies from checkpoints, lets them play in a BatchedEnv against Actors,
hands the rollouts to an Algorithm, and publishes new checkpoints::

    turn = env.reset(seeds)
    while agent_steps < budget:
        rollout = collector.collect()      # T steps of B environments
        metrics = algorithm.update(rollout)
    publish(algorithm)

Shapes: N rows, F features of a flattened observation, n actions, H numbers of a state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch

if TYPE_CHECKING:
    from arena.experience import Rollout
    from arena.types import Seat


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


@runtime_checkable
class RememberingActor(Protocol):
    """An actor with a memory. It keeps none itself: whoever seats it does, for each (environment,
    agent), and begins every episode with zeros.
    """

    @property
    def state_size(self) -> int:
        """H. At 0 there is no memory, and it is an `Actor` like others."""
        ...

    def act_from(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        state: torch.Tensor,
        agent: str,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose one action per row, as `Actor.act`.

        Args:
            observation: [N, F].
            action_mask: bool [N, n], or None.
            state: What is remembered of earlier decisions. float32 [N, H].
            agent: Whose decisions these are.
            generator: The only source of randomness.

        Returns:
            The actions, and what is remembered after them, float32 [N, H].
        """
        ...


@runtime_checkable
class ActorInGames(Protocol):
    """An actor that is told in which games of the batch it decides, and where one begins."""

    def act_in(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        seat: Seat,
        agent: str,
        games: torch.Tensor,
        episodes: torch.Tensor,
        generator: torch.Generator,
    ) -> torch.Tensor:
        """Choose one action per row, as `Actor.act`.

        Args:
            observation: [N, F].
            action_mask: bool [N, n], or None.
            seat: The seat that the agent belongs to.
            agent: Whose decisions these are.
            games: The environment of each row, by its index in the batch. On the CPU. int64 [N].
            episodes: Of each row, a number that no other episode has in this process. On the CPU.
                int64 [N].
            generator: The only source of randomness.

        Returns:
            int64 [N].
        """
        ...


class Algorithm(Protocol):
    """How one policy learns: its network, its optimizer, and what a rollout does to them.

    Owned by one thread. Constructed by `arena.learning.algorithms.make_algorithm`. What it keeps
    beside ``weights`` and ``optimizer_state`` ends with each checkpoint: ``load`` leaves the policy
    as if it had just been made and loaded.
    """

    @property
    def rollout_length(self) -> int:
        """Calls of ``step`` in one rollout; of N > 2 agents who take turns, N / 2 times as many."""
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
    def needs_transitions(self) -> bool:
        """Whether rollouts are to say what followed each decision."""
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
        """Learn from one rollout and return flat, finite metrics of what was measured.

        Raises:
            NonFiniteError: After three updates in a row that had to be skipped.
        """
        ...

    def weights(self) -> dict[str, torch.Tensor]:
        """Network and normalizers: all that playing needs. float32 CPU copies.

        They are what is rated, kept as a ghost and exported, perhaps averages of those that learn.
        """
        ...

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """What else learning needs: the optimizer's tensors and whatever a restart must find again.

        Float32 CPU copies, by stable names; no hyperparameters.
        """
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


@runtime_checkable
class RememberingAlgorithm(Protocol):
    """What an `Algorithm` has besides if its policy has a memory.

    Its ``act`` and ``value`` are not called then, but these, and its rollouts say which decisions
    follow each other (`arena.experience.Rollout.sequences`).
    """

    @property
    def state_size(self) -> int:
        """H, the numbers that a memory has. At 0 there is none, as without this property."""
        ...

    @property
    def bptt_length(self) -> int | None:
        """Decisions of the longest sequence; None: as long as the rollout."""
        ...

    def act_from(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        state: torch.Tensor,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sample actions while training.

        Args:
            observation: [N, F].
            action_mask: bool [N, n], or None.
            state: What is remembered of the agent's earlier decisions in its episode; zeros at its
                first. float32 [N, H].
            generator: The only source of randomness.

        Returns:
            What `Algorithm.act` returns, and the state after it, float32 [N, H].
        """
        ...

    def value_from(self, observation: torch.Tensor, *, state: torch.Tensor) -> torch.Tensor:
        """Expected discounted return. [N, F] and float32 [N, H] to float32 [N]."""
        ...


@runtime_checkable
class CentralizedAlgorithm(Protocol):
    """What an `Algorithm` has besides if its values are computed from rows of their own.

    Its ``act``, ``value``, ``act_from`` and ``value_from`` are not called then, but these, and its
    rollouts have the rows (`arena.experience.Rollout.critic_input`). What the policy does must
    not depend on them: nobody has them when it plays.
    """

    @property
    def critic_size(self) -> int:
        """G, the numbers of such a row. At 0 there is none, as without this property."""
        ...

    def act_with_critic(
        self,
        observation: torch.Tensor,
        action_mask: torch.Tensor | None,
        *,
        critic_input: torch.Tensor,
        state: torch.Tensor | None,
        generator: torch.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Sample actions while training.

        Args:
            observation: [N, F].
            action_mask: bool [N, n], or None.
            critic_input: What values are computed from. float32 or uint8 [N, G].
            state: As `RememberingAlgorithm.act_from` takes it; None: there is no memory.
            generator: The only source of randomness.

        Returns:
            What `RememberingAlgorithm.act_from` returns; without a memory None at the end.
        """
        ...

    def value_with_critic(
        self,
        observation: torch.Tensor,
        *,
        critic_input: torch.Tensor,
        state: torch.Tensor | None,
    ) -> torch.Tensor:
        """Expected discounted return. float32 [N]; arguments as in `act_with_critic`."""
        ...


def critic_size(algorithm: object) -> int:
    """Numbers of the rows that only an algorithm's values see; 0: none, or it does not say."""
    size: int = getattr(algorithm, "critic_size", 0)
    return size


def state_size(player: object) -> int:
    """Numbers that an actor or an algorithm remembers; 0: none, or it does not say."""
    size: int = getattr(player, "state_size", 0)
    return size
