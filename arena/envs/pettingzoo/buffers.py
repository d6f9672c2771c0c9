"""Arrays of the batched view, and the place of each agent in them. Torch-free.

Environments write rows, and `arena.envs.pettingzoo.batch` shows them as tensors without a copy.
Shapes: B environments, A agents (in the spec's order), S agents of a population that decide at
once, P agents of a population, F features of a flattened observation, n actions.

Tests: `tests/arena/envs/test_batched.py`, `tests/arena/envs/test_faults.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.environment_spec import ContinuousActions, EnvironmentSpec, MaskPlace
from arena.envs.episode_metrics import EpisodeFigures
from arena.envs.pettingzoo.pending_decisions import DecisionBatch, DecisionFault
from arena.envs.spaces.actions import ActionLayout
from arena.envs.spaces.observations import ObservationLayout
from arena.errors import ConfigError, EnvironmentFault

NO_DECISION = -1
"""Stands for an agent's index."""

Allocate = Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]
"""Function that returns zeros of a shape and a dtype; the first dimension is that of environments.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationBuffers:
    """Pending decisions of one population, and last observations of its truncated agents.

    Attributes:
        agents: The P agents.
        layout: Layout of their observations.
        actions: Layout of their actions.
        mask: Place of their masks.
        agent_index: Index of the deciding agent. int64 [B, S].
        observation: Observations, float32 or uint8, as the layout says. [B, S, F].
        action_mask: Legal choices. bool [B, S, n].
        final_observation: Last observations, as observation. [B, P, F].
    """

    agents: tuple[str, ...]
    layout: ObservationLayout
    actions: ActionLayout
    mask: MaskPlace | None
    agent_index: npt.NDArray[np.int64]
    observation: npt.NDArray[Any]
    action_mask: npt.NDArray[np.bool_]
    final_observation: npt.NDArray[Any]

    def check(self, name: str, actions: npt.NDArray[Any]) -> list[Any]:
        """Check the actions for the pending decisions.

        Args:
            name: Name of the population, for messages.
            actions: Actions of its agents. int64 [B, S] or float32 [B, S, K].

        Returns:
            All actions, in the environment's own form, [B * S].

        Raises:
            ValueError: If the shape is wrong, or an action for a pending decision is not legal.
        """
        if not self.actions.is_discrete:
            return self._check_rows(name, actions)
        chosen = actions
        if chosen.shape != self.agent_index.shape or chosen.dtype != np.int64:
            raise ValueError(
                f"actions of {name} must be int64 {self.agent_index.shape}, "
                f"got {chosen.dtype} {chosen.shape}"
            )
        number = self.actions.num_logits
        legal = (chosen >= 0) & (chosen < number)
        if self.mask is not None:
            masks = self.action_mask.reshape(-1, number)
            # Choices out of range would not index the mask; they stay illegal by the &=. [B, S] ->
            # [B * S]
            index = np.where(legal, chosen, 0).reshape(-1)
            legal &= masks[np.arange(len(masks)), index].reshape(legal.shape)
        # Slots without a decision are ignored, as `BatchedEnv.step` says.
        illegal = (self.agent_index >= 0) & ~legal
        if illegal.any():
            b, s = (int(index) for index in np.argwhere(illegal)[0])
            raise ValueError(
                f"actions of {name} must be legal and in [0, {number}), "
                f"got {chosen[b, s]} in environment {b}"
            )
        return self.actions.actions(chosen.reshape(-1))

    def _check_rows(self, name: str, chosen: npt.NDArray[Any]) -> list[Any]:
        shape = (*self.agent_index.shape, *self.actions.row_shape)
        if chosen.shape != shape or chosen.dtype != np.float32:
            raise ValueError(
                f"actions of {name} must be float32 {shape}, got {chosen.dtype} {chosen.shape}"
            )
        asked = self.agent_index.reshape(-1) >= 0
        # [B, S, K] -> [B * S, K]; zeros where nothing was asked, as rows may be NaN there
        rows = np.where(asked[:, None], chosen.reshape(len(asked), -1), np.float32(0.0))
        masks = None
        if self.mask is not None:
            masks = self.action_mask.reshape(len(asked), -1)
        illegal = asked & ~self.actions.are_legal(rows, masks)
        if illegal.any():
            at = int(illegal.argmax())
            raise ValueError(
                f"actions of {name} must be finite, and legal choices of "
                f"{list(self.actions.branches)}, got {rows[at].tolist()} in environment "
                f"{at // self.agent_index.shape[1]}"
            )
        return self.actions.actions(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Place of an agent in the buffers, equal in every environment.

    Attributes:
        column: Agent's index.
        asked: Collector of its decisions.
        population: Buffers of its population.
        position: Agent's index in the population.
    """

    column: int
    asked: DecisionBatch
    population: PopulationBuffers
    position: int


