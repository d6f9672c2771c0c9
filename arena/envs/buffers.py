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
            index = np.where(legal, chosen, 0)
            legal &= np.take_along_axis(self.action_mask, index[..., None], axis=2)[..., 0]
        illegal = (self.agent_index >= 0) & ~legal
        if illegal.any():
            b, s = (int(index) for index in np.argwhere(illegal)[0])
            raise ValueError(
                f"actions of {name} must be legal and in [0, {self.num_actions}), "
                f"got {chosen[b, s]} in environment {b}"
            )
        listed: list[list[int]] = chosen.tolist()
        return listed


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
        _check_partition(spec.agents, populations=populations)
        num_agents = len(spec.agents)
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

    def turn(self) -> Turn:
        """What the environments have said since ``clear``."""
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
        self._columns = {agent: column for column, agent in enumerate(buffers.agents)}
        self.agents = {
            agent: AgentRow(buffers, population, agent, b=b)
            for population in buffers.populations.values()
            for agent in population.agents
        }
        self._returns = [0.0] * len(buffers.agents)
        self._infos: dict[str, Mapping[str, object]] = {}
        self._decided: set[str] = set()
        self._ended: set[str] = set()

    def begin(self) -> None:
        """A new episode."""
        self._returns = [0.0] * len(self._returns)
        self._infos = {}
        self._decided.clear()
        self._ended.clear()

    def ask(self, agent: str, observation: Any, info: Mapping[str, Any] | None) -> None:  # noqa: ANN401
        """Ask an agent for a decision.

        Raises:
            EnvironmentFault: If the observation or the mask is not the space's.
        """
        row = self.agents.get(agent)
        if row is None:
            raise EnvironmentFault(f"agent {agent!r} is on turn but not in possible_agents")
        row.ask(observation, info)
        self._decided.add(agent)
        if self._ended:
            self._ended.discard(agent)

    def credit(self, rewards: Mapping[str, float]) -> None:
        """Add what agents received.

        Raises:
            EnvironmentFault: If a reward is not a finite number, or an unknown agent's.
        """
        for agent, reward in rewards.items():
            if reward == 0:
                continue
            column = self._columns.get(agent)
            if column is None:
                raise EnvironmentFault(f"agent {agent!r} has a reward but is no possible agent")
            if not _is_finite(reward):
                raise EnvironmentFault(
                    f"agent {agent!r}: a reward must be finite in float32, got {reward!r}"
                )
            self._reward[column] += reward
            self._returns[column] += float(reward)

    def has_ended(self, agent: str) -> bool:
        """Whether the agent's end in this episode is written down."""
        return agent in self._ended

    def terminate(self, agent: str, info: Mapping[str, Any] | None) -> None:
        """An agent's episode ended for good."""
        self._buffers.terminated[self.b, self._columns[agent]] = True
        self._end(agent, info)

    def truncate(self, agent: str, observation: Any, info: Mapping[str, Any] | None) -> None:  # noqa: ANN401
        """An agent's episode was cut off; ``observation`` is the last one.

        Raises:
            EnvironmentFault: If the observation is not the space's.
        """
        self.agents[agent].keep_final(observation)
        self._buffers.truncated[self.b, self._columns[agent]] = True
        self._end(agent, info)

    def finish(self, infos: Mapping[str, Any]) -> None:
        """The episode is over: score it.

        Agents that have decided and whose end the environment never told (it emptied ``agents``)
        have terminated: there is nothing to bootstrap from.
        """
        for agent in self._decided - self._ended:
            self.terminate(agent, infos.get(agent))
        if self._keeps_infos:
            for agent, info in infos.items():
                if agent in self._columns:
                    self._infos[agent] = info
        buffers, b = self._buffers, self.b
        returns = dict(zip(buffers.agents, self._returns, strict=True))
        buffers.episode_over[b] = True
        buffers.score[b] = self._score(returns, self._infos)

    def _end(self, agent: str, info: Mapping[str, Any] | None) -> None:
        self._ended.add(agent)
        if self._keeps_infos and info is not None:
            self._infos[agent] = info


class AgentRow:
    """Where one agent's decisions and last observation go, in one environment."""

    __slots__ = ("_agent", "_asked", "_column", "_final", "_layout", "_mask", "_mask_row", "_row")

    def __init__(
        self, buffers: Buffers, population: PopulationBuffers, agent: str, *, b: int
    ) -> None:
        position = population.agents.index(agent)
        slot = 0 if population.agent_index.shape[1] == 1 else position
        self._agent = agent
        self._column = buffers.agents.index(agent)
        self._layout = population.layout
        self._mask = population.mask
        self._asked = population.agent_index[b, slot : slot + 1]
        self._row = population.observation[b, slot]
        self._mask_row = population.action_mask[b, slot]
        self._final = population.final_observation[b, position]

    def ask(self, observation: Any, info: Mapping[str, Any] | None) -> None:  # noqa: ANN401
        """Write the agent's decision into its slot."""
        if self._mask == "observation":
            self._write_mask(observation["action_mask"])
            observation = observation["observation"]
        elif self._mask == "info":
            mask = None if info is None else info.get("action_mask")
            if mask is None:
                # PettingZoo's masks in info are optional: without one, everything is legal.
                self._mask_row.fill(True)
            else:
                self._write_mask(mask)
        self._write(self._row, observation)
        self._asked[0] = self._column

    def keep_final(self, observation: Any) -> None:  # noqa: ANN401
        """Write the agent's last observation."""
        if observation is None:
            raise EnvironmentFault(
                f"agent {self._agent!r} was truncated and must have a last observation, got None"
            )
        if self._mask == "observation":
            observation = observation["observation"]
        self._write(self._final, observation)

    def _write(self, row: npt.NDArray[np.float32], observation: object) -> None:
        try:
            self._layout.flatten_into(row, observation)
        except EnvironmentFault as fault:
            raise EnvironmentFault(f"agent {self._agent!r}: {fault}") from None

    def _write_mask(self, mask: object) -> None:
        values = np.asarray(mask)
        row = self._mask_row
        if values.shape != row.shape or values.dtype.kind not in "bui":
            raise EnvironmentFault(
                f"agent {self._agent!r}: an action mask must be integers or bool of shape "
                f"{row.shape}, got {values.dtype} {values.shape}"
            )
        row[:] = values
        if not row.any():
            raise EnvironmentFault(f"agent {self._agent!r}: an action mask must allow an action")


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


def _check_partition(
    agents: tuple[str, ...], *, populations: Mapping[str, tuple[str, ...]]
) -> None:
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
