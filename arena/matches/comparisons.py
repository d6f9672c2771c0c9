"""Comparisons of a match: the results that a tally sums, by pair of seats or of players.

With few seats each pair on different sides has a sum of its own, which shows the value of a seat.
With many seats the number of pairs is quadratic, while a seating has few different players; there
two players have one sum over all pairs of their seats. Torch-free.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, product

from arena.matches.pair_scores import num_scored
from arena.matches.seating import plays_of, seat_teams
from arena.types import Entrant, Seat, Tally, is_trainee

MAX_SEAT_PAIRS = 36
"""Most pairs of seats with sums of their own: those of nine sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Seats of two players on different sides, whose results a `PairScore` sums.

    Attributes:
        first: Seats of the first player, ascending.
        second: Seats of the second player, ascending; the lowest is above the first one's.
        number: Pairs of these seats that are on different sides.
    """

    first: tuple[int, ...]
    second: tuple[int, ...]
    number: int = 1

    @property
    def names(self) -> tuple[int, int]:
        """Return the lowest seat of each player, by which a `PairScore` names them."""
        return self.first[0], self.second[0]

    def pairs(self, seats: Sequence[Seat]) -> Iterator[tuple[int, int]]:
        """Yield the pairs of seats."""
        for i, j in product(self.first, self.second):
            # Seats of different plays are on different sides even if their side has the same name.
            if self.number == 1 or seats[i].side != seats[j].side:
                yield i, j

    def return_sums(
        self, return_sum: Sequence[float], *, seats: Sequence[Seat]
    ) -> tuple[float, float]:
        """Return the returns of both players, summed over the pairs of seats.

        Args:
            return_sum: Sum of the returns of each seat.
            seats: Seats of the environment.
        """
        return (
            _over_rivals(self.first, self.second, return_sum, seats),
            _over_rivals(self.second, self.first, return_sum, seats),
        )


def rival_seats(seats: tuple[Seat, ...]) -> tuple[tuple[int, int], ...]:
    """Return pairs of seats whose players are compared, the lower index first.

    These are seats on different sides of a play; of two plays the seats of each population: a
    team's result is that of every member, so each scale has it once. Of a population's seats on one
    side, where each agent has one, the first stands for all: they share one result.
    """
    teams = seat_teams(seats)
    # `setdefault` keeps the first value: the first seat of each side and population.
    first_of: dict[tuple[tuple[int, str], str], int] = {}
    for index, (team, seat) in enumerate(zip(teams, seats, strict=True)):
        first_of.setdefault((team, seat.population), index)
    return tuple(
        (first, second)
        for first, second in combinations(first_of.values(), 2)
        if teams[first] != teams[second]
        and (
            teams[first][0] == teams[second][0]
            or seats[first].population == seats[second].population
        )
    )


def rival_populations(seats: tuple[Seat, ...]) -> frozenset[frozenset[str]]:
    """Return the pairs of populations whose players are compared; a set of one name for
    self-play.
    """
    if len(plays_of(seats)) > 1:
        return frozenset(frozenset((seat.population,)) for seat in seats)
    sides: dict[str, set[str]] = {}
    for seat in seats:
        sides.setdefault(seat.population, set()).add(seat.side)
    return frozenset(
        frozenset((one, other))
        for one, other in combinations_with_replacement(sides, 2)
        # Players are compared across sides, so not if both are on one and the same side alone.
        if len(sides[one] | sides[other]) > 1
    )


@lru_cache(maxsize=64)
def is_by_seats(seats: tuple[Seat, ...]) -> bool:
    """Return whether each pair of seats on different sides has a sum of its own."""
    # The result is cached, because each tally reads it and a run has two tuples of seats. In
    # cooperation the two seats of each population are compared, which is linear.
    return len(plays_of(seats)) > 1 or _num_rivals(seats) <= MAX_SEAT_PAIRS


def comparisons(seats: tuple[Seat, ...], *, entrants: Sequence[Entrant]) -> tuple[Comparison, ...]:
    """Return what the tally of a seating sums, in order.

    Args:
        seats: Seats, of whole sides or of agents.
        entrants: Entrant of each seat.
    """
    if is_by_seats(seats):
        return _seat_comparisons(seats)
    players: dict[tuple[str, Entrant], list[int]] = {}
    together = _seats_together(seats)
    for own, counting in zip(together, counting_seats(entrants, together), strict=True):
        # The first agent of a side stands for it, whichever of its players counts.
        name = (seats[own[0]].population, entrants[counting])
        players.setdefault(name, []).append(own[0])
    compared = (
        Comparison(
            first=tuple(first), second=tuple(second), number=_num_pairs(first, second, seats)
        )
        for first, second in combinations(players.values(), 2)
    )
    # Players on the same side only have no comparison.
    return tuple(one for one in compared if one.number)


def is_tally_by_seats(tally: Tally, seats: tuple[Seat, ...]) -> bool:
    """Return whether a tally has the results of each pair of seats.

    Older tallies of many seats have them, too.
    """
    return is_by_seats(seats) or len(tally.pairs) == _num_rivals(seats)


def counting_seats(
    entrants: Sequence[Entrant], together: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Return the agent that each side counts for, where each agent of a side has a seat.

    A side counts for the trainee on it; any other side counts for the player opposite the first
    trainee: the rival.

    Args:
        entrants: Entrant of each agent.
        together: Agents of each side.
    """
    learning = {index for index, entrant in enumerate(entrants) if is_trainee(entrant)}
    place = next((i - side[0] for side in together for i in side if i in learning), 0)
    return tuple(
        next((index for index in side if index in learning), side[place % len(side)])
        for side in together
    )


