"""Builds the algorithm that a population's configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

import torch

from arena.config import Model, NetworkConfig, PopulationSetup
from arena.core import Algorithm
from arena.learning.hyperparameters import (
    coerce_hyperparameters,
    hyperparameter_model,
    own_hyperparameters,
)
from arena.learning.ppo import Ppo
from arena.resolve import resolve


class AlgorithmClass(Protocol):
    """What ``package.module:Name`` must be: a class that is called like `Ppo`.

    It also has an attribute ``Hyperparameters``, an `arena.config.Model` of which
    ``hyperparameters`` is an instance.
    """

    def __call__(
        self,
        network: NetworkConfig,
        *,
        observation_size: int,
        num_actions: int,
        hyperparameters: Model,
        device: torch.device,
        precision: str,
        seed: int,
    ) -> Algorithm:
        """Make one policy with fresh weights that depend on the arguments alone."""
        ...


def make_algorithm(
    setup: PopulationSetup,
    *,
    observation_size: int,
    num_actions: int,
    hyperparameters: Mapping[str, float],
    device: torch.device,
    precision: str,
    seed: int,
    launch_directory: str,
) -> Algorithm:
    """Make one policy with fresh weights.

    Args:
        setup: Its population.
        observation_size: Features of a flattened observation.
        num_actions: Actions to choose from.
        hyperparameters: A policy's by name; integral ones are rounded, absent ones have their
            defaults, and weights of the reward are not the algorithm's business.
        device: Where it lives.
        precision: ``auto``, ``float32`` or ``bfloat16``.
        seed: Of the weights.
        launch_directory: Where ``package`` is looked for first.

    Raises:
        ConfigError: If there is no such algorithm, or a hyperparameter is out of its range.
    """
    model = hyperparameter_model(setup.algorithm, launch_directory=launch_directory)
    values = coerce_hyperparameters(model, own_hyperparameters(hyperparameters))
    algorithm = (
        Ppo
        if setup.algorithm == "ppo"
        else resolve(setup.algorithm, launch_directory=launch_directory)
    )
    return cast("AlgorithmClass", algorithm)(
        setup.network,
        observation_size=observation_size,
        num_actions=num_actions,
        hyperparameters=model.model_validate(values),
        device=device,
        precision=precision,
        seed=seed,
    )
