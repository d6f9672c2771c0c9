"""`RolloutBuffer` against an obviously right reference: a Python list per (environment, agent)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arena.envs.base import Group, Turn
from arena.experience import Rollout
from arena.rollout.buffer import RolloutBuffer
from tests.arena.samples import make_turn

NUM_ACTIONS = 3


@dataclass
class Step:
    """A group and what came of it, as numpy arrays of one random schedule."""

    agent_index: npt.NDArray[np.int64]  # [B, S]
    trained: npt.NDArray[np.bool_]  # [B, S]
    value: npt.NDArray[np.float32]  # [B, S]
    reward: npt.NDArray[np.float32]  # [B, A]
    terminated: npt.NDArray[np.bool_]  # [B, A]
    truncated: npt.NDArray[np.bool_]  # [B, A]
    episode_over: npt.NDArray[np.bool_]  # [B]
    final_value: npt.NDArray[np.float32]  # [B, P]


@dataclass
class Decision:
    t: int
    b: int
    s: int
    trained: bool
    value: float
    reward: float = 0.0


@dataclass
class Trajectory:
    """One agent's decisions in one episode, and the value of what follows (None: unknown)."""

    decisions: list[Decision] = field(default_factory=list)
    successor: float | None = None


def random_steps(
    rng: np.random.Generator, *, length: int, num_envs: int, columns: list[int], parallel: bool
) -> list[Step]:
    """Schedules with late, early dying and twice deciding agents; one step too many."""
    num_agents = max(columns) + 2
    num_slots = len(columns) if parallel else 1
    steps = []
    for _ in range(length + 1):
        agent_index = np.full((num_envs, num_slots), -1)
        for b in range(num_envs):
            deciding = rng.permutation(columns)[: rng.integers(0, num_slots + 1)]
            agent_index[b, rng.permutation(num_slots)[: len(deciding)]] = deciding
        trained = (agent_index >= 0) & (rng.random(agent_index.shape) < 0.85)
        value = rng.normal(size=agent_index.shape).astype(np.float32)
        over = rng.random(num_envs) < 0.2
        terminated = (rng.random((num_envs, num_agents)) < 0.1) | (
            over[:, None] & (rng.random((num_envs, num_agents)) < 0.5)
        )
        truncated = rng.random((num_envs, num_agents)) < 0.15
        final_value = rng.normal(size=(num_envs, len(columns))).astype(np.float32)
        steps.append(
            Step(
                agent_index=agent_index,
                trained=trained,
                value=np.where(trained, value, np.nan).astype(np.float32),
                reward=rng.normal(size=(num_envs, num_agents)).astype(np.float32),
                terminated=terminated,
                truncated=truncated,
                episode_over=over,
                final_value=np.where(truncated[:, columns], final_value, np.nan).astype(np.float32),
            )
        )
    # The values of the next decisions are known, because the policy decides there.
    steps[-1].value = np.nan_to_num(steps[-1].value, nan=0.25)
    return steps


def follow(steps: list[Step], *, b: int, column: int, position: int) -> list[Trajectory]:
    """One agent of one environment, forwards through time."""
    trajectories, current = [], Trajectory()
    for t, step in enumerate(steps[:-1]):
        for s in np.flatnonzero(step.agent_index[b] == column):
            current.decisions.append(
                Decision(t, b, int(s), bool(step.trained[b, s]), float(step.value[b, s]))
            )
        if current.decisions:
            current.decisions[-1].reward += float(step.reward[b, column])
        terminated, truncated = step.terminated[b, column], step.truncated[b, column]
        if terminated or truncated or step.episode_over[b]:
            bootstraps = truncated and not terminated
            current.successor = float(step.final_value[b, position]) if bootstraps else 0.0
            trajectories.append(current)
            current = Trajectory()
    for s in np.flatnonzero(steps[-1].agent_index[b] == column):
        current.successor = float(steps[-1].value[b, s])
    return [*trajectories, current]


