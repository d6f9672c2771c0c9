"""Lets one policy decide, and keeps what it decided.

Shapes: B environments, S decisions of a population at once, P agents of a population, N rows, F
features of a flattened observation, G numbers of a row that only values see, H numbers of a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from arena.core import (
    Actor,
    Algorithm,
    CentralizedAlgorithm,
    RememberingAlgorithm,
    critic_size,
    state_size,
)
from arena.envs.base import Group, Turn
from arena.experience import Rollout
from arena.matches.memory import Memory
from arena.matches.rows import Rows
from arena.matches.seated import SeatedPlayers
from arena.rollout.buffer import RolloutBuffer
from arena.rollout.critic_rows import CriticRows
from arena.types import PolicyId, Seat, population_of


@dataclass(eq=False, slots=True, kw_only=True)
class Learning:
    """A policy that learns while it plays.

    Attributes:
        policy: Its id.
        algorithm: Its live weights.
        reward_weights: Of the components of its reward, on the environments' device. float32 [R].
            None: it learns from the environment's own reward.
    """

    policy: PolicyId
    algorithm: Algorithm
    reward_weights: torch.Tensor | None = None

    @property
    def population(self) -> str:
        """Whose agents it plays."""
        return population_of(self.policy)

    @property
    def state_size(self) -> int:
        """H; 0: it has no memory."""
        return state_size(self.algorithm)

    @property
    def remembering(self) -> RememberingAlgorithm | None:
        """The algorithm, where its policy has a memory."""
        algorithm: object = self.algorithm
        if self.state_size and isinstance(algorithm, RememberingAlgorithm):
            return algorithm
        return None

    @property
    def critic_size(self) -> int:
        """G; 0: its values see what it sees."""
        return critic_size(self.algorithm)

    @property
    def centralized(self) -> CentralizedAlgorithm:
        """The algorithm, where its values see more.

        Raises:
            TypeError: Where they do not.
        """
        algorithm: object = self.algorithm
        if not isinstance(algorithm, CentralizedAlgorithm):
            raise TypeError(f"the algorithm of {self.policy} is no arena.core.CentralizedAlgorithm")
        return algorithm


SeatedPlayer = Actor | Learning


def learning_in(
    blocks: Sequence[Sequence[SeatedPlayer]], *, seats: Sequence[Seat]
) -> tuple[Learning, ...]:
    """Return the policies that learn in some blocks, one player per seat in each.

    Raises:
        ValueError: If there is none, or one has a seat of another population.
    """
    found: dict[int, Learning] = {}
    for block in blocks:
        for seat, player in zip(seats, block, strict=True):
            if not isinstance(player, Learning):
                continue
            if player.population != seat.population:
                raise ValueError(
                    f"{player.policy} cannot sit in seat {seat.name!r} of population "
                    f"{seat.population!r}"
                )
            found[id(player)] = player
    if not found:
        raise ValueError("nobody learns in these blocks")
    return tuple(found.values())


class Recorder:
    """Lets one policy decide, and keeps its decisions in its buffer.

    Args:
        learning: The policy.
        index: Of it among the seated players.
        buffer: Of its decisions.
        agents: Columns of its population's agents in ``Turn.reward``. int64 [P].
        memory: What it remembers, where it does.
        critic: What its values are computed from; None: from what it sees.
        generator: Of its actions.

    Raises:
        ValueError: If its values need what there is not, or do not need what there is.
    """

    def __init__(
        self,
        learning: Learning,
        *,
        index: int,
        buffer: RolloutBuffer,
        agents: torch.Tensor,
        memory: Memory,
        critic: CriticRows | None,
        generator: torch.Generator,
    ) -> None:
        if (critic is None) != (learning.critic_size == 0):
            raise ValueError(
                f"values of {learning.policy} are computed from {learning.critic_size} numbers of "
                f"their own, there are {'none' if critic is None else 'some'}"
            )
        self.learning = learning
        self.index = index
        self._buffer = buffer
        self._agents = agents
        self._memory = memory
        self._critic = critic
        self._generator = generator

    def decide(self, t: int, group: Group, *, where: torch.Tensor, action: torch.Tensor) -> int:
        """Sample the decisions ``where`` (bool [B, S]) into ``action``, return their number."""
        rows = Rows(group, where=where)
        log_prob = torch.zeros(where.shape, device=where.device)
        value = torch.zeros(where.shape, device=where.device)
        state = self._no_states(where)
        critic_input = None if self._critic is None else self._critic.of(group.agent_index)
        if len(rows):
            chosen, chosen_log_prob, chosen_value = self._act(
                rows, group, state=state, critic_input=critic_input
            )
            rows.put(action, chosen)
            rows.put(log_prob, chosen_log_prob)
            rows.put(value, chosen_value)
        self._buffer.store(
            t,
            group,
            action=action,
            log_prob=log_prob,
            value=value,
            trained=where,
            state=state,
            critic_input=critic_input,
        )
        return len(rows)

    def _no_states(self, where: torch.Tensor) -> torch.Tensor | None:
        """Zeros [B, S, H], where it remembers."""
        size = self.learning.state_size
        return torch.zeros(*where.shape, size, device=where.device) if size else None

    def _act(
        self,
        rows: Rows,
        group: Group,
        *,
        state: torch.Tensor | None,
        critic_input: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Actions, log-probabilities and values of some rows.

        Where it remembers, what it did before is put into ``state``, and what it does now kept.
        """
        if critic_input is not None:
            return self._act_with_critic(rows, group, state=state, critic_input=critic_input)
        remembering = self.learning.remembering
        if remembering is None or state is None:
            return self.learning.algorithm.act(
                rows.observation, rows.action_mask, generator=self._generator
            )
        places = rows.take(self._memory.places(group.agent_index))
        before = self._memory.recall(places, size=remembering.state_size)
        rows.put(state, before)
        action, log_prob, value, after = remembering.act_from(
            rows.observation, rows.action_mask, state=before, generator=self._generator
        )
        self._memory.keep(places, after)
        return action, log_prob, value

    def _act_with_critic(
        self, rows: Rows, group: Group, *, state: torch.Tensor | None, critic_input: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        places = rows.take(self._memory.places(group.agent_index))
        before = self._recall(places)
        if state is not None and before is not None:
            rows.put(state, before)
        action, log_prob, value, after = self.learning.centralized.act_with_critic(
            rows.observation,
            rows.action_mask,
            critic_input=rows.take(critic_input),
            state=before,
            generator=self._generator,
        )
        if after is not None:
            self._memory.keep(places, after)
        return action, log_prob, value

    def _recall(self, places: torch.Tensor) -> torch.Tensor | None:
        """Of int64 [N], float32 [N, H], where it remembers."""
        size = self.learning.state_size
        return self._memory.recall(places, size=size) if size else None

    def _value(
        self,
        observation: torch.Tensor,
        *,
        places: torch.Tensor,
        critic_input: torch.Tensor | None,
    ) -> torch.Tensor:
        """Of observations [N, F] after what is remembered at ``places`` (int64 [N])."""
        if critic_input is not None:
            return self.learning.centralized.value_with_critic(
                observation, critic_input=critic_input, state=self._recall(places)
            )
        remembering = self.learning.remembering
        if remembering is None:
            return self.learning.algorithm.value(observation)
        state = self._memory.recall(places, size=remembering.state_size)
        return remembering.value_from(observation, state=state)

    def store_result(self, t: int, turn: Turn, *, seated: SeatedPlayers[SeatedPlayer]) -> None:
        """Keep what a step brought; agents that were cut off bootstrap from what they saw last."""
        population = self.learning.population
        truncated = turn.truncated[:, self._agents]
        mine = truncated & (seated.table[:, self._agents] == self.index)
        final_value = torch.zeros(mine.shape, device=mine.device)
        if bool(mine.any()):
            places = self._memory.places(self._agents.expand(mine.shape))
            final_value[mine] = self._value(
                turn.final_observation[population][mine],
                places=places[mine],
                critic_input=None if self._critic is None else self._critic.final()[mine],
            )
        self._buffer.store_result(t, turn, final_value=final_value)

    def finish(self, turn: Turn, *, seated: SeatedPlayers[SeatedPlayer]) -> Rollout:
        """Bootstrap from the decisions that are asked for next, and hand out the rollout."""
        group, remembering = turn.groups[self.learning.population], self.learning.remembering
        owner = seated.owners(group.agent_index, active=None)
        rows = Rows(group, where=owner == self.index)
        value = torch.zeros(owner.shape, device=owner.device)
        if len(rows):
            places = rows.take(self._memory.places(group.agent_index))
            critic_input = None
            if self._critic is not None:
                critic_input = rows.take(self._critic.of(group.agent_index))
            found = self._value(rows.observation, places=places, critic_input=critic_input)
            rows.put(value, found)
        return self._buffer.finish(
            group=group,
            value=value,
            gamma=self.learning.algorithm.gamma,
            gae_lambda=self.learning.algorithm.gae_lambda,
            needs_transitions=self.learning.algorithm.needs_transitions,
            bptt_length=None if remembering is None else remembering.bptt_length,
        )
