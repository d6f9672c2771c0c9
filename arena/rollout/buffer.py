"""The decisions of one policy in T steps of B environments, and what becomes of them.

Shapes: T calls of step, B environments, S decisions of the population at once, A agents, P agents
of the population, F features of a flattened observation, n actions, D decisions to train on, H
numbers of a state, G of a row that a value network reads beside the observation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from arena.envs.base import Group, Turn
from arena.experience import Rollout, Sequences, Transitions
from arena.learning.advantages import Decisions, own_decision_advantages, what_followed
from arena.learning.sequences import cut_into_sequences


@dataclass(slots=True, kw_only=True)
class _Storage:
    """Preallocated tensors of a rollout.

    Attributes:
        agent_index: int64 [T, B, S].
        observation: float32 or uint8 [T, B, S, F].
        action_mask: bool [T, B, S, n], or None.
        action: int64 [T, B, S] or float32 [T, B, S, K].
        log_prob: float32 [T, B, S].
        value: float32 [T, B, S].
        trained: bool [T, B, S].
        reward: float32 [T, B, P].
        ended: bool [T, B, P].
        end_value: float32 [T, B, P].
        state: float32 [T, B, S, H], or None.
        critic_input: float32 or uint8 [T, B, S, G], or None.
    """

    agent_index: torch.Tensor
    observation: torch.Tensor
    action_mask: torch.Tensor | None
    action: torch.Tensor
    log_prob: torch.Tensor
    value: torch.Tensor
    trained: torch.Tensor
    reward: torch.Tensor
    ended: torch.Tensor
    end_value: torch.Tensor
    state: torch.Tensor | None
    critic_input: torch.Tensor | None


class RolloutBuffer:
    """Fills up with T steps, is finished, and fills up again; owned by one collector.

    The loop that uses it::

        for t in range(T):
            buffer.store(t, group, ...)             # what was decided
            turn = env.step(actions)
            buffer.store_result(t, turn, ...)       # what came of it
        rollout = buffer.finish(...)

    Memory is allocated by the first ``store``, which shows all shapes, and then kept.
    """

    def __init__(
        self, *, length: int, agents: torch.Tensor, reward_weights: torch.Tensor | None = None
    ) -> None:
        """Prepare for one population.

        Args:
            length: T.
            agents: Columns of the population's agents in ``Turn.reward``. int64 [P], on the
                environments' device.
            reward_weights: Of the components of the reward, on the environments' device.
                float32 [R]. None: the reward is what the environment says.
        """
        self._length = length
        self._reward_weights = reward_weights
        self._agents = agents
        # From an agent's index to its position in the population. Index -1, no decision, finds the
        # last entry: position P, a column that is thrown away.
        positions = torch.full((int(agents.max()) + 2,), len(agents), device=agents.device)
        positions[agents] = torch.arange(len(agents), device=agents.device)
        self._positions = positions
        self._storage: _Storage | None = None

    def store(
        self,
        t: int,
        group: Group,
        *,
        action: torch.Tensor,
        log_prob: torch.Tensor,
        value: torch.Tensor,
        trained: torch.Tensor,
        state: torch.Tensor | None = None,
        critic_input: torch.Tensor | None = None,
    ) -> None:
        """Copy the decisions before step t.

        Args:
            t: In [0, T).
            group: What was asked.
            action: int64 [B, S] or float32 [B, S, K].
            log_prob: float32 [B, S]; anything where not ``trained``.
            value: In units of reward. float32 [B, S]; anything where not ``trained``.
            trained: The policy chose this action and learns from it. False for other players' and
                random decisions, and where there is none. bool [B, S].
            state: What the policy remembered before it decided. float32 [B, S, H]; anything where
                not ``trained``. None: it has no memory.
            critic_input: What the value was computed from; anything where not ``trained``.
                [B, S, G]. None: from the observation.
        """
        storage = self._storage
        if storage is None:
            storage = self._storage = self._allocate(
                group, action=action, state=state, critic_input=critic_input
            )
        storage.agent_index[t] = group.agent_index
        storage.observation[t] = group.observation
        if storage.action_mask is not None:
            if group.action_mask is None:
                raise ValueError("a population has action masks always or never")
            storage.action_mask[t] = group.action_mask
        storage.action[t] = action
        storage.log_prob[t] = log_prob
        storage.value[t] = value
        storage.trained[t] = trained & (group.agent_index >= 0)
        if storage.state is not None:
            if state is None:
                raise ValueError("a policy has a memory always or never")
            storage.state[t] = state
        if storage.critic_input is not None:
            if critic_input is None:
                raise ValueError("a value network reads rows of its own always or never")
            storage.critic_input[t] = critic_input

    def store_result(self, t: int, turn: Turn, *, final_value: torch.Tensor) -> None:
        """Copy what step t brought.

        Args:
            t: In [0, T).
            turn: What ``step`` returned.
            final_value: Value of the final observation of truncated agents, in units of reward.
                float32 [B, P]; anything elsewhere.
        """
        storage = self._stored()
        terminated, truncated = turn.terminated[:, self._agents], turn.truncated[:, self._agents]
        storage.reward[t] = self._reward(turn)
        storage.ended[t] = terminated | truncated | turn.episode_over[:, None]
        storage.end_value[t] = torch.where(truncated & ~terminated, final_value, 0.0)
        if turn.void is not None:
            for b in turn.void.nonzero().flatten().tolist():
                self._drop_episode(b, last=t)

    def _drop_episode(self, b: int, *, last: int) -> None:
        """Train on nothing of the episode that ended in environment b with step ``last``."""
        storage = self._stored()
        first = last
        while first > 0 and not bool(storage.ended[first - 1, b].all()):
            first -= 1
        storage.trained[first : last + 1, b] = False

    def _reward(self, turn: Turn) -> torch.Tensor:
        """What the policy is trained on. float32 [B, P]."""
        if self._reward_weights is None:
            return turn.reward[:, self._agents]
        if turn.components is None:
            raise ValueError("reward weights need environments that report components")
        return (turn.components[:, self._agents] * self._reward_weights).sum(dim=-1)

    def finish(
        self,
        *,
        group: Group,
        value: torch.Tensor,
        gamma: float,
        gae_lambda: float,
        needs_transitions: bool = False,
        bptt_length: int | None = None,
    ) -> Rollout:
        """Compute advantages and hand out the decisions to train on.

        Args:
            group: The decisions asked for after the last step; they belong to the next rollout.
            value: Their values in units of reward. float32 [B, S]; anything where the policy does
                not decide.
            gamma: Discount per own decision.
            gae_lambda: Of the advantages.
            needs_transitions: Whether the rollout says what followed each decision.
            bptt_length: Decisions of the longest sequence of a policy with a memory; None: no
                limit.
        """
        storage = self._stored()
        position = self._positions[storage.agent_index]
        decisions = Decisions(
            decided=self._by_agent(storage.agent_index >= 0, position),
            trained=self._by_agent(storage.trained, position),
            value=self._by_agent(storage.value, position),
            reward=storage.reward,
            ended=storage.ended,
            end_value=storage.end_value,
            next_decided=self._by_agent(group.agent_index >= 0, self._positions[group.agent_index]),
            next_value=self._by_agent(value, self._positions[group.agent_index]),
        )
        by_agent, defined = own_decision_advantages(decisions, gamma=gamma, gae_lambda=gae_lambda)
        advantage = _by_slot(by_agent, position)
        index = (storage.trained & _by_slot(defined, position)).flatten().nonzero().squeeze(1)
        transitions = sequences = None
        if needs_transitions or storage.state is not None:
            transitions = _transitions(decisions, index=index, position=position)
        if storage.state is not None and transitions is not None:
            rows = cut_into_sequences(transitions.successor, max_length=bptt_length)
            state = storage.state.flatten(0, 2).index_select(0, index[rows[:, 0]])
            sequences = Sequences(rows=rows, state=state)
        return self._rollout(
            storage, index=index, advantage=advantage, transitions=transitions, sequences=sequences
        )

    def _rollout(
        self,
        storage: _Storage,
        *,
        index: torch.Tensor,
        advantage: torch.Tensor,
        transitions: Transitions | None,
        sequences: Sequences | None,
    ) -> Rollout:
        def rows(stored: torch.Tensor) -> torch.Tensor:
            return stored.flatten(0, 2).index_select(0, index)

        value, chosen_advantage = rows(storage.value), rows(advantage)
        return Rollout(
            observation=rows(storage.observation),
            action_mask=None if storage.action_mask is None else rows(storage.action_mask),
            action=rows(storage.action),
            log_prob=rows(storage.log_prob),
            value=value,
            advantage=chosen_advantage,
            return_=chosen_advantage + value,
            agent_steps=int(storage.trained.sum()),
            transitions=transitions,
            sequences=sequences,
            critic_input=None if storage.critic_input is None else rows(storage.critic_input),
        )

    def _by_agent(self, slots: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """[..., S] by slot to [..., P] by agent; zero for agents without a slot."""
        agents = slots.new_zeros((*slots.shape[:-1], len(self._agents) + 1))
        return agents.scatter_(-1, position, slots)[..., :-1]

    def _stored(self) -> _Storage:
        if self._storage is None:
            raise ValueError("the rollout buffer is empty: store decisions first")
        return self._storage

    def _allocate(
        self,
        group: Group,
        *,
        action: torch.Tensor,
        state: torch.Tensor | None,
        critic_input: torch.Tensor | None,
    ) -> _Storage:
        num_envs, num_slots = group.agent_index.shape
        device = group.agent_index.device
        seen, mask = group.observation, group.action_mask
        slots = (self._length, num_envs, num_slots)
        agents = (self._length, num_envs, len(self._agents))

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return _Storage(
            agent_index=zeros(*slots, dtype=torch.int64),
            observation=zeros(*slots, seen.shape[2], dtype=seen.dtype),
            action_mask=None if mask is None else zeros(*slots, mask.shape[2], dtype=torch.bool),
            action=zeros(*slots, *action.shape[2:], dtype=action.dtype),
            log_prob=zeros(*slots),
            value=zeros(*slots),
            trained=zeros(*slots, dtype=torch.bool),
            reward=zeros(*agents),
            ended=zeros(*agents, dtype=torch.bool),
            end_value=zeros(*agents),
            state=None if state is None else zeros(*slots, state.shape[2]),
            critic_input=None
            if critic_input is None
            else zeros(*slots, critic_input.shape[2], dtype=critic_input.dtype),
        )


def _by_slot(agents: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """[..., P] by agent to [..., S] by slot; zero where there is no decision."""
    padding = agents.new_zeros((*agents.shape[:-1], 1))
    return torch.cat([agents, padding], dim=-1).gather(-1, position)


def _transitions(
    decisions: Decisions, *, index: torch.Tensor, position: torch.Tensor
) -> Transitions:
    """What followed the decisions at ``index`` (int64 [D], of all [T * B * S])."""
    followed = what_followed(decisions)
    num_calls, num_envs, num_agents = followed.reward.shape
    call_and_env = index // position.shape[2]
    cell = call_and_env * num_agents + position.flatten()[index]
    row_of_cell = torch.full((followed.reward.numel(),), -1, device=index.device)
    row_of_cell[cell] = torch.arange(len(index), device=index.device)
    call = followed.next_call.flatten()[cell]
    inside = (call >= 0) & (call < num_calls)
    calls_later = call - call_and_env // num_envs
    next_cell = cell + torch.where(inside, calls_later, 0) * num_envs * num_agents
    return Transitions(
        reward=followed.reward.flatten()[cell],
        successor=torch.where(inside, row_of_cell[next_cell], -1),
        next_value=followed.next_value.flatten()[cell],
    )
