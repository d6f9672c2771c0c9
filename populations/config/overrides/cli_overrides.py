"""``KEY=VALUE``: overriding a key of a YAML document by its dotted path."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from arena.errors import ConfigError
from populations.yaml_documents import read_document


def parse_override(override: str) -> tuple[tuple[str, ...], object]:
    """Split ``KEY=VALUE`` into the parts of KEY and VALUE read as YAML.

    Raises:
        ConfigError: If there is no ``=``, KEY has an empty part, or VALUE is no YAML.
    """
    key, equals, text = override.partition("=")
    # Split at the first "=": a value may hold more of them.
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ConfigError(f"an override must be KEY=VALUE, KEY a dotted path, got {override!r}")
    return path, read_document(text, name=f"the value of {key.strip()}")


def apply_overrides(document: object, overrides: Sequence[str]) -> object:
    """Return a copy of a document in which the overrides hold, the last one of each key.

    Levels that are missing, or null, are created.

    Raises:
        ConfigError: If an override is malformed, or leads into a value that has no keys.
    """
    return apply_values(document, [parse_override(override) for override in overrides])


def apply_values(document: object, values: Sequence[tuple[tuple[str, ...], object]]) -> object:
    """Apply overrides that are parsed, as `apply_overrides` does.

    Raises:
        ConfigError: If one leads into a value that has no keys.
    """
    if not values:
        return document
    # The caller's document stays as it is.
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
        # Null too: `populations.player.pbt: null` has no keys yet.
        if level.get(part) is None:
            level[part] = {}
        level = level[part]
