"""What PBT may change about a policy, with the range of each value. Torch-free."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, cast

from pydantic import Field, ValidationError, create_model

from arena.config import MAX_REWARD_WEIGHT, Model
from arena.errors import ConfigError
from arena.resolve import resolve

REWARD_WEIGHT = "reward_weights."
"""Begins the names of the hyperparameters that weigh components of the reward."""


class PpoHyperparameters(Model):
    """Hyperparameters of PPO. A value outside of its range is refused, never clamped."""

    learning_rate: float = Field(3e-4, gt=0.0, le=1e30)
    """Adam's step size. Absurd values are allowed: they end in a quarantine, not in a crash."""

    clip_coef: float = Field(0.2, gt=0.0, le=1.0)
    """How far the probability ratio may leave 1 before its gradient stops."""

    entropy_coef: float = Field(0.01, ge=0.0, le=10.0)
    """Weight of the entropy bonus, relative to advantages of standard deviation 1."""

    value_coef: float = Field(0.5, ge=0.0, le=100.0)
    """Weight of the value loss, whose targets have standard deviation 1."""

    gamma: float = Field(0.99, ge=0.0, le=1.0)
    """Discount per own decision."""

    gae_lambda: float = Field(0.95, ge=0.0, le=1.0)
    """Bias (0) against variance (1) of the advantages."""

    max_grad_norm: float = Field(0.5, gt=0.0, le=1e6)
    """Longer gradients are scaled down to this length."""

    target_kl: float | None = Field(None, gt=0.0)
    """No further epoch once the mean KL of an epoch exceeds this; None: never stop early."""

    num_epochs: int = Field(4, ge=1, le=100)
    """Passes over each rollout."""

    num_minibatches: int = Field(4, ge=1, le=4096)
    """Equal parts of each pass, one optimizer step each."""

    rollout_length: int = Field(32, ge=1, le=65536)
    """Calls of ``step`` in one rollout."""

    adam_beta1: float = Field(0.9, ge=0.0, lt=1.0)
    """Decay of Adam's mean of gradients."""


def hyperparameter_model(algorithm: str, *, launch_directory: str) -> type[Model]:
    """The type of an algorithm's hyperparameters.

    Args:
        algorithm: ``ppo``, or ``package.module:Name`` of a class with an attribute
            ``Hyperparameters``.
        launch_directory: Where ``package`` is looked for first.

    Raises:
        ConfigError: If there is no such class or attribute.
    """
    if algorithm == "ppo":
        return PpoHyperparameters
    model = getattr(resolve(algorithm, launch_directory=launch_directory), "Hyperparameters", None)
    if not (isinstance(model, type) and issubclass(model, Model)):
        raise ConfigError(
            f"algorithm must have a class attribute Hyperparameters that is an arena.config.Model, "
            f"got {model!r} in {algorithm!r}"
        )
    return model


def with_reward_weights(model: type[Model], reward_weights: Mapping[str, float]) -> type[Model]:
    """The type of a policy's hyperparameters: its algorithm's, and a weight for each component.

    Args:
        model: Of the algorithm.
        reward_weights: ``environment.reward_weights``: the weights where a policy has none.
    """
    if not reward_weights:
        return model
    weights: dict[str, Any] = {
        REWARD_WEIGHT + name: (float, Field(weight, ge=-MAX_REWARD_WEIGHT, le=MAX_REWARD_WEIGHT))
        for name, weight in reward_weights.items()
    }
    return create_model(model.__name__, __base__=model, **weights)


def own_hyperparameters(hyperparameters: Mapping[str, float]) -> dict[str, float]:
    """Those that are the algorithm's: all but the weights of the reward's components."""
    return {
        name: value for name, value in hyperparameters.items() if not name.startswith(REWARD_WEIGHT)
    }


def policy_reward_weights(
    hyperparameters: Mapping[str, float], *, reward_weights: Mapping[str, float]
) -> tuple[float, ...]:
    """What a policy weighs the components of its reward by.

    Args:
        hyperparameters: The policy's.
        reward_weights: ``environment.reward_weights``, for what the policy has no weight of.

    Returns:
        In the order of ``reward_weights``.
    """
    return tuple(
        float(hyperparameters.get(REWARD_WEIGHT + name, weight))
        for name, weight in reward_weights.items()
    )


def coerce_hyperparameters(
    model: type[Model], values: Mapping[str, float]
) -> dict[str, float | int]:
    """Round integral values, fill in defaults and validate.

    Returns:
        Every hyperparameter of ``model``, those that are None left out.

    Raises:
        ConfigError: Names each bad key with its rule and its value.
    """
    rounded: dict[str, float | int | None] = {}
    for name, value in values.items():
        if name not in model.model_fields:
            raise ConfigError(_unknown(model, name))
        rounded[name] = _rounded(value) if model.model_fields[name].annotation is int else value
    try:
        validated = model.model_validate(rounded)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}, got {fault['input']!r}"
            for fault in error.errors()
        ]
        raise ConfigError("hyperparameters." + "; hyperparameters.".join(faults)) from error
    dumped = cast("dict[str, float | int | None]", validated.model_dump())
    return {name: value for name, value in dumped.items() if value is not None}


def _rounded(value: float) -> float | int:
    """The nearest integer; what is none (infinity, NaN, text) is left to the validation."""
    try:
        return round(value)
    except (TypeError, ValueError, OverflowError):
        return value


def _unknown(model: type[Model], name: str) -> str:
    nearest = difflib.get_close_matches(name, model.model_fields, n=1, cutoff=0.0)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"hyperparameters.{name}: no such hyperparameter of {model.__name__}{hint}"
