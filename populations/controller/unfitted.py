"""Evaluation matches that the last fit of ratings does not cover yet.

A fit takes seconds, and evaluations go on meanwhile. Without counting what they have played, each
of them would ask the questions of the one before it again. What such matches will tell is foreseen:
the variance of a player who met another is multiplied by 1 - v / (noise + v + w), with v and w
their variances and ``noise`` that of the difference as so many matches tell it.

Not durable: after a resume ratings are fitted first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import numpy as np

from arena.types import Seat, Tally
from populations.controller.known import Known
from populations.league.scheduling import FloatArray, noise_of
from populations.ratings.results import Rated

Belief = Callable[[Rated], tuple[float, float]]
"""Rating and variance of an entrant after the last fit, in Elo and its square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Played:
    """Matches between two.

    Attributes:
        sequence: Of their tally.
        first: One of the two.
        second: The other one.
        matches: How many.
    """

    sequence: int
    first: Rated
    second: Rated
    matches: int


class UnfittedMatches:
    """What is left of variances after matches since the last fit. Owned by one thread."""

    def __init__(self) -> None:
        self._played: list[_Played] = []
        self._remaining: dict[Rated, float] = {}

    def add(
        self,
        tally: Tally,
        *,
        sequence: int,
        seats: tuple[Seat, ...],
        ranked: Collection[str],
        belief: Belief,
    ) -> None:
        """Take in an evaluation tally; only matches of two count.

        Args:
            tally: Who played how often.
            sequence: Its number.
            seats: Of the environment.
            ranked: Populations whose policies are compared.
            belief: Of the last fit.
        """
        rated = zip((seat.population for seat in seats), tally.entrants, strict=True)
        entrants = tuple(dict.fromkeys(one for one in rated if one[0] in ranked))
        if len(entrants) == 2:
            first, second = entrants
            played = _Played(sequence=sequence, first=first, second=second, matches=tally.matches)
            self._played.append(played)
            self._foresee(played, belief)

    def cover(self, num_tallies: int, *, belief: Belief) -> None:
        """Take in that ratings were fitted.

        Args:
            num_tallies: Sequence of the last tally that they cover.
            belief: Of this fit.
        """
        self._played = [played for played in self._played if played.sequence > num_tallies]
        self._remaining = {}
        for played in self._played:
            self._foresee(played, belief)

    def share_of(self, rated: Rated) -> float:
        """Share of an entrant's variance that is left, in (0, 1]."""
        return self._remaining.get(rated, 1.0)

    def remaining(self, players: Iterable[Known]) -> FloatArray:
        """That of each player. float64 [N]."""
        return np.array([self.share_of((known.population, known.entrant)) for known in players])

    def _foresee(self, played: _Played, belief: Belief) -> None:
        pair = (played.first, played.second)
        (rating, variance), (other_rating, other_variance) = map(belief, pair)
        shares = [self.share_of(rated) for rated in pair]
        variances = (variance * shares[0], other_variance * shares[1])
        total = noise_of(rating - other_rating, num_matches=played.matches) + sum(variances)
        for rated, share, known in zip(pair, shares, variances, strict=True):
            self._remaining[rated] = share * (1.0 - known / total)
