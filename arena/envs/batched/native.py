"""Construction of B games that step as one.

Tests: `tests/arena/envs/batched/test_batch.py`, `tests/arena/envs/batched/test_backends.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.config import EnvironmentConfig
from arena.environment_spec import EnvironmentSpec
from arena.envs.batched.batch import GameBatch
from arena.envs.batched.find import game_facts
from arena.envs.batched.game import BatchedGameClass
from arena.envs.batched.scoring import make_batched_score
from arena.errors import ConfigError


def make_game_batch(
    environment: EnvironmentConfig,
    game_class: BatchedGameClass,
    *,
    spec: EnvironmentSpec,
    sides: Mapping[str, tuple[str, ...]],
    populations: Mapping[str, tuple[str, ...]],
    num_envs: int,
    launch_directory: str,
    device: torch.device,
) -> GameBatch:
    """Make B games that step as one; arguments as for `arena.envs.make.make_batched_env`.

    Raises:
        ConfigError: If the game refuses the kwargs, differs from the spec, or cannot be scored by
            the outcome.
    """
    # A twin may differ from the inspected original, or know other options.
    found = game_facts(spec.id, game_class, kwargs=spec.kwargs)
    if found.digest != spec.digest:
        raise ConfigError(
            f"environment.id {spec.id} must have the agents and spaces that it had when it was "
            f"inspected, {spec}, got {found}"
        )
    return GameBatch(
        spec.id,
        game=game_class(num_envs, device=device, **spec.kwargs),
        populations=populations,
        score=make_batched_score(
            environment.outcome,
            sides=sides,
            agents=spec.agents,
            launch_directory=launch_directory,
            device=device,
        ),
        num_sides=len(sides),
        num_envs=num_envs,
        device=device,
    )
