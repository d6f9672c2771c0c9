"""Lets one policy decide, and records its decisions.

Shapes: B environments, S decisions of a population at once, P agents of a population, N rows, F
features of a flattened observation, G numbers of a critic's input, H numbers of a
recurrent state.

Tests: `tests/arena/rollout/test_collector.py`, `tests/arena/rollout/test_recurrent.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from arena.core import Actor, ActorInput, Algorithm, AlgorithmOutput
from arena.envs.base import Group, Turn
from arena.experience import Rollout
from arena.matches.recurrent_state import RecurrentState, Rows
from arena.matches.seated import SeatedPlayers
from arena.rollout.buffer import RolloutBuffer
from arena.rollout.critic_rows import CriticRows
from arena.types import PolicyId, Seat, population_of
from arena.users_code import naming_network


@dataclass(eq=False, slots=True, kw_only=True)
class Learning:
    """A policy that learns while it plays.

    Attributes:
        policy: Id of the policy.
        algorithm: Network and optimizer, live.
        reward_weights: Weights of the components of its reward, on the environments' device.
            float32 [R]. None: it learns from the environment's reward.
    """

    policy: PolicyId
    algorithm: Algorithm
    reward_weights: torch.Tensor | None = None

    @property
    def population(self) -> str:
        """Population whose agents the policy plays."""
        return population_of(self.policy)

    @property
    def state_size(self) -> int:
        """Size H of the recurrent state; 0: the policy is not recurrent."""
        return self.algorithm.state_size


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
            # A policy may have several seats.
            found[id(player)] = player
    if not found:
        raise ValueError("nobody learns in these blocks")
    return tuple(found.values())


class Recorder:
    """Lets one policy decide, and records its decisions in its buffer.

    Args:
        learning: Policy that decides.
        index: Its index among the seated players.
        buffer: Buffer of its decisions.
        agents: Columns of its population's agents in ``Turn.reward``. int64 [P].
        recurrent_state: States of all seated players.
        critic: Rows of its centralized critic; None: it has no such critic.
        generator: Source of its actions.

    Raises:
        ValueError: If it has a centralized critic but no rows, or rows but no such critic.
    """

    def __init__(
        self,
        learning: Learning,
        *,
        index: int,
        buffer: RolloutBuffer,
        agents: torch.Tensor,
        recurrent_state: RecurrentState,
        critic: CriticRows | None,
        generator: torch.Generator,
    ) -> None:
        critic_size = learning.algorithm.critic_size
        if (critic is None) != (critic_size == 0):
            raise ValueError(
                f"values of {learning.policy} are computed from {critic_size} numbers of "
                f"their own, there are {'none' if critic is None else 'some'}"
            )
        self.learning = learning
        self.index = index
        self._buffer = buffer
        self._agents = agents
        self._recurrent_state = recurrent_state
        self._critic = critic
        self._generator = generator

    def decide(self, t: int, group: Group, *, where: torch.Tensor, action: torch.Tensor) -> int:
        """Sample the decisions ``where`` (bool [B, S]) into ``action``; return their number."""
        rows = Rows(group, where=where)
        # The buffer holds all decisions of the population, so those of others have zeros.
        log_prob = torch.zeros(where.shape, device=where.device)
        value = torch.zeros(where.shape, device=where.device)
        size = self.learning.state_size
        state = torch.zeros(*where.shape, size, device=where.device) if size else None
        critic_input = None if self._critic is None else self._critic.of(group.agent_index)
        # In a game with turns the policy may have no decision in this call.
        if len(rows):
            output = self._act(rows, group, state=state, critic_input=critic_input)
            rows.put(action, output.action)
            rows.put(log_prob, output.log_prob)
            rows.put(value, output.value)
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

    def _act(
        self,
        rows: Rows,
        group: Group,
        *,
        state: torch.Tensor | None,
        critic_input: torch.Tensor | None,
    ) -> AlgorithmOutput:
        """Decide some rows; if the policy is recurrent, write their states into ``state``."""
        before = places = None
        if state is not None:
            places = rows.take(self._recurrent_state.places(group.agent_index))
            before = self._recurrent_state.read(places, size=state.shape[2])
            # The state before the decision is stored, because sequences are unrolled from it.
            rows.put(state, before)
        inputs = ActorInput(
            observation=rows.observation,
            action_mask=rows.action_mask,
            recurrent_state=before,
            critic_input=None if critic_input is None else rows.take(critic_input),
        )
        with naming_network(policy=self.learning.policy):
            output = self.learning.algorithm.act(inputs, generator=self._generator)
        if places is not None and output.recurrent_state is not None:
            self._recurrent_state.write(places, output.recurrent_state)
        return output

    def _value(
        self,
        observation: torch.Tensor,
        *,
        places: torch.Tensor,
        critic_input: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return values of observations [N, F] after the states at ``places`` (int64 [N])."""
        size = self.learning.state_size
        state = self._recurrent_state.read(places, size=size) if size else None
        inputs = ActorInput(
            observation=observation, recurrent_state=state, critic_input=critic_input
        )
        with naming_network(policy=self.learning.policy):
            return self.learning.algorithm.value(inputs)

    def store_result(self, t: int, turn: Turn, *, seated: SeatedPlayers[SeatedPlayer]) -> None:
        """Record a step's result; truncated agents bootstrap from their final observation."""
        population = self.learning.population
        truncated = turn.truncated[:, self._agents]
        # Other players may have agents of the same population, and this policy values only its
        # own.
        mine = truncated & (seated.table[:, self._agents] == self.index)
        final_value = torch.zeros(mine.shape, device=mine.device)
        # Values are computed before the collector calls `RecurrentState.reset`.
        if bool(mine.any()):
            places = self._recurrent_state.places(self._agents.expand(mine.shape))
            final_value[mine] = self._value(
                turn.final_observation[population][mine],
                places=places[mine],
                critic_input=None if self._critic is None else self._critic.final()[mine],
            )
        self._buffer.store_result(t, turn, final_value=final_value)

    def finish(self, turn: Turn, *, seated: SeatedPlayers[SeatedPlayer]) -> Rollout:
        """Bootstrap from the next pending decisions, and return the rollout."""
        group, algorithm = turn.groups[self.learning.population], self.learning.algorithm
        # These decisions do not count here: the next rollout begins with them, under updated
        # weights.
        owner = seated.owners(group.agent_index)
        rows = Rows(group, where=owner == self.index)
        value = torch.zeros(owner.shape, device=owner.device)
        if len(rows):
            places = rows.take(self._recurrent_state.places(group.agent_index))
            critic_input = None
            if self._critic is not None:
                critic_input = rows.take(self._critic.of(group.agent_index))
            found = self._value(rows.observation, places=places, critic_input=critic_input)
            rows.put(value, found)
        return self._buffer.finish(
            group=group,
            value=value,
            gamma=algorithm.gamma,
            gae_lambda=algorithm.gae_lambda,
            needs_transitions=algorithm.needs_transitions,
            bptt_length=algorithm.bptt_length if algorithm.state_size else None,
        )
