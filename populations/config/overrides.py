"""Overrides ``KEY=VALUE`` of a YAML document, with KEY a dotted path.

Names that other libraries use for PPO's hyperparameters are read as aliases of Arena's names.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

from arena.errors import ConfigError
from populations.yaml_documents import read_document


def parse_override(override: str) -> tuple[tuple[str, ...], object]:
    """Split ``KEY=VALUE`` into the parts of KEY, and VALUE read as YAML.

    Raises:
        ConfigError: If there is no ``=``, KEY has an empty part, or VALUE is not YAML.
    """
    key, equals, text = override.partition("=")
    # Split at the first "=", as a value may contain more of them.
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ConfigError(f"an override must be KEY=VALUE, KEY a dotted path, got {override!r}")
    return path, read_document(text, name=f"the value of {key.strip()}")


def apply_overrides(document: object, overrides: Sequence[str]) -> object:
    """Return a copy of a document with overrides applied in order, so that the last of a key wins.

    Levels that are missing, or null, are created.

    Raises:
        ConfigError: If an override is malformed, or leads into a value that has no keys.
    """
    return apply_values(document, [parse_override(override) for override in overrides])


def apply_values(document: object, values: Sequence[tuple[tuple[str, ...], object]]) -> object:
    """Apply parsed overrides like `apply_overrides`.

    Raises:
        ConfigError: If an override leads into a value that has no keys.
    """
    if not values:
        return document
    # Copy the document, so that the caller's stays unchanged.
    result = copy.deepcopy({} if document is None else document)
    for path, value in values:
        _set(result, path, value)
    return result


def _set(document: object, path: tuple[str, ...], value: object) -> None:
    level = document
    for depth, part in enumerate(path):
        if not isinstance(level, dict):
            above = ".".join(path[:depth]) or "the document"
            raise ConfigError(f"{'.'.join(path)}: {above} is {level!r}, which has no keys")
        if depth == len(path) - 1:
            level[part] = value
            return
        # Replace null, too, as in `populations.player.pbt: null`.
        if level.get(part) is None:
            level[part] = {}
        level = level[part]


ALIASES = {
    "lr": "learning_rate",
    "ent_coef": "entropy_coef",
    "vf_coef": "value_coef",
    "n_epochs": "num_epochs",
    "clip_range": "clip_coef",
    "n_steps": "rollout_length",
    "lam": "gae_lambda",
}

PLACES = ("hyperparameters", "search_space")
"""Keys of a population, and of entries of its schedule, whose values are mappings by
hyperparameter.
"""

Notify = Callable[[str], None]
Path = tuple[str, ...]


def overridden(document: object, overrides: Sequence[str], *, notify: Notify) -> object:
    """Return a document with overrides applied and aliases of hyperparameters replaced.

    Args:
        document: Document as read.
        overrides: ``KEY=VALUE``, KEY a dotted path, VALUE read as YAML.
        notify: Function that is called with a sentence about each alias.

    Raises:
        ConfigError: If an override is malformed, or a mapping has a hyperparameter twice.
    """
    values = [parse_override(override) for override in overrides]
    # A user's own algorithm may give its hyperparameters any names, so it has no aliases. Overrides
    # are applied first, because an override may choose the algorithm.
    own = set(_own_algorithms(apply_values(document, values)))
    # This dict is an ordered set, so that each notice is given once.
    told: dict[str, None] = {}
    # Aliases are replaced in document and overrides before these are applied, so that an alias in
    # an override replaces the real name in the file, and vice versa.
    document = _renamed(document, (), own=own, told=told)
    values = [
        (_renamed_path(path, own=own, told=told), _renamed(value, path, own=own, told=told))
        for path, value in values
    ]
    for notice in told:
        notify(notice)
    return apply_values(document, values)


def _own_algorithms(document: object) -> Iterator[str]:
    """Yield the names of populations that use a user's own algorithm."""
    # The document is not validated yet, so any part of it may be something other than a mapping.
    populations = document.get("populations") if isinstance(document, dict) else None
    for name, population in populations.items() if isinstance(populations, dict) else ():
        if isinstance(population, dict) and population.get("algorithm", "ppo") != "ppo":
            yield name


def _has_hyperparameters(path: Path, *, own: set[str]) -> bool:
    """Return whether the keys at a path are names of PPO's hyperparameters."""
    is_in_population = len(path) > 2 and path[0] == "populations" and path[1] not in own
    return is_in_population and path[-1] in PLACES and (len(path) == 3 or path[2] == "schedule")


def _renamed(value: object, path: Path, *, own: set[str], told: dict[str, None]) -> object:
    """Return a value with all aliases in it replaced."""
    if isinstance(value, list):
        return [_renamed(part, path, own=own, told=told) for part in value]
    if not isinstance(value, dict):
        return value
    renamed: dict[str, object] = {}
    for key, part in value.items():
        name = _renamed_path((*path, key), own=own, told=told)[-1]
        # A mapping must not have a name and its alias, as it would be unclear which value counts.
        if name in renamed or (name != key and name in value):
            raise ConfigError(
                f"{'.'.join(path)}: {name} must be there once, got it as "
                f"{' and '.join(other for other in value if ALIASES.get(other, other) == name)}"
            )
        renamed[name] = _renamed(part, (*path, key), own=own, told=told)
    return renamed


def _renamed_path(path: Path, *, own: set[str], told: dict[str, None]) -> Path:
    """Return a path in which aliases are replaced by the real names."""
    renamed = list(path)
    for depth, part in enumerate(path):
        # The same word at another place, such as a population called lr, is no alias.
        name = ALIASES.get(part)
        if name is not None and _has_hyperparameters(path[:depth], own=own):
            told[f"{'.'.join(path[: depth + 1])} is read as {name}"] = None
            renamed[depth] = name
    return tuple(renamed)
