"""Types of keys that occur in several sections of the configuration.

Tests: `tests/populations/config/test_run_config.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated

from pydantic import BeforeValidator, Field

from arena.bots.ids import canonical_bot
from arena.errors import ConfigError
from arena.types import is_bot

# The path has one colon, as in entry points; no rule of Arena's has one in its name.
IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""Form of an import path: ``package.module:Name``."""

POPULATION_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
"""Form of a population's name."""

Count = Annotated[int, Field(ge=1, le=10**15)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]

_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0}
_TIME = re.compile("".join(rf"(?:(\d{{1,7}}(?:\.\d{{1,3}})?){unit})?" for unit in _UNITS_S))


def seconds_of(text: str) -> float:
    """Return the seconds of a time with units: 90s, 2m, 1.5h, 1h30m.

    Raises:
        ValueError: If it is no time, or 0. The message starts with "must", for a key in front.
    """
    match = _TIME.fullmatch(text)
    parts = match.groups(default="0") if match is not None else ("0",) * len(_UNITS_S)
    seconds = sum(
        float(part) * unit_s for part, unit_s in zip(parts, _UNITS_S.values(), strict=True)
    )
    if seconds <= 0.0:
        raise ValueError("must be a time above 0 with its unit, as 90s, 2m or 1h30m")
    return seconds


Seconds = Annotated[
    float,
    BeforeValidator(lambda value: seconds_of(value) if isinstance(value, str) else value),
    Field(gt=0.0, le=1e9),
]
"""Seconds as a number, or a time with its unit."""


def canonical(bot: str) -> str:
    """Return a bot's canonical spelling, so that it has one name in tallies and ratings."""
    try:
        return canonical_bot(bot)
    except ConfigError as error:
        # pydantic collects a ValueError as the key's fault; a ConfigError would end all checks.
        raise ValueError(str(error)) from None


def canonical_player(player: str) -> str:
    """Return a bot's canonical spelling; the name of any other player is returned unchanged."""
    # An empty text names no player of another run, so `canonical` refuses it.
    return canonical(player) if is_bot(player) or not player else player


def check_kind(kind: str, kinds: Collection[str]) -> str:
    """Return the name of a rule: one of ``kinds``, or the import path of a user's class.

    Raises:
        ValueError: If it is neither.
    """
    # Check only the form of an import path; users' code is imported when a run is resolved.
    if kind not in kinds and not IMPORT_PATH.fullmatch(kind):
        raise ValueError(f"must be one of {', '.join(kinds)}, or package.module:Class")
    return kind