def reference(
    trajectory: Trajectory, *, gamma: float, gae_lambda: float
) -> dict[tuple[int, int, int], float]:
    """Advantages as sums of temporal differences, by (t, b, s)."""
    decisions = trajectory.decisions
    deltas: list[float | None] = []
    for index, decision in enumerate(decisions):
        following = decisions[index + 1] if index + 1 < len(decisions) else None
        if following is None:
            successor = trajectory.successor
        else:
            successor = following.value if following.trained else None
        known = decision.trained and successor is not None
        deltas.append(
            decision.reward + gamma * (successor or 0.0) - decision.value if known else None
        )
    advantages = {}
    for start, decision in enumerate(decisions):
        total, weight = 0.0, 1.0
        for delta in deltas[start:]:
            if delta is None:
                break
            total += weight * delta
            weight *= gamma * gae_lambda
        if deltas[start] is not None:
            advantages[decision.t, decision.b, decision.s] = total
    return advantages


def label(t: int, b: int, s: int) -> float:
    """Makes rows recognizable."""
    return float(10_000 * t + 100 * b + s)


def make_group(step: Step, *, t: int, masked: bool) -> Group:
    num_envs, num_slots = step.agent_index.shape
    observation = torch.tensor(
        [[[label(t, b, s), 1.0] for s in range(num_slots)] for b in range(num_envs)]
    )
    mask = torch.zeros(num_envs, num_slots, NUM_ACTIONS, dtype=torch.bool)
    mask[..., t % NUM_ACTIONS] = True
    return Group(
        agent_index=torch.from_numpy(step.agent_index),
        observation=observation,
        action_mask=mask if masked else None,
    )


def turn_of(step: Step) -> Turn:
    return make_turn(
        torch.from_numpy(step.reward),
        terminated=torch.from_numpy(step.terminated),
        truncated=torch.from_numpy(step.truncated),
        episode_over=torch.from_numpy(step.episode_over),
    )


def alone(agent: int, observation: float = 0.0) -> Group:
    """A group of one environment that asks one agent; -1: nobody."""
    return Group(torch.tensor([[agent]]), torch.full((1, 1, 1), observation), None)


def play(
    buffer: RolloutBuffer, steps: list[Step], *, masked: bool, gamma: float, gae_lambda: float
) -> Rollout:
    for t, step in enumerate(steps[:-1]):
        group = make_group(step, t=t, masked=masked)
        labels = group.observation[..., 0]
        value, final_value = torch.from_numpy(step.value), torch.from_numpy(step.final_value)
        action, log_prob = labels.long() % NUM_ACTIONS, -labels
        trained = torch.from_numpy(step.trained)
        buffer.store(t, group, action=action, log_prob=log_prob, value=value, trained=trained)
        turn = turn_of(step)
        buffer.store_result(t, turn, final_value=final_value)
        # The buffer must copy: the tensors of a turn may be overwritten later.
        for tensor in (group.observation, action, log_prob, group.agent_index, turn.reward):
            tensor.fill_(-7)
    last = make_group(steps[-1], t=0, masked=masked)
    return buffer.finish(
        group=last,
        value=torch.from_numpy(steps[-1].value),
        gamma=gamma,
        gae_lambda=gae_lambda,
        needs_transitions=True,
    )


def advantages_of_rows(rollout: Rollout, *, gamma: float, gae_lambda: float) -> list[float]:
    """The advantages once more, from what followed each row, the last rows first."""
    assert rollout.transitions is not None
    value, reward, successor, next_value = (
        tensor.tolist()
        for tensor in (
            rollout.value,
            rollout.transitions.reward,
            rollout.transitions.successor,
            rollout.transitions.next_value,
        )
    )
    advantages = [0.0] * len(rollout)
    for row in reversed(range(len(rollout))):
        after = successor[row]
        assert after == -1 or (after > row and value[after] == next_value[row])
        advantages[row] = reward[row] + gamma * next_value[row] - value[row]
        if after >= 0:
            advantages[row] += gamma * gae_lambda * advantages[after]
    return advantages


