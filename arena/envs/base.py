"""The batched view: B environments stepped as one, AEC and Parallel alike.

Shapes: B environments, A agents (in the spec's order), S agents of a population that decide at once
(1 in AEC; all agents of the population in Parallel), P agents of a population, F features of a
flattened observation, n actions. Importing this module does not import torch.

Tests: `tests/arena/envs/test_batched.py`, `tests/arena/envs/batched/test_batch.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from arena.envs.episode_metrics import Report

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class Group:
    """Pending decisions of one population.

    Attributes:
        agent_index: Index of the deciding agent, -1 for no decision. int64 [B, S].
        observation: Flattened observations. float32 [B, S, F] (uint8 where everything observed is
            bytes); undefined where there is no decision.
        action_mask: True for legal choices. bool [B, S, n], or None without masks.
        action_shape: Shape of one action: () for an integer, (K,) for a row of float32.
    """

    agent_index: torch.Tensor
    observation: torch.Tensor
    action_mask: torch.Tensor | None
    action_shape: tuple[int, ...] = ()

    def new_actions(self) -> torch.Tensor:
        """Return zeros to write actions into. int64 [B, S] or float32 [B, S, K]."""
        import torch

        if not self.action_shape:
            # The actions have the index's shape [B, S], dtype int64 and device.
            return torch.zeros_like(self.agent_index)
        # [B, S] + (K,) -> [B, S, K]
        shape = (*self.agent_index.shape, *self.action_shape)
        return torch.zeros(shape, dtype=torch.float32, device=self.agent_index.device)


@dataclass(slots=True)
class Turn:
    """State of B environments after a reset or a step.

    The tensors stay valid until the next call of ``step`` or ``reset``; copy them to keep them.

    Attributes:
        groups: Pending decisions, by population.
        reward: Reward of each agent since the last call, on turn or not. float32 [B, A].
        terminated: Agents whose episode ended for good in this call. bool [B, A].
        truncated: Agents whose episode was cut off in this call. bool [B, A].
        final_observation: Last observation of truncated agents, by population. [B, P, F], of the
            dtype of observations; undefined for other agents.
        episode_over: Environments that have been reset already: ``groups`` shows the first decision
            of the new episode; ``reward``, ``terminated`` and ``truncated`` still concern the old
            one. bool [B].
        score: Points of each side in the episode that just ended. Against another side it scores
            1/2 + (its points - the other's) / 2, within [0, 1]. In cooperation the objective by
            which plays are compared, NaN if that is the return. NaN where ``episode_over`` is
            False. float32 [B, sides].
        components: Components of each agent's reward since the last call, in the order of
            ``environment.reward_weights``; None where that is empty. float32 [B, A, R].
        figures: Episode metrics of agents whose episode ended in this call, if any.
        void: Environments whose episode ended because they broke: no score, no match, no training
            on it. None: no environment. bool [B].
        state: The environment's ``state()`` after this call, flattened; None unless a value network
            reads it. float32 or uint8 [B, G].
        final_state: State before any reset; undefined where no agent was truncated. [B, G].
        episode: Number of the episode that the step belonged to, as in `BatchedEnv.reset`. Numbers
            of episodes that could not begin are skipped. Undefined after a reset; None where
            episodes are not numbered. int64 [B].
    """

    groups: Mapping[str, Group]
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    final_observation: Mapping[str, torch.Tensor]
    episode_over: torch.Tensor
    score: torch.Tensor
    components: torch.Tensor | None = None
    figures: Sequence[Report] = ()
    void: torch.Tensor | None = None
    state: torch.Tensor | None = None
    final_state: torch.Tensor | None = None
    episode: torch.Tensor | None = None

    def mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Turn:
        """Return a turn with each tensor replaced, including those of its groups."""
        turn: Turn = _mapped(self, change)
        return turn


def _mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping):
        return {name: _mapped(part, change) for name, part in value.items()}
    if isinstance(value, Turn | Group):
        parts = {one.name: _mapped(getattr(value, one.name), change) for one in fields(value)}
        return type(value)(**parts)
    # Action shapes and agents' reports are sequences, which are not tensors.
    return value if value is None or isinstance(value, Sequence) else change(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Phase of the episodes of one environment, as passed to its ``set_phase``.

    Attributes:
        name: ``training`` or ``evaluation``.
        agent_steps: Agent steps of the trainee at the start of its assignment; of several trainees
            those of the first. None in evaluation, where no policy learns.
        players: Player of each agent.
    """

    name: Literal["training", "evaluation"]
    agent_steps: int | None
    players: Mapping[str, str]


class BatchedEnv(Protocol):
    """B environments stepped as one. Not thread-safe; one owner.

    The loop that uses it::

        turn = env.reset(seeds)
        while True:
            actions = {name: choose(group) for name, group in turn.groups.items()}
            turn = env.step(actions)
    """

    @property
    def num_envs(self) -> int:
        """Number B of environments."""

    @property
    def agents(self) -> tuple[str, ...]:
        """The A agents in the order of ``reward``'s columns."""

    def reset(self, seeds: Sequence[int]) -> Turn:
        """Start all environments: (seeds[b], k) alone seeds episode k of environment b.

        Args:
            seeds: One seed per environment, each in [0, 2**63). Length B.
        """

    def step(self, actions: Mapping[str, torch.Tensor]) -> Turn:
        """Carry out the pending decisions.

        Args:
            actions: Actions by population, int64 [B, S] or float32 [B, S, K] (rows, see
                `arena.spaces`); ignored where ``agent_index`` is -1.

        Raises:
            EnvironmentFault: If an environment returns a non-finite number, a wrong shape or dtype,
                or an empty mask, or raises.
        """

    def halt(self, environments: torch.Tensor) -> None:
        """Halt environments until they are resumed; they have no pending decisions meanwhile.

        Args:
            environments: Environments to halt. bool [B].
        """

    def resume(self, environments: torch.Tensor) -> None:
        """Let halted environments begin their episode in the next call of ``step``.

        An episode that began before the halt begins again, with the same seed.

        Args:
            environments: Environments to resume. bool [B].
        """

    def close(self) -> None:
        """Release everything that the environments hold."""


@runtime_checkable
class Told(Protocol):
    """`BatchedEnv` that passes phases to its environments."""

    def tell(self, phases: Sequence[Phase]) -> None:
        """Set the phase of each environment's episodes from the next one on. Length B."""


class TurnWrapper(ABC):
    """`BatchedEnv` that changes the turns of another one.

    Args:
        env: Wrapped environment.
    """

    def __init__(self, env: BatchedEnv) -> None:
        self._env = env

    @property
    def num_envs(self) -> int:
        """Number B of environments."""
        return self._env.num_envs

    @property
    def agents(self) -> tuple[str, ...]:
        """The A agents in the order of ``reward``'s columns."""
        return self._env.agents

    def reset(self, seeds: Sequence[int]) -> Turn:
        """Reset as `BatchedEnv.reset` does."""
        return self._changed(self._env.reset(seeds))

    def step(self, actions: Mapping[str, torch.Tensor]) -> Turn:
        """Step as `BatchedEnv.step` does."""
        return self._changed(self._env.step(actions))

    def halt(self, environments: torch.Tensor) -> None:
        """Halt as `BatchedEnv.halt` does."""
        self._env.halt(environments)

    def resume(self, environments: torch.Tensor) -> None:
        """Resume as `BatchedEnv.resume` does."""
        self._env.resume(environments)

    def tell(self, phases: Sequence[Phase]) -> None:
        """Pass phases on as `Told.tell` does, if the environment takes phases."""
        if isinstance(self._env, Told):
            self._env.tell(phases)

    def close(self) -> None:
        """Close as `BatchedEnv.close` does."""
        self._env.close()

    @abstractmethod
    def _changed(self, turn: Turn) -> Turn:
        """Return the turn to show in place of the wrapped environment's."""
