"""Builds the algorithm that a population's configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

import torch

from arena.config import Model, NetworkConfig, PopulationSetup
from arena.core import Algorithm, state_size
from arena.envs.spaces.actions import ActionLayout
from arena.envs.spaces.observations import ObservationLayout
from arena.errors import ConfigError
from arena.learning.hyperparameters import (
    coerce_hyperparameters,
    hyperparameter_model,
    make_settings,
    own_hyperparameters,
)
from arena.learning.ppo import Ppo
from arena.resolve import resolve


class AlgorithmClass(Protocol):
    """What ``package.module:Name`` must be: a class that is called like `Ppo`.

    It has an attribute ``Hyperparameters``, an `arena.config.Model` of numbers that PBT may change,
    and may have one ``Settings``, an `arena.config.Model` of what it may not.
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
            network: The population's architecture. What `arena.networks.make.make_actor_critic`
                makes of it with these layouts is what plays: ``weights`` are its ``state_dict``.
            observation: What the rows of observations are.
            action: What the rows of actions are.
            hyperparameters: An instance of the class's ``Hyperparameters``.
            settings: An instance of its ``Settings``; without such, an empty model.
            device: Where it lives.
            precision: ``auto``, ``float32`` or ``bfloat16``: of products in training.
            seed: Of the weights.

        Where ``network.critic`` is not ``own``, it is called with ``critic_input`` besides, the
        layout of the rows that only its values see.
        """
        ...


def make_algorithm(
    setup: PopulationSetup,
    *,
    observation: ObservationLayout,
    action: ActionLayout,
    hyperparameters: Mapping[str, float],
    device: torch.device,
    precision: str,
    seed: int,
    launch_directory: str,
    critic_input: ObservationLayout | None = None,
) -> Algorithm:
    """Make one policy with fresh weights.

    Args:
        setup: Its population.
        observation: What the rows of observations are.
        action: What the rows of actions are.
        hyperparameters: A policy's by name; integral ones are rounded, absent ones have their
            defaults, and weights of the reward are not the algorithm's business.
        device: Where it lives.
        precision: ``auto``, ``float32`` or ``bfloat16``.
        seed: Of the weights.
        launch_directory: Where ``package`` is looked for first.
        critic_input: What a centralized critic reads, where the network has one.

    Raises:
        ConfigError: If there is no such algorithm, a hyperparameter or setting is not as it must
            be, or the network has a memory or a centralized critic and the algorithm knows of none.
    """
    model = hyperparameter_model(setup.algorithm, launch_directory=launch_directory)
    values = coerce_hyperparameters(model, own_hyperparameters(hyperparameters))
    algorithm = (
        Ppo
        if setup.algorithm == "ppo"
        else resolve(setup.algorithm, launch_directory=launch_directory)
    )
    if setup.network.critic != "own" and not hasattr(algorithm, "critic_size"):
        raise ConfigError(
            f"network.critic must be own with algorithm {setup.algorithm}, which has no "
            f"critic_size (arena.core.CentralizedAlgorithm), got {setup.network.critic!r}"
        )
    made = cast("AlgorithmClass", algorithm)(
        setup.network,
        observation=observation,
        action=action,
        hyperparameters=model.model_validate(values),
        settings=make_settings(
            setup.algorithm, setup.algorithm_settings, launch_directory=launch_directory
        ),
        device=device,
        precision=precision,
        seed=seed,
        **({} if critic_input is None else {"critic_input": critic_input}),
    )
    if setup.network.core != "none" and not state_size(made):
        raise ConfigError(
            f"network.core must be none with algorithm {setup.algorithm}, which has no state_size "
            f"(arena.core.RememberingAlgorithm), got {setup.network.core!r}"
        )
    return made
