"""Weights of the reward's components as hyperparameters: their names in a configuration."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from arena.errors import ConfigError
from arena.learning.hyperparameters import REWARD_WEIGHT
from populations.yaml_documents import nearest

SECTION = REWARD_WEIGHT.removesuffix(".")


def with_dotted_weights(values: object) -> object:
    """Return ``reward_weights: {win: ...}`` as ``reward_weights.win: ...``, anything else as is.

    Both forms may be written; of a weight that is in both the later one counts.
    """
    # ``KEY=VALUE`` on the command line makes the nested form: its path is split at each dot.
    if not isinstance(values, Mapping) or not isinstance(values.get(SECTION), Mapping):
        return values
    dotted: dict[object, object] = {}
    for name, value in values.items():
        if name == SECTION:
            dotted.update({f"{REWARD_WEIGHT}{inner}": weight for inner, weight in value.items()})
        else:
            dotted[name] = value
    return dotted


def check_component_names(
    names: Iterable[str], *, reward_weights: Collection[str], key: str
) -> None:
    """Refuse a weight of a component that ``environment.reward_weights`` does not have.

    Args:
        names: Names of hyperparameters.
        reward_weights: The components' names.
        key: Name in errors of the mapping that has the names (``populations.player.search_space``).

    Raises:
        ConfigError: Names the weight, and the nearest known component.
    """
    for name in names:
        component = name.removeprefix(REWARD_WEIGHT)
        # Without the prefix it is another hyperparameter, and none of this check's.
        if name == component or component in reward_weights:
            continue
        has = f"it has: {', '.join(reward_weights)}" if reward_weights else "it is empty"
        raise ConfigError(
            f"{key}.{name}: environment.reward_weights has no component {component!r}"
            f"{nearest(component, reward_weights)}; {has}"
        )
