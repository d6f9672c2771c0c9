"""Loading of players from Python.

Tests: `tests/tools/api/test_load.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from arena.errors import CheckpointCorrupt, ConfigError
from arena.types import is_bot

from .player import Player

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from arena.export.champion import Champion, GraphPlayer
    from arena.networks.actor_critic import ActorCritic

    from ..players.game import Game
    from ..players.weights import MixtureWeights, PolicyWeights

_CENTRALIZED = "its critic is centralized and reads more than an observation"


def load(
    player: str | os.PathLike[str],
    *,
    environment: str | None = None,
    seed: int | None = None,
    trust: bool = False,
) -> Player:
    """Load a player of any origin.

    An export needs onnxruntime and numpy alone. Torch is imported where another policy is loaded.

    Args:
        player: PLAYER of the commands: a run directory (its champion, of each population),
            ``RUN:player/p003`` (latest checkpoint), ``RUN:player/p003@120000`` (a kept checkpoint
            or a ghost) or its directory, a directory that ``arena export`` wrote, ``bot:random`` or
            ``bot:package.module:Class(depth=3)``; with options as ``DIR:level=3`` or
            ``RUN:temperature=2``, which sample.
        environment: Environment to play; needed by bots, and for them only.
        seed: Seed of all draws. None: different draws each time.
        trust: Whether code that a run or an export from elsewhere names may be imported: it runs
            with all rights of yours.

    Raises:
        ConfigError: If there is no such player; the text says what there is.
        CheckpointError: If its weights are missing or damaged.
        StorageError: If the journal of its run cannot be read.
    """
    from ..players.resolve import exports_at, split_policy

    name = os.fspath(player)
    if is_bot(name):
        if environment is None:
            raise ConfigError(f"{name} plays anything: environment=ID must say what, got None")
        return _bot(name, environment=environment, seed=seed)
    if environment is not None:
        raise ConfigError(
            f"environment={environment} is for bots: {name} plays what it was trained in"
        )
    path, level, temperature = split_policy(name)
    if exports := exports_at(path):
        options = {"level": level, "temperature": temperature, "seed": seed}
        return _exported(name, exports, options, trust=trust)
    return _of_run(name, seed=seed, trust=trust)


def _bot(name: str, *, environment: str, seed: int | None) -> Player:
    from arena.bots.asking import AskedBot, make_object
    from arena.bots.ids import canonical_bot

    from ..players.game import Game
    from .bots import BotPlayer

    canonical = canonical_bot(name)
    game = Game.of_environment(environment)
    actions = game.action_layouts()
    parts: dict[str, GraphPlayer] = {}
    for population, agents in game.populations.items():
        facts = game.spec.agent_specs[agents[0]]
        # Each population has a bot of its own, because their action spaces may differ.
        made = make_object(canonical, launch_directory=game.launch_directory)
        parts[population] = BotPlayer(
            canonical,
            _facts(game, agents),
            bot=None
            if made is None
            else AskedBot(made, name=canonical, mask_place=facts.mask, actions=actions[population]),
            seed=seed,
        )

    def no_module(population: str) -> torch.nn.Module:
        raise ConfigError(f"{canonical} must be a policy to have a module: it is a bot")

    return Player(canonical, parts, why_no_value="it is a bot", modules=no_module)


def _facts(game: Game, agents: tuple[str, ...]) -> dict[str, Any]:
    """Return the entries of a card that say how agents are played."""
    facts = game.spec.agent_specs[agents[0]]
    return {
        "agents": list(agents),
        "mask": facts.mask,
        "observation": {"space": facts.observation},
        "action": {"space": facts.action},
        "environment": {"continuous_actions": game.environment.continuous_actions},
    }


def _exported(
    name: str, directories: list[Path], options: Mapping[str, Any], *, trust: bool
) -> Player:
    champions: dict[str, Champion] = {}
    for directory in directories:
        champion = _champion(directory, options)
        champions[str(champion.card["population"])] = champion
    environments = [champion.card["environment"] for champion in champions.values()]
    # A directory may hold exports of different runs.
    if any(one[key] != environments[0][key] for one in environments for key in ("id", "kwargs")):
        raise ConfigError(f"the exports in {name} are of different environments")

    def module(population: str) -> torch.nn.Module:
        from ..players.resolve import resolve_player

        resolved = resolve_player(name, trust=trust)
        assert resolved.game is not None, "an export has a game"
        weights = _member(resolved.policies[population], champions[population].member)
        return weights.make_policy(resolved.game).network

    return Player(name, champions, why_no_value=_CENTRALIZED, modules=module)


def _champion(directory: Path, options: Mapping[str, Any]) -> Champion:
    from arena.export.champion import Champion, NoLevel

    try:
        return Champion(directory, **options)
    except NoLevel as error:
        raise ConfigError(str(error)) from None
    # An export may come from anywhere: its card may lack keys, and its graph may be invalid.
    except Exception as error:
        raise CheckpointCorrupt(
            f"{directory} must be a whole export: {type(error).__name__}: {error}"
        ) from error


def _of_run(name: str, *, seed: int | None, trust: bool) -> Player:
    from ..players.resolve import resolve_player

    resolved = resolve_player(name, trust=trust)
    game = resolved.game
    assert game is not None, "only bots have no game"
    networks: dict[str, ActorCritic] = {}
    parts: dict[str, GraphPlayer] = {}
    for population, weights in resolved.policies.items():
        policy = _member(weights, 0)
        networks[population] = policy.make_policy(game).network
        parts[population] = _torch_player(policy, networks[population], game=game, seed=seed)
    return Player(
        name,
        parts,
        why_no_value=_CENTRALIZED,
        # The copies may be changed without changing the player.
        modules=lambda population: deepcopy(networks[population]),
    )


def _torch_player(
    policy: PolicyWeights, network: ActorCritic, *, game: Game, seed: int | None
) -> GraphPlayer:
    from arena.export.champion import GraphPlayer
    from arena.export.graph import TorchSession

    facts = _facts(game, policy.agents)
    observation, _ = game.layouts(policy.agents, network=policy.network)
    session = TorchSession(network, layout=observation, has_mask=facts["mask"] is not None)
    # The tensors already include the temperature; 1 makes the player sample from the logits as they
    # are.
    temperature = None if policy.temperature is None else 1.0
    return GraphPlayer(facts, [session], temperature=temperature, seed=seed)


def _member(weights: PolicyWeights | MixtureWeights, index: int) -> PolicyWeights:
    """Return a policy, or the one of a mixture."""
    from ..players.weights import MixtureWeights

    return weights.members[index] if isinstance(weights, MixtureWeights) else weights
