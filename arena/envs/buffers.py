"""The tensors of the batched view, and the part of them that belongs to one environment.

Numpy and torch share the memory: environments write rows, the batch is read without a copy.
Shapes: B environments, A agents (in the spec's order), S agents of a population that decide at
once, P agents of a population, F features of a flattened observation, n actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch

from arena.envs.agent_row import AgentRow, AgentRows
from arena.envs.base import Group, Turn
from arena.envs.outcome import Score
from arena.envs.spaces import ObservationLayout, first_action, num_actions
from arena.envs.spec import EnvironmentSpec
from arena.errors import ConfigError, EnvironmentFault

NO_DECISION = -1
"""Stands for an agent's index."""

FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationBuffers:
    """What one population is asked, and what its truncated agents saw last.

    Attributes:
        agents: The P agents.
        layout: Of their observations.
        mask: Where their masks are.
        num_actions: n.
        first_action: What the environment calls action 0.
        agent_index: int64 [B, S].
        observation: float32 [B, S, F].
        action_mask: bool [B, S, n].
        final_observation: float32 [B, P, F].
    """

    agents: tuple[str, ...]
    layout: ObservationLayout
    mask: Literal["observation", "info"] | None
    num_actions: int
    first_action: int
    agent_index: npt.NDArray[np.int64]
    observation: npt.NDArray[np.float32]
    action_mask: npt.NDArray[np.bool_]
    final_observation: npt.NDArray[np.float32]

    def check(self, name: str, actions: torch.Tensor) -> list[list[int]]:
        """Check the decisions that were asked for, and return all, [B][S].

        Raises:
            ValueError: If the shape is wrong, or an action that was asked for is not legal.
        """
        chosen = actions.cpu().numpy()
        if chosen.shape != self.agent_index.shape or chosen.dtype != np.int64:
            raise ValueError(
                f"actions of {name} must be int64 {self.agent_index.shape}, "
                f"got {chosen.dtype} {chosen.shape}"
            )
        legal = (chosen >= 0) & (chosen < self.num_actions)
        if self.mask is not None:
            masks = self.action_mask.reshape(-1, self.num_actions)
            index = np.where(legal, chosen, 0).reshape(-1)
            legal &= masks[np.arange(len(masks)), index].reshape(legal.shape)
        illegal = (self.agent_index >= 0) & ~legal
        if illegal.any():
            b, s = (int(index) for index in np.argwhere(illegal)[0])
            raise ValueError(
                f"actions of {name} must be legal and in [0, {self.num_actions}), "
                f"got {chosen[b, s]} in environment {b}"
            )
        listed: list[list[int]] = chosen.tolist()
        return listed

    def fault(self) -> tuple[int, int, str] | None:
        """What is wrong with one of the decisions: environment, agent's index, rule and value.

        Rows that nobody is asked for may hold anything, but mostly they are as good as the others,
        and one look at the whole array is all it takes.
        """
        # Integers are finite.
        if self.layout.dtype.kind == "f" and not (finite := np.isfinite(self.observation)).all():
            for b, s in np.argwhere((self.agent_index != NO_DECISION) & ~finite.all(axis=2)):
                at = int(finite[b, s].argmin())
                value = self.observation[b, s, at]
                return (
                    b,
                    self.agent_index[b, s],
                    f"an observation must be finite in float32, got {value} "
                    f"at position {at} of {self.layout.size}",
                )
        if self.mask is not None and not (allows := self.action_mask.any(axis=2)).all():
            for b, s in np.argwhere((self.agent_index != NO_DECISION) & ~allows):
                return b, self.agent_index[b, s], "an action mask must allow an action, got none"
        return None


