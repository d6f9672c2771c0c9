"""Resolver of user code: ``package.module:Name``. Every import by a name that was read is here.

Tests: `tests/arena/test_users_code.py`, `tests/tools/test_foreign_code.py`.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from arena.errors import ConfigError, NotTrusted
from arena.processes.settings import SETTINGS
from arena.users_code import pass_interrupt, raised

NO_CODE = "/dev/null/no-code"
"""``launch_directory`` of untrusted references: nothing that they name is imported.

It is no directory on any machine, and is passed on like a launch directory, also to other
processes. Readers of files set it; only the user's trust replaces it (`populations.config.trust`).
"""

OWN = frozenset(
    {
        "arena.envs.batched.connect_four:ConnectFour",
        "arena.envs.batched.rock_paper_scissors:RockPaperScissors",
        "arena.envs.batched.tictactoe:TicTacToe",
        "arena.envs.batched.kuhn_poker:KuhnPoker",
        "arena.envs.batched.leduc_poker:LeducPoker",
        "arena.bots.connect_four:Tactical",
    }
)
"""References to Arena's own games and bots, a closed list that needs no trust."""


_given: str | None = None


def use_code(directory: Path | None) -> None:
    """Look for the user's modules in a directory from now on: for commands, by ``--code``.

    Args:
        directory: Directory; None: the default of each command.

    Raises:
        ConfigError: If it is none.
    """
    global _given
    if directory is not None and not directory.is_dir():
        raise ConfigError(f"--code must be a directory, got {directory}")
    _given = None if directory is None else str(directory.resolve())


def given_code() -> str | None:
    """Return the directory of ``--code``; None: the option was not given."""
    return _given


def code_directory() -> str:
    """Return the directory of the user's modules: ``--code``, else the working directory."""
    return _given or os.getcwd()


def resolve(reference: str, *, launch_directory: str | None) -> object:
    """Import the object that ``package.module:Name`` names; ``Name`` may be dotted.

    Not for references from the wire or a checkpoint, which are never imported.

    Args:
        reference: Reference to import.
        launch_directory: Directory to put first on ``sys.path``, once. None: this has been done.
            `NO_CODE`: the user has not said that named code may be imported.

    Raises:
        NotTrusted: If it is code, and the user has not said that it may be imported.
        ConfigError: If the module or the name in it is missing, or importing it fails. The text
            names the reference; the cause is the import's error.
    """
    module_name, colon, name = reference.partition(":")
    # Only identifiers are allowed, so that no relative import and no path is tried.
    parts = [*module_name.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ConfigError(f"a reference must be package.module:Name, got {reference!r}")
    check_word(reference, launch_directory=launch_directory)
    # sys.path is changed only after the check, so that a malformed reference leaves it unchanged.
    if launch_directory is not None:
        put_first_on_path(launch_directory)
    try:
        return SETTINGS.run(_find, module_name, name)
    except _NameMissing as error:
        where = f" in {getattr(sys.modules[module_name], '__file__', None)}"
        # `__main__` is a script, whose classes no other process can import.
        if module_name == "__main__":
            where = ", which is another file in each process: put it into a module of its own"
        raise ConfigError(f"{reference}: {module_name} has no {name!r}{where}") from error.__cause__
    except ModuleNotFoundError as error:
        # The missing module (error.name) may be one that the user's own module imports.
        raise ConfigError(f"{reference}: there is no module {error.name!r}{_searched()}") from error
    except BaseException as error:
        pass_interrupt(error)
        # A user's module may raise anything, and only the user can fix it.
        raise ConfigError(raised(f"{reference}: importing {module_name}", error)) from error


def _searched() -> str:
    """Return the directories searched for the user's modules, without Python's and packages'."""
    installed = (sys.prefix, sys.base_prefix)
    places = [place for place in dict.fromkeys(sys.path) if os.path.isdir(place)]
    # A user's own packages are outside of the installation prefix.
    own = [one for one in places if not one.startswith(installed) and "-packages" not in one]
    return f" in {', '.join(own) or 'any directory'}, nor is it installed"


class _NameMissing(Exception):
    """Error: a module does not have a name."""


def _find(module_name: str, name: str) -> object:
    # On a second call the module is in sys.modules, whatever the path is.
    found: object = importlib.import_module(module_name)
    # A dotted name leads into classes, such as Outer.Inner; a module's own __getattr__ may import.
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise _NameMissing from error
    return found


def check_word(reference: str, *, launch_directory: str | None) -> None:
    """Refuse untrusted code.

    Raises:
        NotTrusted: If the reference is untrusted.
    """
    if launch_directory == NO_CODE and reference not in OWN:
        raise NotTrusted(
            f"{reference} is code that only a file names, which may come from anywhere: it is "
            "imported where you say --trust (from Python trust=True)"
        )


def in_file(path: str) -> str:
    """Return the reference to a name in a Python file: ``nim:NAME`` for ``nim.py``.

    Returns:
        An empty text if the path is no Python file.
    """
    module = path.removesuffix(".py").strip("./").replace("/", ".")
    return f"{module}:NAME" if path.endswith(".py") else ""


def put_first_on_path(launch_directory: str) -> None:
    """Put a directory first on ``sys.path``, so that its modules win; a repetition
    changes nothing, and so does `NO_CODE`.
    """
    # A file's own directory would shadow other modules, such as a game's or Python's.
    if launch_directory == NO_CODE or sys.path[:1] == [launch_directory]:
        return
    if launch_directory in sys.path:
        sys.path.remove(launch_directory)
    sys.path.insert(0, launch_directory)
