"""Comparison of two environments: same seeds, same actions, every number equal.

A native twin that plays a different game is useless. Both environments are stepped side by side
with random legal actions, and every `Turn` is compared wherever it is defined. The first difference
is reported with everything needed to replay it by hand.

Shapes: B environments, S agents of a population that decide at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import torch

from arena.environment_spec import EnvironmentRequest, EnvironmentSpec
from arena.envs.base import BatchedEnv, Turn
from arena.envs.chance import episode_seed
from arena.envs.describe import environment_facts
from arena.envs.make import PlainEnvs
from arena.envs.random_play import random_legal_actions
from arena.envs.turn_diff import (
    ABOUT_THE_NEXT_DECISION,
    Difference,
    first_difference,
)
from arena.spaces import ActionLayout

SEED = 7

Progress = Callable[[int], None]
"""Callback that gets the number of ended games after each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceReport:
    """Result of a comparison.

    Attributes:
        games: Episodes that both played to their ends.
        decisions: Decisions in these and in unfinished episodes.
        difference: First difference; None if both are the same game.
        env_steps_per_s: Environments stepped per second, of the first and the second.
    """

    games: int
    decisions: int
    difference: Difference | None
    env_steps_per_s: tuple[float, float]


def check_against(
    first: EnvironmentRequest,
    second: EnvironmentRequest,
    *,
    num_games: int,
    num_envs: int = 256,
    seed: int = SEED,
    progress: Progress | None = None,
) -> ConformanceReport:
    """Compare two environments by their ids, each agent a side, the higher return winning.

    An id with a native twin stands for the original itself; the twin has an id of its own.

    Args:
        first: The first environment.
        second: The second one.
        num_games: Least number of games that are played to their ends.
        num_envs: B, of both.
        seed: Seed of chance and actions.
        progress: Callback with the progress.

    Raises:
        ConfigError: If one cannot be made.
        EnvironmentFault: If one breaks its contract.
        ValueError: If ``num_games`` or ``num_envs`` is less than 1.
    """
    specs = environment_facts(first), environment_facts(second)
    # Specs are compared first, because batches with different spaces cannot take the same actions.
    difference = spec_difference(*specs)
    if difference is not None:
        return _without_playing(difference)
    plain, other_plain = (
        PlainEnvs(spec=spec, launch_directory=asked.launch_directory)
        for spec, asked in zip(specs, (first, second), strict=True)
    )
    with (
        closing(plain.make(num_envs=num_envs)) as one,
        closing(other_plain.make(num_envs=num_envs)) as other,
    ):
        return compare_environments(
            one,
            other,
            populations=plain.populations,
            actions=plain.actions,
            num_games=num_games,
            seed=seed,
            progress=progress,
        )


def spec_difference(one: EnvironmentSpec, other: EnvironmentSpec) -> Difference | None:
    """Return the first fact in which two environments differ, apart from ids and versions."""
    if one.api != other.api:
        return Difference(what="api", one=one.api, other=other.api)
    if one.agents != other.agents:
        return Difference(what="agents", one=list(one.agents), other=list(other.agents))
    for agent in one.agents:
        mine, theirs = one.agent_specs[agent], other.agent_specs[agent]
        for what, value, second in (
            ("observation space", mine.observation, theirs.observation),
            ("action space", mine.action, theirs.action),
            ("mask", mine.mask, theirs.mask),
        ):
            if value != second:
                return Difference(what=what, agent=agent, one=value, other=second)
    return None


