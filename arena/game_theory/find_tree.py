"""Find the game tree of an environment, where it is a small game that can be enumerated.

Tests: `tests/arena/game_theory/test_openspiel_tree.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import torch

from arena.environment_spec import EnvironmentSpec
from arena.envs.batched.find import find_game
from arena.envs.batched.game import BatchedGame, BatchedGameClass
from arena.envs.openspiel.game import is_openspiel, load_game
from arena.envs.twins import TWINS
from arena.game_theory.game_tree import NUM_AGENTS, DealtGame, GameTree, NoGameTree, grow_tree
from arena.game_theory.openspiel_tree import grow_openspiel_tree

CPU = torch.device("cpu")


def find_tree(spec: EnvironmentSpec, *, launch_directory: str) -> GameTree:
    """Grow the tree of a game of OpenSpiel, of a game with a native twin, or of a `DealtGame`.

    Args:
        spec: Environment's spec.
        launch_directory: Directory put first on ``sys.path``.

    Raises:
        NoGameTree: If the environment is none of these, or is not small, two-player and zero-sum;
            the message says why.
        ConfigError: If it cannot be made.
    """
    if len(spec.agents) != NUM_AGENTS:
        raise NoGameTree(f"{spec.id} must have two agents, got {len(spec.agents)}")
    # A twin is the original with its default parameters only.
    if is_openspiel(spec.id) and (spec.id not in TWINS or spec.kwargs):
        return grow_openspiel_tree(load_game(spec.id, spec.kwargs))
    game_class = find_game(spec.id, launch_directory=launch_directory)
    if game_class is None:
        raise NoGameTree(
            f"{spec.id} must be a game of OpenSpiel, have a native twin or be a batched game: of "
            "others not all histories can be played"
        )
    made: BatchedGameClass = partial(cast("Callable[..., BatchedGame]", game_class), **spec.kwargs)
    # The chance events of a twin are known; a user's game must declare them.
    if spec.id not in TWINS and not isinstance(made(1, device=CPU), DealtGame):
        raise NoGameTree(f"{spec.id} must be a DealtGame, which says what is left to chance")
    return grow_tree(made)