class Places(dict[str, Place]):
    """Places by agent; an unknown agent is the environment's fault."""

    def __missing__(self, agent: str) -> Place:
        """Raise the fault."""
        raise EnvironmentFault(
            f"agent {agent!r} acts or ends but is not in possible_agents, which the environment or "
            f"environment.possible_agents must list"
        )


class Buffers:
    """State of B environments, allocated once.

    ``places`` maps an agent to its place. ``has_decided`` and ``has_ended`` (bool [B, A]) tell
    whether an agent has had a decision in this episode before this call, and whether its end is
    recorded.

    Args:
        spec: Environment's spec.
        populations: Agents by population; every agent is in one.
        num_envs: B.
        num_sides: Number of columns of the score.
        continuous_actions: Way of bringing numbers of actions within their bounds.
        components: Names of the R components of rewards.
        allocate: Function that allocates what a turn shows, always in the same order.
        first: Index of the first of these environments in the batch that they are a share of.

    Attributes:
        has_void: Whether an episode of this call is void (``is_void``, bool [B]).

    Raises:
        ConfigError: If an agent is in no population or in two, or is not in the spec.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        *,
        populations: Mapping[str, tuple[str, ...]],
        num_envs: int,
        num_sides: int,
        continuous_actions: ContinuousActions = "squashed",
        components: tuple[str, ...] = (),
        allocate: Allocate = np.zeros,
        first: int = 0,
    ) -> None:
        check_partition(spec.agents, populations=populations)
        num_agents = len(spec.agents)
        self._environment_id = spec.id
        self.agents = spec.agents
        self.num_envs = num_envs
        self.reward = allocate((num_envs, num_agents), np.float32)
        self.component_names = components
        shape = (num_envs, num_agents, len(components))
        self.components = allocate(shape, np.float32) if components else None
        self.terminated = allocate((num_envs, num_agents), np.bool_)
        self.truncated = allocate((num_envs, num_agents), np.bool_)
        self.episode_over = allocate((num_envs,), np.bool_)
        self.episode = allocate((num_envs,), np.int64)
        self.score = allocate((num_envs, num_sides), np.float32)
        self.is_void = allocate((num_envs,), np.bool_)
        self.has_void = False
        self.figures = EpisodeFigures()
        self.populations = {
            name: _population(
                spec, agents, num_envs=num_envs, continuous=continuous_actions, allocate=allocate
            )
            for name, agents in populations.items()
        }
        self.has_decided = np.zeros((num_envs, num_agents), dtype=np.bool_)
        self.has_ended = np.zeros((num_envs, num_agents), dtype=np.bool_)
        asked = {
            name: _asked(spec.agents, population, first=first)
            for name, population in self.populations.items()
        }
        # The collectors keep views of the buffers: arrays are filled from here on, never replaced.
        self._asked = tuple(asked.values())
        self.places = Places(
            (
                agent,
                Place(
                    column=spec.agents.index(agent),
                    asked=asked[name],
                    population=population,
                    position=position,
                ),
            )
            for name, population in self.populations.items()
            for position, agent in enumerate(population.agents)
        )

    def check(self, actions: Mapping[str, npt.NDArray[Any]]) -> dict[str, list[Any]]:
        """Check the actions of all populations, as `PopulationBuffers.check` does."""
        return {
            name: population.check(name, actions[name])
            for name, population in self.populations.items()
        }

    def forget(self, environments: Sequence[int]) -> None:
        """Drop the pending decisions of some environments."""
        for population in self.populations.values():
            # They are written already; they only stop to count.
            population.agent_index[list(environments)] = NO_DECISION

    def clear(self) -> None:
        """Clear the last call: no rewards, no ends, no pending decisions."""
        self.reward.fill(0.0)
        if self.components is not None:
            self.components.fill(0.0)
        self.terminated.fill(False)
        self.truncated.fill(False)
        self.episode_over.fill(False)
        # An episode that goes on has no score.
        self.score.fill(np.nan)
        self.figures.clear()
        self.is_void.fill(False)
        self.has_void = False
        for asked in self._asked:
            asked.clear()

    def void(self, b: int) -> None:
        """Void the episode of environment b, which broke; it has no pending decisions.

        An episode that was already over keeps its results: the next one is void.
        """
        for asked in self._asked:
            asked.forget(b)
        # The fault came with the next episode's reset.
        if self.episode_over[b]:
            return
        self.reward[b] = 0.0
        if self.components is not None:
            self.components[b] = 0.0
        self.terminated[b] = self.truncated[b] = False
        self.score[b] = np.nan
        self.figures.void(b)
        # Void is over, too: the next episode begins in this call.
        self.episode_over[b] = self.is_void[b] = self.has_void = True

    def all_are_new(self) -> None:
        """Mark no episode as over: this was a reset, and faults in it void nothing."""
        self.episode_over.fill(False)
        self.has_void = False

    def write(self) -> None:
        """Write the decisions that are pending since ``clear``.

        Raises:
            DecisionFault: If an observation or a mask is invalid. Once that environment is void,
                the method can be called again.
        """
        for asked in self._asked:
            try:
                # Populations written before a fault have empty lists when this is called again.
                cells = asked.write()
            except DecisionFault as fault:
                text = f"environment {self._environment_id} {fault}"
                raise DecisionFault(text, environment=fault.environment) from fault
            # reshape gives views, as the arrays are contiguous. An agent that decides again after
            # its end, having come back, has not ended.
            self.has_decided.reshape(-1)[cells] = True
            self.has_ended.reshape(-1)[cells] = False


def _population(
    spec: EnvironmentSpec,
    agents: tuple[str, ...],
    *,
    num_envs: int,
    continuous: ContinuousActions,
    allocate: Allocate,
) -> PopulationBuffers:
    # All agents of a population have equal spaces: `check_equal_spaces` of the configuration.
    facts = spec.agent_specs[agents[0]]
    layout = ObservationLayout.from_json(facts.observation)
    actions = ActionLayout.from_json(facts.action, continuous=continuous)
    slots = 1 if spec.api == "aec" else len(agents)
    population = PopulationBuffers(
        agents=agents,
        layout=layout,
        actions=actions,
        mask=facts.mask,
        agent_index=allocate((num_envs, slots), np.int64),
        observation=allocate((num_envs, slots, layout.size), layout.dtype),
        action_mask=allocate((num_envs, slots, actions.num_logits), np.bool_),
        final_observation=allocate((num_envs, len(agents), layout.size), layout.dtype),
    )
    population.agent_index.fill(NO_DECISION)
    population.action_mask.fill(True)
    return population


def _asked(agents: tuple[str, ...], population: PopulationBuffers, *, first: int) -> DecisionBatch:
    """Make the collector of the decisions of a population's agents."""
    num_envs, slots = population.agent_index.shape
    # -1 at the agents of other populations: they never ask here
    row_of_cell = np.full((num_envs, len(agents)), -1, dtype=np.int64)
    for position, agent in enumerate(population.agents):
        # In turns all agents of the population share the slot.
        slot = 0 if slots == 1 else position
        row_of_cell[:, agents.index(agent)] = np.arange(num_envs) * slots + slot
    return DecisionBatch(
        agents,
        layout=population.layout,
        actions=population.actions,
        mask=population.mask,
        first=first,
        row_of_cell=row_of_cell.reshape(-1),
        # Views of the contiguous buffers: [B, S, ...] -> [B * S, ...]
        agent_index=population.agent_index.reshape(-1),
        observation=population.observation.reshape(num_envs * slots, population.layout.size),
        action_mask=population.action_mask.reshape(num_envs * slots, population.actions.num_logits),
    )


def check_partition(agents: tuple[str, ...], *, populations: Mapping[str, tuple[str, ...]]) -> None:
    """Check that every agent is in exactly one population.

    Raises:
        ConfigError: If the check fails.
    """
    members = [agent for population in populations.values() for agent in population]
    # Sorted lists, not sets: an agent in two populations must differ, too.
    if sorted(members) != sorted(agents):
        raise ConfigError(f"populations must have every agent of {agents} once, got {members}")
