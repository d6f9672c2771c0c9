"""Makes the algorithm that a population's configuration names."""

from __future__ import annotations

import inspect
from typing import Protocol, cast

import torch

from arena.config import Model, NetworkConfig, PopulationSetup
from arena.core import Algorithm
from arena.errors import ConfigError
from arena.learning.hyperparameters import (
    algorithm_hyperparameters,
    changeable_settings,
    coerce_hyperparameters,
    hyperparameter_model,
    make_settings,
)
from arena.learning.ppo import Ppo
from arena.resolve import resolve
from arena.spaces import ActionLayout, ObservationLayout
from arena.types import Hyperparameters


class AlgorithmClass(Protocol):
    """The class that ``package.module:Name`` names, called like `Ppo`.

    It has an attribute ``Hyperparameters``, an `arena.config.Model` of numbers and booleans that
    PBT may change, and may have one ``Settings``, an `arena.config.Model` of settings that it may
    not, but for those that are named in its class variable ``CHANGEABLE``.
    """

    def __call__(
        self,
        network: NetworkConfig,
        *,
        observation: ObservationLayout,
        action: ActionLayout,
        hyperparameters: Model,
        settings: Model,
        device: torch.device,
        precision: str,
        seed: int,
    ) -> Algorithm:
        """Make one policy with fresh weights that depend on the arguments alone.

        Args:
            network: Architecture of the population. The network that
                `arena.networks.actor_critic.make_actor_critic` makes of it with these layouts is
                the one that plays: ``weights`` are its ``state_dict``.
            observation: Layout of the observations.
            action: Layout of the actions.
            hyperparameters: Instance of the class's ``Hyperparameters``.
            settings: Instance of its ``Settings``; without such, an empty model.
            device: Device that it trains on.
            precision: ``auto``, ``float32`` or ``bfloat16``: precision of products in training.
            seed: Seed of the weights.

        Where ``network.critic`` is not ``own``, there is one more argument, ``critic_input``: the
        layout of a centralized critic's input.
        """


def make_algorithm(
    setup: PopulationSetup,
    *,
    observation: ObservationLayout,
    action: ActionLayout,
    hyperparameters: Hyperparameters,
    device: torch.device,
    precision: str,
    seed: int,
    launch_directory: str,
    critic_input: ObservationLayout | None = None,
) -> Algorithm:
    """Make one policy with fresh weights.

    Args:
        setup: Population of the policy.
        observation: Layout of the observations.
        action: Layout of the actions.
        hyperparameters: Values by name; integral ones are rounded, absent ones have their defaults,
            and weights of the reward are not the algorithm's business.
        device: Device that it trains on.
        precision: ``auto``, ``float32`` or ``bfloat16``.
        seed: Seed of the weights.
        launch_directory: Directory in which ``package`` is looked for first.
        critic_input: Layout of a centralized critic's input, where the network has one.

    Raises:
        ConfigError: If there is no such algorithm, a hyperparameter or setting is not as it must
            be, or the network is recurrent or has a centralized critic and the algorithm supports
            none.
    """
    name, network = setup.algorithm, setup.network
    model = hyperparameter_model(name, launch_directory=launch_directory)
    # A policy's hyperparameters include reward weights, which the algorithm does not take.
    own = algorithm_hyperparameters(hyperparameters)
    settings = {
        key: own.pop(key)
        for key in changeable_settings(name, launch_directory=launch_directory)
        if key in own and key not in model.model_fields
    }
    values = coerce_hyperparameters(model, own)
    algorithm_class = Ppo if name == "ppo" else resolve(name, launch_directory=launch_directory)
    # This is checked before the class is called, because a TypeError from inside a user's class
    # would not name the cause.
    if network.critic != "own" and not _takes_critic_input(algorithm_class):
        raise ConfigError(
            f"network.critic must be own with algorithm {name}, which takes no critic_input "
            f"(arena.core.Algorithm.critic_size), got {network.critic!r}"
        )
    algorithm = cast("AlgorithmClass", algorithm_class)(
        network,
        observation=observation,
        action=action,
        hyperparameters=model.model_validate(values),
        settings=make_settings(
            name, {**setup.algorithm_settings, **settings}, launch_directory=launch_directory
        ),
        device=device,
        precision=precision,
        seed=seed,
        # The argument is omitted without a critic, because users' classes need not have it.
        **({} if critic_input is None else {"critic_input": critic_input}),
    )
    _check_algorithm(algorithm, name=name, network=network)
    return algorithm


def _takes_critic_input(algorithm_class: object) -> bool:
    if not callable(algorithm_class):
        return False
    # The argument is looked up by name, because the class is called with keywords.
    return "critic_input" in inspect.signature(algorithm_class).parameters


def _check_algorithm(algorithm: object, *, name: str, network: NetworkConfig) -> None:
    """Check that a user's algorithm is one, and that it can train the network.

    Raises:
        ConfigError: If not.
    """
    # An isinstance check with a Protocol verifies that all members exist, not their types.
    if not isinstance(algorithm, Algorithm):
        missing = [part for part in _parts(Algorithm) if not hasattr(algorithm, part)]
        raise ConfigError(
            f"algorithm {name} must be an arena.core.Algorithm (inherit from it for the defaults), "
            f"it has no {', '.join(missing)}"
        )
    if network.core != "none" and not algorithm.state_size:
        raise ConfigError(
            f"network.core must be none with algorithm {name}, whose state_size is 0 "
            f"(arena.core.Algorithm), got {network.core!r}"
        )


def _parts(protocol: type) -> list[str]:
    return [part for part in vars(protocol) if not part.startswith("_")]
