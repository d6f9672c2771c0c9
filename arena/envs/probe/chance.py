"""Chance of an environment: whether equal decisions lead to different games, seed by seed.

Imported only where chance is asked for: a batch needs torch.

Tests: `tests/arena/envs/probe/test_chance.py`, `tests/arena/matches/test_distinct.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from itertools import islice

import torch

from arena.environment_spec import EnvironmentRequest, EnvironmentSpec
from arena.envs.base import BatchedEnv, Turn
from arena.envs.make import make_batched_env, plain_request
from arena.envs.random_play import action_layouts, populations_of, random_turns
from arena.spaces import ActionLayout

SEED = 7

NUM_SEEDS, FEW_SEEDS = 16, 4
"""Environments with a seed each: so many are unlikely to draw alike, episode after episode. Few
where a launch waits for environments that may step slowly."""


def find_chance(spec: EnvironmentSpec, request: EnvironmentRequest) -> bool:
    """Return whether the environment of a request has chance.

    Args:
        spec: Facts about it.
        request: Request that they answer.

    Raises:
        EnvironmentFault: If it breaks in random play.
    """
    possible = request.possible_agents
    batch = plain_request(
        spec,
        num_envs=FEW_SEEDS,
        launch_directory=request.launch_directory,
        possible_agents=None if possible is None else list(possible),
    )
    with closing(make_batched_env(batch)) as env:
        return has_chance(env, actions=action_layouts(spec, populations=populations_of(spec)))


def has_chance(
    env: BatchedEnv, *, actions: Mapping[str, ActionLayout], num_steps: int = 1000
) -> bool:
    """Return whether environments with other seeds diverge after the same decisions.

    Args:
        env: Two environments or more; reset here.
        actions: Action layouts by population.
        num_steps: Random calls of ``step``; chance that comes later is not seen.
    """
    generator = torch.Generator().manual_seed(SEED)
    turns = random_turns(env, seeds=range(env.num_envs), actions=actions, generator=generator)
    for turn, answers in islice(turns, num_steps + 1):
        if not _are_alike(turn):
            return True
        # The first environment's actions for all: as long as they are alike, the same ones are
        # legal.
        for name, rows in answers.items():
            answers[name] = rows[:1].expand_as(rows).contiguous()
    return False


def _are_alike(turn: Turn) -> bool:
    """Return whether all environments of a batch are in the state of the first one."""
    for told in (turn.reward, turn.terminated, turn.truncated, turn.episode_over):
        if not bool((told == told[:1]).all()):
            return False
    for group in turn.groups.values():
        if not bool((group.agent_index == group.agent_index[:1]).all()):
            return False
        asked = group.agent_index >= 0
        if not bool((group.observation == group.observation[:1])[asked].all()):
            return False
        if group.action_mask is not None and not bool(
            (group.action_mask == group.action_mask[:1])[asked].all()
        ):
            return False
    return True
