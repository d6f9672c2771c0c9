"""Strengths of players by those that they met, where no fit has rated them.

A fit rates few of all weights that were evaluated: those that decide something or are shown. Near
which difference the results of the others are looked at matters, for an error e of it makes one of
e^2 / 2 in what they are taken to say (`populations.league.elimination`). While a league learns
fast, weights are hundreds of Elo ahead of the last ones of their line that were rated. So their
strengths are settled by all of their results first, each given the others' in turn.

Tests: `tests/populations/league/test_meetings.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from populations.league.elimination import Link, Seen, strength_of
from populations.league.league import League
from populations.league.pairs import Seats
from populations.ratings.bradley_terry import ELO_PER_UNIT
from populations.ratings.results import Rated

NUM_SWEEPS = 8
"""Turns in which each strength is settled given the others: steps become ten times smaller."""

Estimate = Callable[[Rated], tuple[float, float]]
"""Rating and variance of a player by the last fit, else by its line, in Elo and its square."""


class Meetings(NamedTuple):
    """Results and links of a player, by the other one, as the player sees them."""

    played: Mapping[Rated, Sequence[Seen]]
    links: Mapping[Rated, Sequence[Link]]

    def of(self, population: str) -> Meetings:
        """Return those with players of one population."""
        return Meetings(
            {other: seen for other, seen in self.played.items() if other[0] == population},
            {other: known for other, known in self.links.items() if other[0] == population},
        )

    def by(
        self, point: Callable[[Rated], float]
    ) -> tuple[list[tuple[float, Sequence[Seen]]], list[tuple[float, Link]]]:
        """Return results and links with the strength of the other one beside each."""
        played = [(point(other), seen) for other, seen in self.played.items()]
        tied = [(point(other), link) for other, known in self.links.items() for link in known]
        return played, tied


def meetings(league: League, rated: Rated, *, advantage: Callable[[Seats], float]) -> Meetings:
    """Find the results and links of a player.

    Args:
        league: League with all results.
        rated: The player.
        advantage: Worth of the first of two seats against the second, in natural units.
    """
    played: defaultdict[Rated, list[Seen]] = defaultdict(list)
    for (first, second, seats), counts in league.results.of_entrant(rated):
        worth = advantage(seats)
        if first == rated:
            played[second].append(Seen(counts, worth))
        else:
            played[first].append(Seen(counts.turned(), -worth))
    links: defaultdict[Rated, list[Link]] = defaultdict(list)
    for (first, second, _), counts in league.links.of_entrant(rated):
        known = Link.from_counts(counts)
        if first == rated:
            links[second].append(known)
        else:
            links[first].append(known.turned())
    return Meetings(played, links)


def settled_points(
    league: League,
    gone: Iterable[Rated],
    *,
    estimate: Estimate,
    is_rated: Callable[[Rated], bool],
    advantage: Callable[[Seats], float],
) -> dict[Rated, float]:
    """Return the strengths of some players and of all that they met.

    Args:
        league: League with all results.
        gone: The players.
        estimate: Rating and variance of each, its results left out.
        is_rated: Whether the last fit rated one: then that is its strength.
        advantage: Worth of the first of two seats against the second, in natural units.

    Returns:
        Elo, in the order of ``gone``, each followed by those that it met.
    """
    points: dict[Rated, float] = {}
    asked: dict[Rated, None] = {}
    for own in gone:
        met = meetings(league, own, advantage=advantage)
        asked.update(dict.fromkeys((own, *met.played, *met.links)))
    # Sorted, as a resumed league may have them in another order.
    unrated = sorted(rated for rated in asked if not is_rated(rated))
    found = {rated: meetings(league, rated, advantage=advantage) for rated in unrated}

    def point(rated: Rated) -> float:
        if rated not in points:
            points[rated] = estimate(rated)[0] / ELO_PER_UNIT
        return points[rated]

    lines = {rated: (point(rated), ELO_PER_UNIT**2 / estimate(rated)[1]) for rated in unrated}
    for _ in range(NUM_SWEEPS):
        for rated, met in found.items():
            line, weight = lines[rated]
            points[rated] = strength_of(line, *met.by(point), line_weight=weight)
    return {rated: ELO_PER_UNIT * point(rated) for rated in asked}
