"""Random play of a batch: its speed, its rewards, and whether a seed determines all results.

Tests: `tests/arena/envs/checks/test_check.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch

from arena.envs.base import BatchedEnv, Turn
from arena.envs.checks.roles import Role, roles_of
from arena.envs.probe.pace import ROUNDING
from arena.envs.random_play import random_legal_actions, random_turns
from arena.spaces import ActionLayout

SEED = 7

MakeBatch = Callable[[], AbstractContextManager[BatchedEnv]]


@dataclass(slots=True, kw_only=True)
class Measured:
    """Measurements of random play.

    Attributes:
        calls: Calls of ``step``.
        episodes: Episodes played to their ends.
        mean_length: Mean length of these, in calls of ``step``; None: no episode ended.
        decisions: Decisions made.
        env_steps_per_s: Environments stepped per second, on one core.
        agent_steps_per_s: Decisions per second.
        reward_low: Smallest reward of a decision; None: no call was made.
        reward_high: Largest reward of a decision.
        rewarded_share: Share of steps of an environment in which an agent received a non-zero
            reward. A call of ``step`` is a step of each environment of the batch.
        same_rewards: Groups of agents; within a group all rewards were equal.
        roles: Agents that seem to play one role, by their names and rewards.
        return_low: Smallest return of an agent in an episode; None: no episode ended.
        return_high: Largest return of an agent in an episode.
        has_stakes: Whether an agent's return was anything but -1, 0 or 1.
        legal_mean: Mean number of legal choices, by population with masks.
    """

    calls: int = 0
    episodes: int = 0
    mean_length: float | None = None
    decisions: int = 0
    env_steps_per_s: float = 0.0
    agent_steps_per_s: float = 0.0
    reward_low: float | None = None
    reward_high: float | None = None
    rewarded_share: float = 0.0
    same_rewards: tuple[tuple[str, ...], ...] = ()
    roles: tuple[Role, ...] = ()
    return_low: float | None = None
    return_high: float | None = None
    has_stakes: bool = False
    legal_mean: dict[str, float] = field(default_factory=dict)


class _Totals:
    """Sums over calls. B environments, A agents."""

    def __init__(self, agents: tuple[str, ...], *, num_envs: int) -> None:
        self._agents = agents
        self._began = torch.zeros(num_envs, dtype=torch.int64)
        self._returns = torch.zeros(num_envs, len(agents))
        self._rewards = np.zeros((num_envs, len(agents)))
        # Each agent's rewards so far are hashed to one number; different rewards almost surely
        # give different numbers.
        self._marks = np.zeros(len(agents))
        self._rng = np.random.default_rng(SEED)
        self._legal: dict[str, list[float]] = {}
        self._length_sum = self._rewarded = 0
        self.found = Measured()

    def ask(self, turn: Turn) -> None:
        """Count the pending decisions of a turn."""
        for name, group in turn.groups.items():
            asked = group.agent_index >= 0
            number = int(asked.sum())
            self.found.decisions += number
            if group.action_mask is not None and number:
                legal = int(group.action_mask[asked].sum())
                totals = self._legal.setdefault(name, [0.0, 0.0])
                totals[0] += legal
                totals[1] += number

    def hear(self, turn: Turn) -> None:
        """Count the results of a step."""
        found, reward = self.found, turn.reward
        found.calls += 1
        low, high = (float(bound) for bound in reward.aminmax())
        found.reward_low = low if found.reward_low is None else min(low, found.reward_low)
        found.reward_high = high if found.reward_high is None else max(high, found.reward_high)
        self._rewarded += int((reward != 0.0).any(dim=1).sum())
        # mark_a = sum over calls and environments of w r_a, with the same random w for all agents
        self._marks += self._rng.random(len(reward)) @ reward.double().numpy()
        self._returns += reward
        self._rewards += reward.double().numpy()
        over = turn.episode_over
        if not over.any():
            return
        found.episodes += int(over.sum())
        self._length_sum += int((found.calls - self._began[over]).sum())
        self._began[over] = found.calls
        low, high = (float(bound) for bound in self._returns[over].aminmax())
        found.return_low = low if found.return_low is None else min(low, found.return_low)
        found.return_high = high if found.return_high is None else max(high, found.return_high)
        sizes = self._returns[over].abs()
        # ||G| - s| <= ROUNDING for s in {0, 1}
        is_plain = torch.minimum(sizes, (sizes - 1.0).abs()) <= ROUNDING
        found.has_stakes = found.has_stakes or not bool(is_plain.all())
        self._returns[over] = 0.0

    def result(self, *, stepping_s: float) -> Measured:
        """Return the measurements."""
        found = self.found
        if stepping_s:
            found.env_steps_per_s = found.calls * len(self._began) / stepping_s
            found.agent_steps_per_s = found.decisions / stepping_s
        if found.calls:
            found.rewarded_share = self._rewarded / (found.calls * len(self._began))
        if found.episodes:
            found.mean_length = self._length_sum / found.episodes
        found.legal_mean = {name: legal / number for name, (legal, number) in self._legal.items()}
        found.roles = roles_of(self._agents, self._rewards)
        groups: dict[float, list[str]] = {}
        # Marks are rounded, because another order of summation changes their last bits.
        for agent, mark in zip(self._agents, self._marks.round(9).tolist(), strict=True):
            groups.setdefault(mark, []).append(agent)
        found.same_rewards = tuple(tuple(agents) for agents in groups.values())
        return found


def measure(
    make: MakeBatch, *, actions: Mapping[str, ActionLayout], seconds: float, patience_s: float
) -> Measured:
    """Play at random.

    Args:
        make: Factory of the batch.
        actions: Action layouts by population.
        seconds: Least time of play.
        patience_s: Longest time of play, where no episode has ended yet.

    Raises:
        EnvironmentFault: If the environment breaks its contract.
    """
    generator = torch.Generator().manual_seed(SEED)
    stepping_s = 0.0
    with make() as env:
        totals = _Totals(env.agents, num_envs=env.num_envs)
        turn = env.reset(range(env.num_envs))
        began = time.monotonic()
        while (spent_s := time.monotonic() - began) < seconds or (
            not totals.found.episodes and spent_s < patience_s
        ):
            totals.ask(turn)
            answers = random_legal_actions(turn, actions=actions, generator=generator)
            before = time.perf_counter()
            turn = env.step(answers)
            stepping_s += time.perf_counter() - before
            totals.hear(turn)
    return totals.result(stepping_s=stepping_s)


def first_difference_by_seed(
    make: MakeBatch, *, actions: Mapping[str, ActionLayout], num_steps: int
) -> str | None:
    """Return the first difference of two runs with the same seeds and actions; None: no
    difference.
    """
    with make() as one, make() as other:
        runs = (
            random_turns(
                env,
                seeds=range(env.num_envs),
                actions=actions,
                generator=torch.Generator().manual_seed(SEED),
            )
            for env in (one, other)
        )
        # Both runs step alternately, so that shared state (a global generator) shows as a
        # difference.
        for call, ((first, _), (second, _)) in enumerate(
            islice(zip(*runs, strict=True), num_steps + 1)
        ):
            where = f"after call {call} of step" if call else "after reset"
            for (what, values), (_, others) in zip(_shown(first), _shown(second), strict=True):
                # Bytes are compared, because NaN does not equal itself.
                if values.numpy().tobytes() != others.numpy().tobytes():
                    return f"{what} {where}"
    return None


def _shown(turn: Turn) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what a turn shows, by name; after a reset there are no results, which are equal."""
    yield "rewards", turn.reward
    yield "terminations", turn.terminated
    yield "truncations", turn.truncated
    yield "ends of episodes", turn.episode_over
    for name, group in turn.groups.items():
        yield f"who decides of {name!r}", group.agent_index
        asked = group.agent_index >= 0
        # Rows without a decision are undefined, so they are left out.
        yield f"observations of {name!r}", group.observation[asked]
        if group.action_mask is not None:
            yield f"action masks of {name!r}", group.action_mask[asked]
