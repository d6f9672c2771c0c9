"""Whether ratings hold what they promise: predicted scores beside those that were seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from arena.types import Seat
from populations.ratings.elo import expected_score
from populations.ratings.results import Counts, Rated
from populations.records.aggregates import PairRow
from populations.records.rows import RatingsRow


@dataclass(slots=True)
class Calibration:
    """What one player scored against another in evaluation, over all seats.

    Attributes:
        matches: How many.
        seen: Sum of its scores, a draw half.
        predicted: Sum of the scores that the ratings promise.
        variance: Of ``seen`` by chance alone: that of wins and losses, less what draws, and other
            scores between 0 and 1, take away.
    """

    matches: float = 0.0
    seen: float = 0.0
    predicted: float = 0.0
    variance: float = 0.0

    def add(self, counts: Counts, *, promised: float) -> None:
        """Count the matches of one pair of seats."""
        self.matches += counts.matches
        self.seen += counts.points
        self.predicted += counts.matches * promised
        between = counts.points - counts.squares
        self.variance += max(counts.matches * promised * (1.0 - promised) - between, 0.0)

    def turned(self) -> Calibration:
        """The same seen from the other player."""
        return Calibration(
            self.matches, self.matches - self.seen, self.matches - self.predicted, self.variance
        )

    @property
    def deviations(self) -> float | None:
        """How many standard deviations more was seen than predicted; None where none is known."""
        if self.variance <= 0.0:
            return None
        return (self.seen - self.predicted) / math.sqrt(self.variance)


def calibrations(
    pairs: Iterable[PairRow], *, ratings: Mapping[str, RatingsRow], seats: tuple[Seat, ...]
) -> dict[tuple[Rated, Rated], Calibration]:
    """Compare the results of rated players with their ratings; each pair once.

    Args:
        pairs: Of evaluation.
        ratings: The last fits.
        seats: Of the environment.
    """
    known: dict[Rated, float] = {
        (population, entrant): rating
        for population, row in ratings.items()
        for entrant, rating in zip(row.entrants, row.ratings, strict=True)
    }
    # Populations are fitted together: any of their rows has all advantages.
    advantages = next((row.advantages for row in ratings.values()), ())
    is_cooperation = len({seat.side for seat in seats}) == 1
    found: dict[tuple[Rated, Rated], Calibration] = {}
    for row in pairs:
        first = (seats[row.first_seat].population, row.first)
        second = (seats[row.second_seat].population, row.second)
        if first not in known or second not in known or first == second:
            continue
        ahead = known[first]
        if advantages and not is_cooperation:
            ahead += advantages[row.first_seat * len(seats) + row.second_seat]
        promised = expected_score(ahead, known[second])
        counts = Counts.of(row)
        if (second, first) in found:
            one = found[second, first]
            one.add(counts.turned(), promised=1.0 - promised)
        else:
            one = found.setdefault((first, second), Calibration())
            one.add(counts, promised=promised)
    return found