class Buffers:
    """All that B environments say, allocated once and shared with torch.

    Args:
        spec: The environment's facts.
        populations: Agents by population; every agent is in one.
        num_envs: B.
        num_sides: Columns of the score.
        device: Where turns go. On the CPU they are the buffers themselves, elsewhere copies.

    Raises:
        ConfigError: If an agent is in no population or in two, or the spec knows it not.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        *,
        populations: Mapping[str, tuple[str, ...]],
        num_envs: int,
        num_sides: int,
        device: torch.device,
    ) -> None:
        check_partition(spec.agents, populations=populations)
        num_agents = len(spec.agents)
        self._environment_id = spec.id
        self.agents = spec.agents
        self.num_envs = num_envs
        self.reward = np.zeros((num_envs, num_agents), dtype=np.float32)
        self.terminated = np.zeros((num_envs, num_agents), dtype=np.bool_)
        self.truncated = np.zeros((num_envs, num_agents), dtype=np.bool_)
        self.episode_over = np.zeros(num_envs, dtype=np.bool_)
        self.score = np.zeros((num_envs, num_sides), dtype=np.float32)
        self.populations = {
            name: _population(spec, agents, num_envs=num_envs)
            for name, agents in populations.items()
        }
        self._device = device
        self._turn = _shared_turn(self)

    def clear(self) -> None:
        """Forget the last call: nothing received, nobody ended, nothing asked."""
        self.reward.fill(0.0)
        self.terminated.fill(False)
        self.truncated.fill(False)
        self.episode_over.fill(False)
        self.score.fill(np.nan)
        for population in self.populations.values():
            population.agent_index.fill(NO_DECISION)

    def agent_row(self, population: PopulationBuffers, agent: str, *, b: int) -> AgentRow:
        """The part of the buffers that one agent in one environment writes."""
        position = population.agents.index(agent)
        slot = 0 if population.agent_index.shape[1] == 1 else position
        return AgentRow(
            agent,
            column=self.agents.index(agent),
            layout=population.layout,
            mask=population.mask,
            asked=population.agent_index[b, slot : slot + 1],
            row=population.observation[b, slot],
            mask_row=population.action_mask[b, slot],
            final=population.final_observation[b, position],
        )

    def turn(self) -> Turn:
        """What the environments have said since ``clear``, checked as a whole.

        Raises:
            EnvironmentFault: If an observation that an agent gets is not finite, or its mask empty.
        """
        for population in self.populations.values():
            fault = population.fault()
            if fault is not None:
                b, column, why = fault
                raise EnvironmentFault(
                    f"environment {self._environment_id} at {b} in the batch: "
                    f"agent {self.agents[column]!r}: {why}"
                )
        return self._turn if self._device.type == "cpu" else _moved(self._turn, self._device)


class EpisodeRow:
    """One environment's part of the buffers, and what its episode has brought so far.

    The steppers tell it what their environment says; it checks that and writes it down.

    Args:
        buffers: Of the batch.
        b: Which environment.
        score: Scores an episode that has ended.
        keeps_infos: Whether ``score`` looks at infos.
    """

    def __init__(self, buffers: Buffers, *, b: int, score: Score, keeps_infos: bool) -> None:
        self._buffers = buffers
        self.b = b
        self._score = score
        self._keeps_infos = keeps_infos
        self._reward = buffers.reward[b]
        self.agents = AgentRows(
            (agent, buffers.agent_row(population, agent, b=b))
            for population in buffers.populations.values()
            for agent in population.agents
        )
        self._returns = [0.0] * len(buffers.agents)
        self._infos: dict[str, Mapping[str, object]] = {}

    def begin(self) -> None:
        """A new episode."""
        self._returns = [0.0] * len(self._returns)
        self._infos = {}
        for row in self.agents.values():
            row.begin()

    def ask(self, agent: str, observation: Any, info: Mapping[str, Any] | None) -> None:  # noqa: ANN401
        """Ask an agent for a decision.

        Raises:
            EnvironmentFault: If the observation or the mask is not the space's.
        """
        self.agents[agent].ask(observation, info)

    def credit(self, rewards: Mapping[str, float]) -> None:
        """Add what agents received.

        Raises:
            EnvironmentFault: If a reward is not a finite number, or an unknown agent's.
        """
        for agent, reward in rewards.items():
            if reward == 0:
                continue
            row = self.agents.get(agent)
            if row is None:
                raise EnvironmentFault(f"agent {agent!r} has a reward but is no possible agent")
            if not _is_finite(reward):
                raise EnvironmentFault(
                    f"agent {agent!r}: a reward must be finite in float32, got {reward!r}"
                )
            self._reward[row.column] += reward
            self._returns[row.column] += float(reward)

    def has_ended(self, agent: str) -> bool:
        """Whether the agent's end in this episode is written down."""
        return self.agents[agent].has_ended

    def terminate(self, agent: str, info: Mapping[str, Any] | None) -> None:
        """An agent's episode ended for good."""
        row = self.agents[agent]
        self._buffers.terminated[self.b, row.column] = True
        self._end(agent, row, info)

    def truncate(self, agent: str, observation: Any, info: Mapping[str, Any] | None) -> None:  # noqa: ANN401
        """An agent's episode was cut off; ``observation`` is the last one.

        Raises:
            EnvironmentFault: If the observation is not the space's.
        """
        row = self.agents[agent]
        row.keep_final(observation)
        self._buffers.truncated[self.b, row.column] = True
        self._end(agent, row, info)

    def finish(self, infos: Mapping[str, Any]) -> None:
        """The episode is over: score it.

        Agents that have decided and whose end the environment never told (it emptied ``agents``)
        have terminated: there is nothing to bootstrap from.
        """
        for agent, row in self.agents.items():
            if row.has_decided and not row.has_ended:
                self.terminate(agent, infos.get(agent))
        if self._keeps_infos:
            for agent, info in infos.items():
                if agent in self.agents:
                    self._infos[agent] = info
        buffers, b = self._buffers, self.b
        returns = dict(zip(buffers.agents, self._returns, strict=True))
        buffers.episode_over[b] = True
        buffers.score[b] = self._score(returns, self._infos)

    def _end(self, agent: str, row: AgentRow, info: Mapping[str, Any] | None) -> None:
        row.has_ended = True
        if self._keeps_infos and info is not None:
            self._infos[agent] = info


