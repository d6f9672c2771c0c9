"""Hyperparameters of a policy, which PBT may change, and settings, which it may not. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError, create_model

from arena.config import MAX_REWARD_WEIGHT, Model
from arena.errors import ConfigError, ConfigFaults
from arena.resolve import resolve
from arena.rules import broken_rules, nearest
from arena.types import Hyperparameters, Value

REWARD_WEIGHT = "reward_weights."
"""Prefix of the hyperparameters that weigh components of the reward."""

ADAM_BETA2 = 0.999

ADAM_EPS = 1e-5
"""Larger than usual: keeps the first steps, whose gradients are tiny, from being full-sized."""


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
    """Calls of ``step`` in one rollout; of N > 2 agents who take turns, N / 2 times as many."""

    adam_beta1: float = Field(0.9, ge=0.0, lt=1.0)
    """Decay of Adam's mean of gradients."""

    adam_beta2: float = Field(ADAM_BETA2, ge=0.0, lt=1.0)
    """Decay of Adam's mean of squared gradients."""

    adam_eps: float = Field(ADAM_EPS, gt=0.0, le=1.0)
    """Added to the root of that mean, by which a step is divided."""

    desired_kl: float | None = Field(None, gt=0.0)
    """The learning rate follows this KL of an update, by steps of 1.5 times and at most 38 times
    from `learning_rate`; None: it stays. Needs two optimizer steps per rollout."""

    value_clip: float | None = Field(None, gt=0.0)
    """A value gains nothing by moving further from the one that was predicted while playing, in
    standard deviations of returns; None: it moves as it likes."""

    magnet_coef: float = Field(0.0, ge=0.0, le=100.0)
    """Weight of KL(policy || magnet); the magnet is a slow average of the policy's own past. 0:
    there is none."""

    magnet_rate: float = Field(0.01, ge=0.0, le=1.0)
    """How far the magnet goes towards the policy after each rollout."""

    kl_coef: float = Field(0.0, ge=0.0, le=100.0)
    """Weight of KL(old policy || policy), where the old policy is that of before the update. 0: it
    is no part of the loss."""

    ema_decay: float = Field(0.0, ge=0.0, lt=1.0)
    """Decay per rollout of the exponential average of weights that plays elsewhere (ratings,
    ghosts, exports). 0: the weights themselves play."""

    rho_bar: float = Field(1.0, gt=0.0, le=1e6)
    """V-trace: largest importance of a decision."""

    c_bar: float = Field(1.0, ge=0.0, le=1e6)
    """V-trace: largest importance that is passed on to earlier decisions."""


class PpoSettings(Model):
    """Settings of PPO, equal for all policies of a population but for those that may change."""

    CHANGEABLE: ClassVar[tuple[str, ...]] = ("advantages", "advantage_normalization")
    """Settings that PBT may change, where a search space has them: no weight and no statistic
    depends on them."""

    advantages: Literal["gae", "vtrace"] = "gae"
    """``gae`` trusts the log-probabilities and values of when the decisions were made; ``vtrace``
    corrects for a policy that has changed since."""

    advantage_normalization: Literal["rollout", "minibatch"] = "rollout"
    """Rows over which advantages have mean 0 and deviation 1."""

    normalize_returns: bool = True
    """Whether values are learned in standard deviations of returns; if not, in units of reward."""

    bptt_length: int | None = Field(None, ge=1)
    """Own decisions of a recurrent policy through which gradients flow before they are cut; None:
    those of an episode in a rollout. Does nothing where ``network.core`` is ``none``."""


def hyperparameter_model(algorithm: str, *, launch_directory: str) -> type[Model]:
    """Return the type of an algorithm's hyperparameters.

    Args:
        algorithm: ``ppo``, or ``package.module:Name`` of a class with an attribute
            ``Hyperparameters``.
        launch_directory: Directory in which ``package`` is looked for first.

    Raises:
        ConfigError: If there is no such class or attribute.
    """
    if algorithm == "ppo":
        return PpoHyperparameters
    found = resolve(algorithm, launch_directory=launch_directory)
    return _model(getattr(found, "Hyperparameters", None), "Hyperparameters", algorithm=algorithm)


def settings_model(algorithm: str, *, launch_directory: str) -> type[Model]:
    """Return the type of an algorithm's settings; arguments and errors of `hyperparameter_model`.

    An algorithm without an attribute ``Settings`` has none.
    """
    if algorithm == "ppo":
        return PpoSettings
    found = getattr(resolve(algorithm, launch_directory=launch_directory), "Settings", Model)
    return _model(found, "Settings", algorithm=algorithm)


