"""Storage of one policy's decisions in T steps of B environments, which become a rollout.

Shapes: T calls of step, B environments, S decisions of the population at once, A agents, P agents
of the population, F features of a flattened observation, n actions, D decisions to train on, H
numbers of a recurrent state, G of a critic's input.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from arena.envs.base import Group, Turn
from arena.experience import Rollout, Sequences, Transitions
from arena.learning.advantages import Decisions, generalized_advantages, successors
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
        episode_over: bool [T, B].
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
    episode_over: torch.Tensor
    end_value: torch.Tensor
    state: torch.Tensor | None
    critic_input: torch.Tensor | None


class RolloutBuffer:
    """Buffer of T steps that is filled, finished and filled again; owned by one collector.

    The loop that uses it::

        for t in range(T):
            buffer.store(t, group, ...)             # decisions
            turn = env.step(actions)
            buffer.store_result(t, turn, ...)       # rewards and ends
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
            reward_weights: Weights of the reward's components, on the environments' device.
                float32 [R]. None: the reward is the environment's.
        """
        self._length = length
        self._reward_weights = reward_weights
        self._agents = agents
        # `_positions` maps an agent's index to its position in the population. Index -1, no
        # decision, reads the last entry: position P, a column that is dropped.
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
            group: Decisions that were asked for.
            action: int64 [B, S] or float32 [B, S, K].
            log_prob: float32 [B, S]; anything where not ``trained``.
            value: In units of reward. float32 [B, S]; anything where not ``trained``.
            trained: The policy chose this action and learns from it. False for other players' and
                random decisions, and where there is none. bool [B, S].
            state: Recurrent state before the decision. float32 [B, S, H]; anything where not
                ``trained``. None: the policy is not recurrent.
            critic_input: Input of the centralized critic; anything where not ``trained``.
                [B, S, G]. None: there is none.
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
        # The caller's flag is undefined where no decision is pending.
        storage.trained[t] = trained & (group.agent_index >= 0)
        if storage.state is not None:
            if state is None:
                raise ValueError("a policy is recurrent always or never")
            storage.state[t] = state
        if storage.critic_input is not None:
            if critic_input is None:
                raise ValueError("a policy has a centralized critic always or never")
            storage.critic_input[t] = critic_input

    def store_result(self, t: int, turn: Turn, *, final_value: torch.Tensor) -> None:
        """Copy the result of step t.

        Args:
            t: In [0, T).
            turn: Turn that ``step`` returned.
            final_value: Value of the final observation of truncated agents, in units of reward.
                float32 [B, P]; anything elsewhere.
        """
        storage = self._stored()
        # [B, A] -> [B, P]
        terminated, truncated = turn.terminated[:, self._agents], turn.truncated[:, self._agents]
        storage.reward[t] = self._reward(turn)
        # `episode_over` is included, because an environment may forget to flag an agent at the
        # end.
        storage.ended[t] = terminated | truncated | turn.episode_over[:, None]
        storage.episode_over[t] = turn.episode_over
        # v_end = V(final observation) after a truncation, 0 after a termination, 0 after both.
        storage.end_value[t] = torch.where(truncated & ~terminated, final_value, 0.0)
        if turn.void is not None:
            for b in turn.void.nonzero().flatten().tolist():
                self._drop_episode(b, last=t)

    def _drop_episode(self, b: int, *, last: int) -> None:
        """Exclude the episode that ended in environment b with step ``last`` from training."""
        storage = self._stored()
        first = last
        # Search back to the end of the previous episode, at most to the first step of this
        # rollout, because earlier rollouts are trained on already. Ends of single agents do not
        # mark an episode's end, because others may play on.
        while first > 0 and not bool(storage.episode_over[first - 1, b]):
            first -= 1
        storage.trained[first : last + 1, b] = False

    def _reward(self, turn: Turn) -> torch.Tensor:
        """Return the reward that the policy is trained on. float32 [B, P]."""
        if self._reward_weights is None:
            return turn.reward[:, self._agents]
        if turn.components is None:
            raise ValueError("reward weights need environments that report components")
        # r = sum_k w_k r_k    [B, P, R] * [R] -> [B, P]
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
        """Compute advantages and return the decisions to train on.

        Args:
            group: Pending decisions after the last step; they belong to the next rollout.
            value: Values of these in units of reward. float32 [B, S]; anything where the policy
                does not decide.
            gamma: Discount per own decision.
            gae_lambda: Bias (0) against variance (1) of the advantages.
            needs_transitions: Whether the rollout has the successor of each decision.
            bptt_length: Decisions of a recurrent policy's longest sequence; None: no limit.
        """
        storage = self._stored()
        # A trajectory belongs to (environment, agent), and an agent's slot may change, so
        # decisions are sorted by agent.
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
        by_agent, defined = generalized_advantages(decisions, gamma=gamma, gae_lambda=gae_lambda)
        advantage = _by_slot(by_agent, position)
        # Decisions of other players are left out, and last ones whose successor is not known yet.
        index = (storage.trained & _by_slot(defined, position)).flatten().nonzero().squeeze(1)
        transitions = sequences = None
        if needs_transitions or storage.state is not None:
            transitions = _transitions(decisions, index=index, position=position)
        if storage.state is not None and transitions is not None:
            # A sequence is unrolled from the state stored with its first decision.
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
            # [T, B, S, ...] -> [T * B * S, ...] -> [D, ...]; index_select copies, so that the
            # buffer can be filled again.
            return stored.flatten(0, 2).index_select(0, index)

        value, chosen_advantage = rows(storage.value), rows(advantage)
        # Stacking both counts needs only one transfer from the device.
        counts = torch.stack([storage.trained.sum(), (storage.agent_index >= 0).sum()])
        agent_steps, num_decisions = counts.tolist()
        return Rollout(
            observation=rows(storage.observation),
            action_mask=None if storage.action_mask is None else rows(storage.action_mask),
            action=rows(storage.action),
            log_prob=rows(storage.log_prob),
            value=value,
            advantage=chosen_advantage,
            # R_t = A_t + V(s_t): the lambda-return
            return_=chosen_advantage + value,
            # All decisions count, also those left out of training: budgets and counters measure
            # play.
            agent_steps=agent_steps,
            num_decisions=num_decisions,
            transitions=transitions,
            sequences=sequences,
            critic_input=None if storage.critic_input is None else rows(storage.critic_input),
        )

    def _by_agent(self, slots: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Bring [..., S] by slot to [..., P] by agent; zero for agents without a slot."""
        # Position P receives the slots without a decision and is cut off.
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
            episode_over=zeros(self._length, num_envs, dtype=torch.bool),
            end_value=zeros(*agents),
            state=None if state is None else zeros(*slots, state.shape[2]),
            critic_input=None
            if critic_input is None
            else zeros(*slots, critic_input.shape[2], dtype=critic_input.dtype),
        )