@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.integers(1, 9),
    num_envs=st.integers(1, 4),
    columns=st.sampled_from([[0], [1, 0], [0, 2], [3, 1, 2]]),
    parallel=st.booleans(),
    masked=st.booleans(),
    gae_lambda=st.sampled_from([0.0, 0.9, 1.0]),
)
@pytest.mark.slow
def test_agrees_with_one_list_per_agent(
    seed: int,
    length: int,
    num_envs: int,
    columns: list[int],
    parallel: bool,
    masked: bool,
    gae_lambda: float,
) -> None:
    rng = np.random.default_rng(seed)
    buffer = RolloutBuffer(length=length, agents=torch.tensor(columns))
    for _ in range(2):  # a buffer is used again
        steps = random_steps(
            rng, length=length, num_envs=num_envs, columns=columns, parallel=parallel
        )
        expected: dict[tuple[int, int, int], float] = {}
        for b in range(num_envs):
            for position, column in enumerate(columns):
                for trajectory in follow(steps, b=b, column=column, position=position):
                    expected |= reference(trajectory, gamma=0.9, gae_lambda=gae_lambda)
        trained = int(sum(step.trained.sum() for step in steps[:-1]))
        values = {(t, b, s): steps[t].value[b, s] for t, b, s in expected}
        rollout = play(buffer, steps, masked=masked, gamma=0.9, gae_lambda=gae_lambda)

        keys = sorted(expected)
        labels = [label(*key) for key in keys]
        assert rollout.observation.tolist() == [[row, 1.0] for row in labels]
        assert rollout.action.tolist() == [int(row) % NUM_ACTIONS for row in labels]
        assert rollout.log_prob.tolist() == [-row for row in labels]
        np.testing.assert_allclose(
            rollout.advantage, [expected[key] for key in keys], rtol=1e-4, atol=1e-5
        )
        again = advantages_of_rows(rollout, gamma=0.9, gae_lambda=gae_lambda)
        np.testing.assert_allclose(rollout.advantage, again, rtol=1e-4, atol=1e-5)
        assert rollout.value.tolist() == [values[key] for key in keys]
        torch.testing.assert_close(rollout.return_, rollout.advantage + rollout.value)
        assert rollout.agent_steps == trained
        assert len(rollout) == len(keys)
        if masked:
            assert rollout.action_mask is not None
            assert rollout.action_mask.int().argmax(1).tolist() == [t % 3 for t, _, _ in keys]
        else:
            assert rollout.action_mask is None


def test_two_seats_of_one_policy_in_turn_by_hand() -> None:
    """Two agents alternate; the winner moves last and the loser is told after its last move."""
    # t:       0        1        2 (over: +1, -1)   3 (new episode)
    # decides: agent 0  agent 1  agent 0            agent 0
    buffer = RolloutBuffer(length=4, agents=torch.tensor([0, 1]))
    deciding, values = [0, 1, 0, 0], [0.5, 0.25, 0.75, 0.1]
    for t, (agent, value) in enumerate(zip(deciding, values, strict=True)):
        over = t == 2
        buffer.store(
            t,
            alone(agent, float(t)),
            action=torch.tensor([[t]]),
            log_prob=torch.zeros(1, 1),
            value=torch.tensor([[value]]),
            trained=torch.ones(1, 1, dtype=torch.bool),
        )
        turn = make_turn(
            torch.tensor([[1.0, -1.0]]) if over else torch.zeros(1, 2),
            terminated=torch.tensor([[over, over]]),
            episode_over=torch.tensor([over]),
        )
        buffer.store_result(t, turn, final_value=torch.full((1, 2), torch.nan))
    rollout = buffer.finish(group=alone(1), value=torch.tensor([[0.9]]), gamma=0.9, gae_lambda=0.5)
    # A2 = 1 - .75 = .25; A1 = -1 - .25 = -1.25; A0 = .9 * .75 - .5 + .45 * .25 = .2875. The
    # decision at 3 has no known successor, because agent 1 is on turn.
    assert rollout.action.tolist() == [0, 1, 2]
    assert rollout.advantage.tolist() == pytest.approx([0.2875, -1.25, 0.25])
    assert rollout.return_.tolist() == pytest.approx([0.7875, -1.0, 1.0])
    assert rollout.agent_steps == rollout.num_decisions == 4


