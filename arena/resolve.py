"""Resolver of user code: ``package.module:Name``."""

from __future__ import annotations

import importlib
import sys

from arena.errors import ConfigError
from arena.processes.settings import SETTINGS
from arena.users_code import pass_interrupt, raised


def resolve(reference: str, *, launch_directory: str | None) -> object:
    """Import the object that ``package.module:Name`` names; ``Name`` may be dotted.

    Not for references from the wire or a checkpoint, which are not trusted.

    Args:
        reference: Reference to import.
        launch_directory: Directory to put first on ``sys.path``, once. None: this has been done.

    Raises:
        ConfigError: If the module or the name in it is missing, or importing it fails. The text
            names the reference; the cause is the import's error.
    """
    module_name, colon, name = reference.partition(":")
    # Identifiers only, so that no relative import and no path is tried.
    parts = [*module_name.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ConfigError(f"a reference must be package.module:Name, got {reference!r}")
    # Only now: a malformed reference leaves sys.path as it was.
    if launch_directory is not None:
        put_first_on_path(launch_directory)
    try:
        # A second call finds the module in sys.modules, whatever the path is by then.
        found: object = SETTINGS.run(importlib.import_module, module_name)
    except ModuleNotFoundError as error:
        # error.name: the missing module may be one that the user's own imports.
        raise ConfigError(f"{reference}: there is no module {error.name!r}") from error
    except BaseException as error:
        pass_interrupt(error)
        # A user's module may raise anything, and only the user can fix it.
        raise ConfigError(raised(f"{reference}: importing {module_name}", error)) from error
    # A dotted name leads into classes, such as Outer.Inner.
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ConfigError(f"{reference}: {module_name} has no {name!r}") from error
    return found


def put_first_on_path(launch_directory: str) -> None:
    """Put a directory first on ``sys.path``, so that its modules win; a repetition
    changes nothing.
    """
    if sys.path[:1] == [launch_directory]:
        return
    if launch_directory in sys.path:
        sys.path.remove(launch_directory)
    sys.path.insert(0, launch_directory)
