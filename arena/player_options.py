"""Options of players: ``NAME:KEY=VALUE``, and so ``NAME:KEY=VALUE:KEY=VALUE``, of any player.

``runs/four/champion:level=3``, ``runs/four:temperature=0.5``, ``bot:package.module:Class:depth=3``.
Torch-free.

Tests: `tests/arena/test_player_options.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from arena.errors import ConfigError
from arena.types import is_bot

# A name that ends with a parenthesis is that of a bot whose arguments may have both signs in them.
_OPTION = re.compile(r"(?P<name>.+):(?P<key>[A-Za-z_]\w*)=(?P<value>[^:]*)(?<!\))", flags=re.ASCII)


def split_options(player: str) -> tuple[str, dict[str, str]]:
    """Split a PLAYER into its name and its options, in the order in which they are written.

    A file or a directory that is called so is a name without options.

    Raises:
        ConfigError: If an option is given twice, or has no value.
    """
    options: dict[str, str] = {}
    name = player
    while (found := _OPTION.fullmatch(name)) and (is_bot(name) or not Path(name).exists()):
        name, key, value = found["name"], found["key"], found["value"]
        if key in options or not value:
            raise ConfigError(
                f"an option of a PLAYER is NAME:KEY=VALUE, each key once, got {player!r}"
            )
        options = {key: value, **options}
    return name, options


def check_options(player: str, given: Collection[str], known: Collection[str]) -> None:
    """Refuse options that a player does not have.

    Raises:
        ConfigError: If there is one; says which it has.
    """
    for key in given:
        if key not in known:
            has = ", ".join(known) or "no options"
            raise ConfigError(f"{player} has no option {key}; it has {has}")