def _is_finite(reward: object) -> bool:
    try:
        # Not a number compares as False.
        return bool(-FLOAT32_MAX <= cast(float, reward) <= FLOAT32_MAX)
    except TypeError:
        return False


def _population(
    spec: EnvironmentSpec, agents: tuple[str, ...], *, num_envs: int
) -> PopulationBuffers:
    facts = spec.agent_specs[agents[0]]
    layout = ObservationLayout.from_json(facts.observation)
    number = num_actions(facts.action)
    slots = 1 if spec.api == "aec" else len(agents)
    return PopulationBuffers(
        agents=agents,
        layout=layout,
        mask=facts.mask,
        num_actions=number,
        first_action=first_action(facts.action),
        agent_index=np.full((num_envs, slots), NO_DECISION, dtype=np.int64),
        observation=np.zeros((num_envs, slots, layout.size), dtype=np.float32),
        action_mask=np.ones((num_envs, slots, number), dtype=np.bool_),
        final_observation=np.zeros((num_envs, len(agents), layout.size), dtype=np.float32),
    )


def check_partition(agents: tuple[str, ...], *, populations: Mapping[str, tuple[str, ...]]) -> None:
    """Every agent is in exactly one population.

    Raises:
        ConfigError: If not.
    """
    members = [agent for population in populations.values() for agent in population]
    if sorted(members) != sorted(agents):
        raise ConfigError(f"populations must have every agent of {agents} once, got {members}")


def _shared_turn(buffers: Buffers) -> Turn:
    populations = buffers.populations.items()
    return Turn(
        groups={
            name: Group(
                agent_index=torch.from_numpy(population.agent_index),
                observation=torch.from_numpy(population.observation),
                action_mask=torch.from_numpy(population.action_mask) if population.mask else None,
            )
            for name, population in populations
        },
        reward=torch.from_numpy(buffers.reward),
        terminated=torch.from_numpy(buffers.terminated),
        truncated=torch.from_numpy(buffers.truncated),
        final_observation={
            name: torch.from_numpy(population.final_observation) for name, population in populations
        },
        episode_over=torch.from_numpy(buffers.episode_over),
        score=torch.from_numpy(buffers.score),
    )


def _moved(turn: Turn, device: torch.device) -> Turn:
    return Turn(
        groups={
            name: Group(
                agent_index=group.agent_index.to(device),
                observation=group.observation.to(device),
                action_mask=None if group.action_mask is None else group.action_mask.to(device),
            )
            for name, group in turn.groups.items()
        },
        reward=turn.reward.to(device),
        terminated=turn.terminated.to(device),
        truncated=turn.truncated.to(device),
        final_observation={
            name: observation.to(device) for name, observation in turn.final_observation.items()
        },
        episode_over=turn.episode_over.to(device),
        score=turn.score.to(device),
    )