def result_weights(
    numbers: Mapping[tuple[int, int], int], *, entrants: Sequence[Hashable]
) -> dict[tuple[int, int], float]:
    """Return the weight of each comparison in ratings.

    Comparisons of one match are correlated: with n sides each plays n - 1 others, and each member
    of a team has the team's result. A match is one result for each player, however many seats and
    opponents the player has; a higher weight would make intervals too narrow.

    Args:
        numbers: Pairs of seats that are compared, by the two seats that name the players.
        entrants: Entrant of each seat.

    Returns:
        Weights by comparison, without comparisons of an entrant with itself.
    """
    met = {(i, j): n for (i, j), n in numbers.items() if entrants[i] != entrants[j]}
    times: Counter[Hashable] = Counter()
    for pair, number in met.items():
        for seat in pair:
            times[entrants[seat]] += number
    # w_ij = 1 / max(times of i's entrant, times of j's)
    return {(i, j): 1.0 / max(times[entrants[i]], times[entrants[j]]) for i, j in met}


def numbers_of(tally: Tally) -> dict[tuple[int, int], int]:
    """Return the number of pairs of seats that each result of a tally sums."""
    # Every pair of seats has a score in each match.
    return {
        (pair.first, pair.second): int(num_scored(pair)) // tally.matches for pair in tally.pairs
    }


@lru_cache(maxsize=64)
def _seat_comparisons(seats: tuple[Seat, ...]) -> tuple[Comparison, ...]:
    return tuple(Comparison(first=(i,), second=(j,)) for i, j in rival_seats(seats))


def _seats_together(seats: Sequence[Seat]) -> list[list[int]]:
    """Return the seats of each population on each side: one in all, or one for each agent."""
    together: dict[tuple[str, str], list[int]] = {}
    for index, seat in enumerate(seats):
        together.setdefault((seat.side, seat.population), []).append(index)
    return list(together.values())


def _num_rivals(seats: Sequence[Seat]) -> int:
    """Count the pairs of `rival_seats` in competition, without making them."""
    on_side = Counter(side for side, _ in {(seat.side, seat.population) for seat in seats})
    # The count is that of all pairs but those on one side: ((sum m_s)^2 - sum m_s^2) / 2.
    return (on_side.total() ** 2 - sum(number**2 for number in on_side.values())) // 2


def _num_pairs(first: Sequence[int], second: Sequence[int], seats: Sequence[Seat]) -> int:
    sides = Counter(seats[index].side for index in first)
    return len(first) * len(second) - sum(sides[seats[index].side] for index in second)


def _over_rivals(
    own: Sequence[int], others: Sequence[int], values: Sequence[float], seats: Sequence[Seat]
) -> float:
    """Add up the values of seats, each as often as its seat is compared."""
    sides = Counter(seats[index].side for index in others)
    return math.fsum((len(others) - sides[seats[index].side]) * values[index] for index in own)


def is_repeating(tally: Tally, repeating: Collection[str]) -> bool:
    """Return whether a repeated game adds no information.

    That holds only where neither players nor the environment are random. Where they are, a game
    that occurs twice is two samples: in rock-paper-scissors every game occurs often.

    Args:
        tally: The tally.
        repeating: Deterministic players, in a game without chance.
    """
    return tally.distinct is not None and all(name in repeating for name in tally.entrants)


def counted(tally: Tally, repeating: Collection[str]) -> int:
    """Count the games of a tally, without repeated ones if these add no information."""
    # Tallies of such games always have `distinct`.
    return tally.distinct or 0 if is_repeating(tally, repeating) else tally.matches
