"""Mean and deviation of a player's returns over tallies, where they do not cancel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from arena.types import Entrant, Tally

ZERO = 1e-9
"""Rounding left of a sum that is 0, relative to the size of returns."""


@dataclass(slots=True)
class ReturnSums:
    """Sums over the seats of one player.

    A player that sits on several sides of a game in which one side's gain is the other's loss has
    returns that cancel, however well it plays: such matches are left out.
    """

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, tally: Tally, *, entrant: Entrant, sides: Sequence[str]) -> None:
        """Add a tally.

        Args:
            tally: Results of some matches.
            entrant: Entrant of the player.
            sides: Side of each seat.
        """
        mine = [index for index, name in enumerate(tally.entrants) if name == entrant]
        total = math.fsum(tally.return_sum[index] for index in mine)
        squares = math.fsum(tally.return_sum_of_squares[index] for index in mine)
        count = tally.matches * len(mine)
        # Cauchy-Schwarz: |sum of x| <= sqrt(count * sum of x^2)
        size = math.sqrt(max(squares, 0.0) * count)
        # Mirror play of a zero-sum game: the mean is 0, however well it plays.
        if len({sides[index] for index in mine}) > 1 and abs(total) <= ZERO * size:
            return
        self.count += count
        self.total += total
        self.squares += squares

    def metrics(self) -> dict[str, float]:
        """Return mean and deviation; nothing where all matches were left out."""
        if not self.count:
            return {}
        mean = self.total / self.count
        # Var = E[x^2] - E[x]^2; rounding may leave it below 0
        variance = max(self.squares / self.count - mean * mean, 0.0)
        return {"episode/return_mean": mean, "episode/return_deviation": math.sqrt(variance)}
