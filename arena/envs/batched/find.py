"""Search for the batched game of an environment's id. Torch-free until it has found one.

Tests: `tests/arena/envs/batched/test_backends.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING, cast

from arena.environment_spec import EnvironmentSpec
from arena.envs.openspiel.game import is_openspiel
from arena.envs.registry import TWINS
from arena.errors import ConfigError
from arena.resolve import resolve

if TYPE_CHECKING:
    from arena.envs.batched.game import BatchedGameClass

GAME_METHODS = ("reset", "decisions", "step")


def find_game(environment_id: str, *, launch_directory: str) -> BatchedGameClass | None:
    """Return the batched game that an id names, or the id's twin; None if there is neither.

    Args:
        environment_id: Canonical id.
        launch_directory: Directory put first on ``sys.path``.

    Raises:
        ConfigError: If the id is ``package.module:Name`` and there is no such name.
    """
    twin = TWINS.get(environment_id)
    if twin is None and not names_code(environment_id):
        return None
    named = resolve(twin or environment_id, launch_directory=launch_directory)
    # Only methods are checked: a game's properties may need an instance.
    is_game = isinstance(named, type) and all(hasattr(named, name) for name in GAME_METHODS)
    return cast("BatchedGameClass", named) if is_game else None


def names_code(environment_id: str) -> bool:
    """Return whether an id is ``package.module:Name``."""
    return ":" in environment_id and not is_openspiel(environment_id)


def game_facts(
    environment_id: str, game_class: BatchedGameClass, *, kwargs: Mapping[str, object]
) -> EnvironmentSpec:
    """Return the spec of an environment as its batched game states it.

    Raises:
        ConfigError: If the game does not take these kwargs.
    """
    # torch is imported only here, so that looking for a game needs none.
    import torch

    # One game suffices, because the facts do not depend on the number of games.
    game = game_class(1, device=torch.device("cpu"), **kwargs)
    return EnvironmentSpec(
        id=environment_id,
        kwargs=dict(kwargs),
        api=game.api,
        agents=tuple(game.agents),
        agent_specs=dict(game.agent_specs),
        versions={"torch": metadata.version("torch")},
    )


def check_backend(backend: str, environment_id: str, *, has_game: bool) -> None:
    """Refuse a backend that an environment does not have.

    Args:
        backend: ``auto``, ``pettingzoo`` or ``batched``.
        environment_id: Canonical id.
        has_game: Whether the id is a batched game or has one as its twin.

    Raises:
        ConfigError: If the environment does not have the backend.
    """
    if backend == "batched" and not has_game:
        raise ConfigError(
            f"environment.backend: there is no batched game of {environment_id}; "
            "pettingzoo steps it (arena envs list says which have one)"
        )
    if backend == "pettingzoo" and has_game and names_code(environment_id):
        raise ConfigError(
            f"environment.backend: {environment_id} is a batched game, not a PettingZoo "
            "environment (only those are stepped one by one, and may report components of rewards)"
        )
