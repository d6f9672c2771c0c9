"""Games of two or more sides, each of one or more players, as sequential ratings take them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic

from populations.ratings.model import E


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamGame(Generic[E]):
    """One game between sides.

    Attributes:
        sides: Two or more, each with one or more players; nobody plays twice.
        results: Of each side: the higher one is ahead, equal ones draw. Only their order counts.
    """

    sides: tuple[tuple[E, ...], ...]
    results: tuple[float, ...]

    def check(self) -> None:
        """Check what the class says.

        Raises:
            ValueError: If it does not hold.
        """
        players = [player for side in self.sides for player in side]
        if len(self.sides) < 2 or not all(self.sides) or len(set(players)) != len(players):
            raise ValueError(
                "a game needs two or more sides of different players, each with at least one, "
                f"got {self.sides!r}"
            )
        if len(self.results) != len(self.sides) or not all(map(math.isfinite, self.results)):
            raise ValueError(
                f"a game needs one finite result for each of its {len(self.sides)} sides, "
                f"got {self.results!r}"
            )
