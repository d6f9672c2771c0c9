"""The one resolver of user code: ``package.module:Name``."""

from __future__ import annotations

import importlib
import sys

from arena.errors import ConfigError


def resolve(reference: str, *, launch_directory: str) -> object:
    """Import what ``package.module:Name`` names; ``Name`` may be dotted.

    References come from the local configuration and command line only, never from the wire or a
    checkpoint.

    Args:
        reference: What to import.
        launch_directory: Put first on ``sys.path``.

    Raises:
        ConfigError: If the module or the name in it is missing; names the reference.
    """
    module_name, colon, name = reference.partition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"a reference must be package.module:Name, got {reference!r}")
    if launch_directory not in sys.path[:1]:
        sys.path.insert(0, launch_directory)
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{reference}: there is no module {error.name!r}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ConfigError(f"{reference}: {module_name} has no {name!r}") from error
    return found