def _by_slot(agents: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """Bring [..., P] by agent to [..., S] by slot; zero where there is no decision."""
    # Slots without a decision have position P, which reads the padding.
    padding = agents.new_zeros((*agents.shape[:-1], 1))
    return torch.cat([agents, padding], dim=-1).gather(-1, position)


def _transitions(
    decisions: Decisions, *, index: torch.Tensor, position: torch.Tensor
) -> Transitions:
    """Return the successors of the decisions at ``index`` (int64 [D], of all [T * B * S])."""
    reward, next_value, next_call = successors(decisions)
    num_calls, num_envs, num_agents = reward.shape
    # index = (t B + b) S + s; cell = (t B + b) P + p, a number for each (call, environment, agent)
    call_and_env = index // position.shape[2]
    cell = call_and_env * num_agents + position.flatten()[index]
    row_of_cell = torch.full((reward.numel(),), -1, device=index.device)
    row_of_cell[cell] = torch.arange(len(index), device=index.device)
    call = next_call.flatten()[cell]
    # -1: the trajectory ends. T: the successor is the first decision of the next rollout.
    inside = (call >= 0) & (call < num_calls)
    calls_later = call - call_and_env // num_envs
    # The next cell has the same environment and agent, calls_later calls on; elsewhere any valid
    # cell will do, because it is masked below.
    next_cell = cell + torch.where(inside, calls_later, 0) * num_envs * num_agents
    return Transitions(
        reward=reward.flatten()[cell],
        successor=torch.where(inside, row_of_cell[next_cell], -1),
        next_value=next_value.flatten()[cell],
    )