def play_alone(
    buffer: RolloutBuffer, *, deciding: list[bool], done: list[bool], over: list[bool], void: int
) -> Rollout:
    """One agent beside another population's; its actions number the steps."""
    for t, (decides, is_done, is_over) in enumerate(zip(deciding, done, over, strict=True)):
        buffer.store(
            t,
            alone(0 if decides else -1),
            action=torch.tensor([[t]]),
            log_prob=torch.zeros(1, 1),
            value=torch.zeros(1, 1),
            trained=torch.tensor([[decides]]),
        )
        turn = make_turn(
            torch.zeros(1, 2),
            terminated=torch.tensor([[is_done, False]]),
            episode_over=torch.tensor([is_over]),
            void=torch.tensor([True]) if t == void else None,
        )
        buffer.store_result(t, turn, final_value=torch.zeros(1, 1))
    return buffer.finish(group=alone(0), value=torch.zeros(1, 1), gamma=0.9, gae_lambda=0.5)


def test_a_void_episode_is_dropped_from_its_first_step_and_no_other_is() -> None:
    buffer = RolloutBuffer(length=8, agents=torch.tensor([0]))
    # t:        0    1     2    3     4    5     6    7
    # decides:  yes  -     yes  yes   -    -     yes  yes
    # done:          yes        yes
    # over:               yes             void
    # The agent ends before its episodes do: its end at 3 is within the one that is void.
    rollout = play_alone(
        buffer,
        deciding=[True, False, True, True, False, False, True, True],
        done=[False, True, False, True, False, False, False, False],
        over=[False, False, True, False, False, True, False, False],
        void=5,
    )
    assert rollout.action.tolist() == [0, 2, 6, 7]
    # Decisions are at 0, 2, 3, 6 and 7; the one at 3 is void.
    assert (rollout.agent_steps, rollout.num_decisions) == (4, 5)


def test_of_a_void_episode_that_began_before_the_rollout_all_of_the_rollout_is_dropped() -> None:
    buffer = RolloutBuffer(length=4, agents=torch.tensor([0]))
    # The first rollout ends within an episode, while the buffer still holds the ends of its steps.
    steps = [True, True, True, True]
    play_alone(buffer, deciding=steps, done=[False] * 4, over=[True, True, False, False], void=-1)
    rollout = play_alone(
        buffer,
        deciding=steps,
        done=[True, False, False, False],
        over=[False, False, True, False],
        void=2,
    )
    assert rollout.action.tolist() == [3]
    assert rollout.agent_steps == 1


def test_a_rollout_without_trained_decisions_is_empty() -> None:
    steps = random_steps(
        np.random.default_rng(0), length=3, num_envs=2, columns=[0, 1], parallel=True
    )
    for step in steps:
        step.trained[:] = False
    # The last step belongs to the next rollout.
    decisions = sum(int((step.agent_index >= 0).sum()) for step in steps[:-1])
    buffer = RolloutBuffer(length=3, agents=torch.tensor([0, 1]))
    rollout = play(buffer, steps, masked=True, gamma=0.9, gae_lambda=0.9)
    assert len(rollout) == rollout.agent_steps == 0
    assert rollout.num_decisions == decisions > 0
    assert rollout.observation.shape == (0, 2)


def test_misuse_is_refused() -> None:
    steps = random_steps(
        np.random.default_rng(0), length=1, num_envs=2, columns=[0, 1], parallel=True
    )
    buffer = RolloutBuffer(length=1, agents=torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="empty"):
        buffer.store_result(0, turn_of(steps[0]), final_value=torch.zeros(2, 2))
    play(buffer, steps, masked=True, gamma=0.9, gae_lambda=0.9)
    zeros = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="always or never"):
        buffer.store(
            0,
            make_group(steps[0], t=0, masked=False),
            action=zeros,
            log_prob=zeros,
            value=zeros,
            trained=zeros > 0,
        )
