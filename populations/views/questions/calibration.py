"""Calibration of ratings: predicted scores beside observed ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from arena.types import Entrant, Seat
from populations.league.pairs import seat_advantage, seats_of
from populations.league.ratings import Ratings
from populations.ratings.elo import expected_score
from populations.ratings.results import Counts, Rated
from populations.records.aggregates import PairRow
from populations.records.rows import RatingsRow


@dataclass(slots=True)
class Calibration:
    """Score of one player against another in evaluation, over all seats.

    Attributes:
        matches: Number of matches.
        seen: Sum of its scores, a draw half.
        predicted: Sum of the scores that the ratings predict.
        variance: Variance of ``seen`` by chance: that of wins and losses, less the reduction by
            draws and other scores between 0 and 1.
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
        # Var(x) = p (1 - p) - E[x (1 - x)]; the last term is 0 for wins and losses, 1/4 for a draw.
        between = counts.points - counts.squares
        # Below 0 with more draws than the predicted score allows.
        self.variance += max(counts.matches * promised * (1.0 - promised) - between, 0.0)

    def turned(self) -> Calibration:
        """Return the same seen from the other player."""
        return Calibration(
            self.matches, self.matches - self.seen, self.matches - self.predicted, self.variance
        )

    @property
    def deviations(self) -> float | None:
        """Standard deviations by which ``seen`` exceeds ``predicted``; None where unknown."""
        if self.variance <= 0.0:
            return None
        return (self.seen - self.predicted) / math.sqrt(self.variance)


def calibrations(
    pairs: Iterable[PairRow], *, ratings: Mapping[str, RatingsRow], seats: tuple[Seat, ...]
) -> dict[tuple[Rated, Rated], Calibration]:
    """Compare the results of rated players with their ratings; each pair once.

    Args:
        pairs: Results of evaluation.
        ratings: Last fits.
        seats: Seats of the environment.
    """
    known: dict[Rated, float] = {
        (population, entrant): rating
        for population, fit in ((name, Ratings(row)) for name, row in ratings.items())
        for entrant in map(Entrant, fit.best_first)
        if (rating := fit.rating(entrant)) is not None
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
        # In cooperation teams play one after the other, so no seat is ahead.
        if not is_cooperation:
            ahead += seat_advantage(advantages, seats_of(row))
        promised = expected_score(ahead, known[second])
        counts = Counts.from_results(row)
        # With seats swapped a pair is the same one, seen from its other player.
        if (second, first) in found:
            one = found[second, first]
            one.add(counts.turned(), promised=1.0 - promised)
        else:
            one = found.setdefault((first, second), Calibration())
            one.add(counts, promised=promised)
    return found
