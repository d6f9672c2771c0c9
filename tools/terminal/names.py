"""Names of players, short where width counts.

Tests: `tests/tools/terminal/test_names.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_PLAYER = re.compile(r"([a-z][a-z0-9_]*)/(p[0-9]+)(?:@([0-9]+))?")


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


def compact(number: int) -> str:
    """Write a count in at most four digits and a unit: 950, 12.5k, 2.1M."""
    value, units = float(number), iter("kMGT")
    unit = ""
    # Rounded to four digits 999,950 is 1000k, which is 1M.
    while float(f"{value:.4g}") >= 1000 and (larger := next(units, None)):
        value, unit = value / 1000, larger
    return f"{value:.4g}{unit}"
