"""Chance of an environment: whether equal decisions lead to different games, seed by seed.

This module is imported only if chance is to be tested, because a batch needs torch.

Tests: `tests/arena/envs/probe/test_users_modules.py`, `tests/arena/matches/test_distinct.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from itertools import islice

import torch

from arena.environment_spec import EnvironmentRequest, EnvironmentSpec
from arena.envs.base import BatchedEnv
from arena.envs.make import PlainEnvs
from arena.envs.random_play import random_turns
from arena.envs.turn_diff import first_difference
from arena.spaces import ActionLayout

SEED = 7

NUM_SEEDS, FEW_SEEDS = 16, 4
"""Number of environments, each with its own seed: so many are unlikely to draw alike, episode after
episode. The lower one is for launches, which wait for environments that may step slowly."""


def find_chance(spec: EnvironmentSpec, request: EnvironmentRequest) -> bool:
    """Return whether the environment of a request has chance.

    spec: Facts about the environment.
        request: Request that the facts answer.
        request: Request that they answer.

    Raises:
        EnvironmentFault: If the environment breaks in random play.
    """
    plain = PlainEnvs(
        spec=spec,
        launch_directory=request.launch_directory,
        possible_agents=request.possible_agents,
    )
    with closing(plain.make(num_envs=FEW_SEEDS)) as env:
        return has_chance(env, populations=plain.populations, actions=plain.actions)


def has_chance(
    env: BatchedEnv,
    *,
    populations: Mapping[str, tuple[str, ...]],
    actions: Mapping[str, ActionLayout],
    num_steps: int = 1000,
) -> bool:
    """Return whether environments with other seeds diverge after the same decisions.

    Args:
        env: Two environments or more; reset here.
        populations: Agents by population.
        actions: Action layouts by population.
        num_steps: Random calls of ``step``; later chance is not detected.
    """
    generator = torch.Generator().manual_seed(SEED)
    turns = random_turns(env, seeds=range(env.num_envs), actions=actions, generator=generator)
    for turn, answers in islice(turns, num_steps + 1):
        first = turn.mapped(lambda tensor: tensor[:1].expand_as(tensor))
        if first_difference(turn, first, agents=env.agents, populations=populations) is not None:
            return True
        # The first environment's actions are used for all; while the games are alike, these are
        # legal in each.
        for name, rows in answers.items():
            answers[name] = rows[:1].expand_as(rows).contiguous()
    return False
