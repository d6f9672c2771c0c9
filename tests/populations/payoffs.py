"""What a table of training results says of two entrants, summed over its rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

from arena.matches.pair_scores import num_scored, points
from arena.types import Entrant
from populations.league.pairs import Seats, added, seats_of, swapped
from populations.league.payoff import Payoff


class Record(NamedTuple):
    """Decayed counts of two entrants, seen from the first one."""

    wins: float = 0.0
    draws: float = 0.0
    losses: float = 0.0
    return_sum: float = 0.0
    opponent_return_sum: float = 0.0

    @property
    def matches(self) -> float:
        """Matches that they are worth."""
        return self.wins + self.draws + self.losses


def record(
    payoff: Payoff, first: Entrant, second: Entrant, *, seats: Seats | None = None
) -> Record:
    """Return what two have done in some seats of theirs, or in all; zeros if they never met."""
    rows = payoff._met.get(first, {}).get(second, ())
    turned = [row if row.first == first else swapped(row) for row in rows]
    found = [row for row in turned if seats in (None, seats_of(row))]
    if not found:
        return Record()
    total = reduce(added, found)
    returns = total.first_return_sum, total.second_return_sum
    # A journal returns 0.0 for -0.0, which compares equal; adding 0.0 gives 0.0.
    return Record(*(sum_ + 0.0 for sum_ in (total.wins, total.draws, total.losses, *returns)))


def records(payoff: Payoff) -> dict[tuple[Entrant, Entrant], Record]:
    """Return all pairs that met, each once, the entrant that sorts lower first."""
    return {
        (first, second): record(payoff, first, second)
        for first, met in payoff._met.items()
        for second in met
        if first < second
    }


def met(payoff: Payoff, entrant: Entrant) -> Iterator[tuple[Entrant, float, float]]:
    """Yield the opponents of an entrant, in order of meeting, with scores won and lost."""
    for other, rows in payoff._met.get(entrant, {}).items():
        won = sum(map(points, rows))
        lost = sum(map(num_scored, rows)) - won
        yield (other, won, lost) if rows[0].first == entrant else (other, lost, won)
