"""Arrays of the batched view, and the place of each agent in them. Torch-free.

Environments write rows, and `arena.envs.stepped` shows them as tensors without a copy.
Shapes: B environments, A agents (in the spec's order), S agents of a population that decide at
once, P agents of a population, F features of a flattened observation, n actions.

Tests: `tests/arena/envs/test_batched.py`, `tests/arena/envs/test_faults.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arena.environment_spec import ContinuousActions, EnvironmentSpec, SpaceJson
from arena.envs.episode_metrics import EpisodeFigures
from arena.envs.pettingzoo.pending_decisions import (
    NO_DECISION,
    Allocate,
    DecisionFault,
    PendingDecisions,
)
from arena.envs.spaces.observations import flatten_into
from arena.errors import ConfigError, EnvironmentFault
from arena.spaces import ObservationLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Place of an agent in the buffers, equal in every environment.

    Attributes:
        column: Agent's index.
        population: Decisions of its population.
        position: Agent's index in the population.
        slot: Its slot there.
    """

    column: int
    population: PendingDecisions
    position: int
    slot: int


class Places(dict[str, Place]):
    """Places by agent; an unknown agent raises an `EnvironmentFault`."""

    def __missing__(self, agent: str) -> Place:
        """Raise the fault of an unknown agent."""
        raise EnvironmentFault(
            f"agent {agent!r} acts or ends but is not in possible_agents, which the environment or "
            f"environment.possible_agents must list"
        )


class States:
    """States of B environments as rows of G numbers.

    Args:
        space: Space of one state.
        num_envs: B.
        allocate: Function that allocates the rows.

    Attributes:
        now: States after the last call. float32 or uint8 [B, G].
        final: States before any reset; undefined where no agent was truncated. [B, G].
    """

    def __init__(self, space: SpaceJson, *, num_envs: int, allocate: Allocate) -> None:
        self._layout = layout = ObservationLayout.from_json(space)
        self.now = allocate((num_envs, layout.size), layout.dtype)
        # `final` has its own array, because the reset after an end overwrites `now`.
        self.final = allocate(self.now.shape, layout.dtype)

    def write(self, rows: npt.NDArray[Any], b: int, state: object) -> None:
        """Write a state into ``now`` or ``final``.

        Raises:
            EnvironmentFault: If the state differs from the inspected space.
        """
        try:
            flatten_into(self._layout, rows[b], state)
        except EnvironmentFault as fault:
            raise EnvironmentFault(f"state(): {fault}") from fault


class Buffers:
    """State of B environments, allocated once.

    ``places`` maps an agent to its place. ``has_decided`` and ``has_ended`` (bool [B, A]) say
    whether an agent has had a decision in this episode before this call, and whether its end is
    recorded.

    Args:
        spec: Environment's spec.
        populations: Agents by population; every agent is in one.
        num_envs: B.
        num_sides: Number of columns of the score.
        continuous_actions: Way of bringing numbers of actions within their bounds.
        components: Names of the R components of rewards.
        state: Space of the environments' states. None: states are not read.
        allocate: Function that allocates what a turn shows, always in the same order.
        first: Index of the first of these environments in the batch that they are a share of.

    Attributes:
        has_void: Whether an episode of this call is void (``is_void``, bool [B]).
        states: States of the environments; None: states are not read.

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
        state: SpaceJson | None = None,
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
        self.states = None if state is None else States(state, num_envs=num_envs, allocate=allocate)
        self.populations = {
            name: PendingDecisions(
                name,
                spec=spec,
                agents=agents,
                num_envs=num_envs,
                continuous=continuous_actions,
                allocate=allocate,
                first=first,
            )
            for name, agents in populations.items()
        }
        self.has_decided = np.zeros((num_envs, num_agents), dtype=np.bool_)
        self.has_ended = np.zeros((num_envs, num_agents), dtype=np.bool_)
        self.places = Places(
            (
                agent,
                Place(
                    column=spec.agents.index(agent),
                    population=self.populations[name],
                    position=position,
                    slot=position % self.populations[name].num_slots,
                ),
            )
            for name, agents in populations.items()
            for position, agent in enumerate(agents)
        )

    def check(self, actions: Mapping[str, npt.NDArray[Any]]) -> dict[str, list[Any]]:
        """Check the actions of all populations, as `PendingDecisions.check` does."""
        return {
            name: population.check(actions[name]) for name, population in self.populations.items()
        }

    def forget(self, environments: Sequence[int]) -> None:
        """Drop the pending decisions of some environments."""
        for population in self.populations.values():
            # The decisions are written already; clearing the index makes them invalid.
            population.agent_index[list(environments)] = NO_DECISION

    def clear(self) -> None:
        """Clear the last call: no rewards, no ends, no pending decisions."""
        self.reward.fill(0.0)
        if self.components is not None:
            self.components.fill(0.0)
        self.terminated.fill(False)
        self.truncated.fill(False)
        self.episode_over.fill(False)
        # An unfinished episode has no score.
        self.score.fill(np.nan)
        self.figures.clear()
        self.is_void.fill(False)
        self.has_void = False
        for population in self.populations.values():
            population.clear()

    def void(self, b: int) -> None:
        """Void the episode of environment b, which broke; it has no pending decisions.

        An episode that was already over keeps its results: the next one is void.
        """
        for population in self.populations.values():
            population.forget(b)
        # The fault came with the next episode's reset, so the ended episode keeps its results.
        if self.episode_over[b]:
            return
        self.reward[b] = 0.0
        if self.components is not None:
            self.components[b] = 0.0
        self.terminated[b] = self.truncated[b] = False
        self.score[b] = np.nan
        self.figures.void(b)
        # A void episode is over, too, because the next one begins in this call.
        self.episode_over[b] = self.is_void[b] = self.has_void = True

    def all_are_new(self) -> None:
        """Mark no episode as over or void, after a reset of all environments."""
        self.episode_over.fill(False)
        self.has_void = False

    def write(self) -> None:
        """Write the decisions that are pending since ``clear``.

        Raises:
            DecisionFault: If an observation or a mask is invalid. Once that environment is void,
                the method can be called again.
        """
        for population in self.populations.values():
            try:
                # If this is called again after a fault, populations that are written already have
                # empty lists.
                cells = population.write()
            except DecisionFault as fault:
                text = f"environment {self._environment_id} {fault}"
                raise DecisionFault(text, environment=fault.environment) from fault
            # `reshape` returns views, because the arrays are contiguous. An agent that decides
            # again after its end is alive again, so its end is cleared.
            self.has_decided.reshape(-1)[cells] = True
            self.has_ended.reshape(-1)[cells] = False


def check_partition(agents: tuple[str, ...], *, populations: Mapping[str, tuple[str, ...]]) -> None:
    """Check that every agent is in exactly one population.

    Raises:
        ConfigError: If the check fails.
    """
    members = [agent for population in populations.values() for agent in population]
    # Sorted lists are compared instead of sets, to detect an agent in two populations.
    if sorted(members) != sorted(agents):
        raise ConfigError(f"populations must have every agent of {agents} once, got {members}")
