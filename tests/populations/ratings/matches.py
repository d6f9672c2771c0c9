"""Matches between two entrants: given, or drawn by a chance to win."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

import numpy as np

from populations.ratings.model import Result

E = TypeVar("E", bound=Hashable)


def met(
    first: E,
    second: E,
    wins: float,
    losses: float,
    *,
    draws: float = 0,
    seats: tuple[int, int] = (0, 0),
) -> Result[E]:
    return Result(first=first, second=second, seats=seats, wins=wins, draws=draws, losses=losses)


def drawn(
    first: E,
    second: E,
    chance: float,
    matches: int,
    *,
    rng: np.random.Generator,
    seats: tuple[int, int] = (0, 0),
) -> Result[E]:
    """Draw matches without draws, each of which ``first`` wins with ``chance``."""
    wins = int(rng.binomial(matches, chance))
    return met(first, second, wins, matches - wins, seats=seats)