def compare_environments(
    one: BatchedEnv,
    other: BatchedEnv,
    *,
    populations: Mapping[str, tuple[str, ...]],
    actions: Mapping[str, ActionLayout],
    num_games: int,
    seed: int,
    progress: Progress | None = None,
) -> ConformanceReport:
    """Step two batches with the same seeds and random legal actions until they differ.

    Args:
        one: First batch; the caller closes both.
        other: Second batch, with as many environments.
        populations: Agents by population, of both.
        actions: Action layouts by population.
        num_games: Number of finished episodes after which the comparison stops.
        seed: Seed of the environments and of the actions.
        progress: Callback with the number of finished games, after each call.

    Raises:
        EnvironmentFault: If one breaks its contract.
        ValueError: If the numbers of environments differ, or there is nothing to compare.
    """
    if one.num_envs != other.num_envs or one.num_envs < 1:
        raise ValueError(
            "both must have equally many environments, at least one, got "
            f"{one.num_envs} and {other.num_envs}"
        )
    if num_games < 1:
        raise ValueError(f"num_games must be at least 1, got {num_games}")
    if one.agents != other.agents:
        return _without_playing(
            Difference(what="agents", one=list(one.agents), other=list(other.agents))
        )
    comparison = _Comparison(one, other, populations=populations, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    difference = comparison.difference()
    while difference is None and comparison.games < num_games:
        # The masks of both are equal so far, so actions are drawn with those of the first.
        comparison.step(random_legal_actions(comparison.turn, actions=actions, generator=generator))
        difference = comparison.difference()
        if progress is not None:
            progress(comparison.games)
    return comparison.report(difference)


class _Comparison:
    """Two batches side by side, with the actions of the unfinished episodes."""

    def __init__(
        self,
        one: BatchedEnv,
        other: BatchedEnv,
        *,
        populations: Mapping[str, tuple[str, ...]],
        seed: int,
    ) -> None:
        state = np.random.SeedSequence(seed).generate_state(one.num_envs, np.uint64)
        self._seeds = [int(value) >> 1 for value in state]
        self._agents = one.agents
        self._populations = populations
        self._envs = (one, other)
        self._stepping_s = [0.0, 0.0]
        self._turns = (one.reset(self._seeds), other.reset(self._seeds))
        self._num_calls = 0
        # The numbers of calls and of episodes before each environment's current episode. [B]
        self._began = torch.zeros(one.num_envs, dtype=torch.int64)
        self._episodes = torch.zeros(one.num_envs, dtype=torch.int64)
        # Deciding agents and actions by population, for each call since the oldest unfinished
        # episode began.
        self._past: deque[dict[str, tuple[torch.Tensor, torch.Tensor]]] = deque()
        self._decisions = 0
        self.games = 0

    @property
    def turn(self) -> Turn:
        """Return the current turn of the first batch."""
        return self._turns[0]

    def step(self, actions: Mapping[str, torch.Tensor]) -> None:
        """Step both batches; call this only after `difference` returned None."""
        self._begin_episodes()
        calls = {
            # On the CPU the index is the buffer itself, which the next step overwrites, so it is
            # cloned.
            name: (group.agent_index.cpu().clone(), actions[name])
            for name, group in self.turn.groups.items()
        }
        self._decisions += sum(int((index >= 0).sum()) for index, _ in calls.values())
        self._past.append(calls)
        # 64 bits -> [0, 2**63), the range of seeds
        self._num_calls += 1
        self._turns = (self._step(0, actions), self._step(1, actions))

    def difference(self) -> Difference | None:
        """Compare the turns, and count games that ended equally."""
        found = first_difference(*self._turns, agents=self._agents, populations=self._populations)
        if found is None:
            self.games += int(self.turn.episode_over.sum())
            return None
        return found if (b := found.environment_index) is None else self._located(found, b)

    def report(self, difference: Difference | None) -> ConformanceReport:
        """Return the result."""
        steps = self._num_calls * len(self._seeds)
        one, other = (steps / stepping_s if steps else 0.0 for stepping_s in self._stepping_s)
        return ConformanceReport(
            games=self.games,
            decisions=self._decisions,
            difference=difference,
            env_steps_per_s=(one, other),
        )

    def _step(self, side: int, actions: Mapping[str, torch.Tensor]) -> Turn:
        device = self._turns[side].reward.device
        moved = {name: action.to(device) for name, action in actions.items()}
        before = time.perf_counter()
        turn = self._envs[side].step(moved)
        if device.type == "cuda":
            # CUDA kernels run on after the call, so they are awaited for a correct time.
            torch.cuda.synchronize(device)
        self._stepping_s[side] += time.perf_counter() - before
        return turn

    def _begin_episodes(self) -> None:
        """Drop the calls that no current episode needs."""
        over = self.turn.episode_over.cpu()
        self._began[over] = self._num_calls
        self._episodes += over
        # `_past` ends with the last call, so its first entry is call num_calls - len.
        while self._past and self._num_calls - len(self._past) < int(self._began.min()):
            self._past.popleft()

    def _located(self, found: Difference, b: int) -> Difference:
        # After an episode's end, a decision belongs to the next episode and a reward to the last
        # one.
        is_new = found.what in ABOUT_THE_NEXT_DECISION and bool(self.turn.episode_over[b])
        episode = int(self._episodes[b]) + int(is_new)
        # The reset of a new episode counts as call 0, without actions.
        call = 0 if is_new else self._num_calls - int(self._began[b])
        return replace(
            found,
            seed=self._seeds[b],
            episode=episode,
            episode_seed=episode_seed(self._seeds[b], episode=episode),
            call=call,
            actions=tuple(self._actions(b, past) for past in list(self._past)[-call:] if call),
        )

    def _actions(
        self, b: int, call: Mapping[str, tuple[torch.Tensor, torch.Tensor]]
    ) -> dict[str, int]:
        return {
            self._agents[column]: action
            for index, actions in call.values()
            for column, action in zip(index[b].tolist(), actions[b].tolist(), strict=True)
            if column >= 0
        }


def _without_playing(difference: Difference) -> ConformanceReport:
    return ConformanceReport(
        games=0, decisions=0, difference=difference, env_steps_per_s=(0.0, 0.0)
    )
