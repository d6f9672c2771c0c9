"""Names of players, short where width counts.

Tests: `tests/tools/terminal/test_names.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from .quantities import compact

_PLAYER = re.compile(r"(?<![\w/.'])([a-z][a-z0-9_]*)/(p[0-9]{3,})(?:@([0-9]+))?(?![\w/.]\w)")


def short_name(player: str, *, populations: Collection[str]) -> str:
    """Return a player's name in few characters: ``p002``, ``p001@2.1M``, ``red/p001@2.1M``.

    Args:
        player: Name of a policy or a ghost; other names, as those of bots, stay as they are.
        populations: Names of the run's populations. With one, its name is left out.
    """
    matched = _PLAYER.fullmatch(player)
    if matched is None:
        return player
    population, policy, steps = matched.groups()
    name = policy if len(populations) <= 1 else f"{population}/{policy}"
    return name if steps is None else f"{name}@{compact(int(steps))}"


def short_names(text: str, *, populations: Collection[str]) -> str:
    """Return a sentence with the names of players in it in few characters."""

    def short(found: re.Match[str]) -> str:
        # A path may look like a player's name.
        if found[1] not in populations:
            return found[0]
        return short_name(found[0], populations=populations)

    return _PLAYER.sub(short, text)