def changeable_settings(algorithm: str, *, launch_directory: str) -> tuple[str, ...]:
    """Return the settings that an algorithm declares changeable: ``Settings.CHANGEABLE``.

    Raises:
        ConfigError: If one of them is no setting.
    """
    model = settings_model(algorithm, launch_directory=launch_directory)
    names = tuple(getattr(model, "CHANGEABLE", ()))
    for name in names:
        if name not in model.model_fields:
            raise ConfigError(
                f"algorithm {algorithm}: Settings.CHANGEABLE must name settings, got {name!r}"
            )
    return names


def make_settings(algorithm: str, values: Mapping[str, object], *, launch_directory: str) -> Model:
    """Return an algorithm's settings, checked and complete.

    Args:
        algorithm: ``ppo``, or ``package.module:Name`` of a class that may have an attribute
            ``Settings``.
        values: Settings by name; absent ones have their defaults.
        launch_directory: Directory in which ``package`` is looked for first.

    Raises:
        ConfigError: If there is no such class, or a setting is not as the class wants it. Names
            each bad key with its rule and its value.
    """
    model = settings_model(algorithm, launch_directory=launch_directory)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigFaults(broken_rules(error, of="algorithm_settings")) from error


def _model(found: object, name: str, *, algorithm: str) -> type[Model]:
    if not (isinstance(found, type) and issubclass(found, Model)):
        raise ConfigError(
            f"algorithm must have a class attribute {name} that is an arena.config.Model, "
            f"got {found!r} in {algorithm!r}"
        )
    return found


def with_reward_weights(model: type[Model], reward_weights: Mapping[str, float]) -> type[Model]:
    """Add a weight for each component of the reward to the type of hyperparameters.

    Args:
        model: Type of the algorithm's hyperparameters.
        reward_weights: ``environment.reward_weights``: the weights where a policy has none.
    """
    if not reward_weights:
        return model
    # Names with a dot are no identifiers, so the fields are passed as a dictionary.
    weights: dict[str, Any] = {
        REWARD_WEIGHT + name: (float, Field(weight, ge=-MAX_REWARD_WEIGHT, le=MAX_REWARD_WEIGHT))
        for name, weight in reward_weights.items()
    }
    return create_model(model.__name__, __base__=model, **weights)


def algorithm_hyperparameters(hyperparameters: Hyperparameters) -> dict[str, Value]:
    """Return the algorithm's hyperparameters: all but the weights of the reward's components."""
    return {
        name: value for name, value in hyperparameters.items() if not name.startswith(REWARD_WEIGHT)
    }


def policy_reward_weights(
    hyperparameters: Hyperparameters, *, reward_weights: Mapping[str, float]
) -> tuple[float, ...]:
    """Return a policy's weights of the components of its reward.

    Args:
        hyperparameters: Hyperparameters of the policy.
        reward_weights: ``environment.reward_weights``, the weights where the policy has none.

    Returns:
        In the order of ``reward_weights``.
    """
    return tuple(
        float(hyperparameters.get(REWARD_WEIGHT + name, weight))
        for name, weight in reward_weights.items()
    )


def coerce_hyperparameters(model: type[Model], values: Hyperparameters) -> dict[str, Value]:
    """Round integral values, fill in defaults and validate.

    Returns:
        Every hyperparameter of ``model``, those that are None left out.

    Raises:
        ConfigError: Names each bad key with its rule and its value.
    """
    # Unknown names are collected, so that one error lists all problems.
    faults = [_unknown(model, name) for name in values if name not in model.model_fields]
    rounded = {
        # A PBT mutation may produce a value between two integers.
        name: _rounded(value) if model.model_fields[name].annotation is int else value
        for name, value in values.items()
        if name in model.model_fields
    }
    try:
        validated = model.model_validate(rounded)
    except ValidationError as error:
        raise ConfigFaults([*faults, *broken_rules(error, of="hyperparameters")]) from error
    if faults:
        raise ConfigFaults(faults)
    # Messages and manifests have no null: a missing name means None.
    return {name: value for name, value in validated.model_dump().items() if value is not None}


def _rounded(value: Value) -> Value:
    """Return the nearest integer; leave infinity, NaN and text to the validation."""
    # round raises for infinity and NaN, and the model's message is clearer.
    try:
        return round(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return value


def _unknown(model: type[Model], name: str) -> str:
    near = nearest(name, model.model_fields)
    return f"hyperparameters.{name}: no such hyperparameter of {model.__name__}{near}"
