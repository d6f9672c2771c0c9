"""Matches with many comparisons, of sides of several and of many sides: for `intervals`.

Two players who are equally strong, so their difference is 0. A match is one draw of which side wins
(of many sides, all others are even), and every comparison of its seats follows from that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

import numpy as np

from arena.matches.comparisons import rival_seats
from arena.matches.seating import make_seats, seat_teams
from arena.matches.tournament import TournamentResult
from arena.types import AssignmentId, Entrant, PairScore, Seat, Tally
from populations.league.league import League
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.model import Z95, Result
from populations.records.rows import RunRow, TallyRow
from populations.records.tables import Tables
from tools.evaluate.tournament import ratings_of

Teams = tuple[int, int]
"""Number of sides, and of populations on each."""

LAYOUTS: dict[str, Teams] = {
    "two sides": (2, 1),
    "two sides of two": (2, 2),
    "four sides": (4, 1),
    "eight sides": (8, 1),
    "cooperation of two": (1, 2),
}


def seats_of(teams: Teams) -> tuple[Seat, ...]:
    """Make seats in which each population has one agent on every side."""
    num_sides, num_populations = teams
    sides = {
        f"side{side}": tuple(f"p{population}_{side}" for population in range(num_populations))
        for side in range(num_sides)
    }
    return make_seats(
        agents=tuple(agent for members in sides.values() for agent in members),
        sides=sides,
        populations={
            f"p{population}": tuple(f"p{population}_{side}" for side in range(num_sides))
            for population in range(num_populations)
        },
    )


def tallies(
    players: Sequence[str], *, seats: tuple[Seat, ...], matches: int, rng: np.random.Generator
) -> Iterator[Tally]:
    """Draw every ordered pair, the first as each side in turn against the second as all others."""
    teams = seat_teams(seats)
    names = tuple(dict.fromkeys(teams))
    for home, away in permutations(players, 2):
        for own in names if len(names) > 2 else names[:1]:
            won = rng.integers(len(names), size=matches)
            yield Tally(
                entrants=tuple(Entrant(home if team == own else away) for team in teams),
                matches=matches,
                pairs=tuple(
                    PairScore(
                        first=i,
                        second=j,
                        wins=int((won == names.index(teams[i])).sum()),
                        draws=int(
                            ((won != names.index(teams[i])) & (won != names.index(teams[j]))).sum()
                        ),
                        losses=int((won == names.index(teams[j])).sum()),
                    )
                    for i, j in rival_seats(seats)
                ),
                return_sum=(0.0,) * len(seats),
                return_sum_of_squares=(0.0,) * len(seats),
                length_sum=matches,
            )


def held(layout: str, *, rng: np.random.Generator) -> tuple[bool, bool]:
    """Return whether one league's intervals hold the truth: by `arena evaluate`, by the league."""
    names = ("bot:random", "m1")
    seats = seats_of(LAYOUTS[layout])
    played = list(tallies(names, seats=seats, matches=48 // LAYOUTS[layout][0], rng=rng))
    shown = ratings_of(TournamentResult(pairs=(), tallies=tuple(played)), players=names)
    (line,) = (line for line in shown if line["player"] == "m1")
    low, high = float(str(line["rating_low"])), float(str(line["rating_high"]))
    league = League(Tables(run=RunRow(run="")), seats=seats, half_life_matches=1e9)
    for sequence, tally in enumerate(played, start=1):
        league.add_tally(
            TallyRow(sequence=sequence, assignment_id=AssignmentId(1), kind="evaluate", tally=tally)
        )
    results = [
        Result(first=first, second=second, seats=at, wins=wins, draws=draws, losses=losses)
        for (first, second, at), (wins, draws, losses, *_) in league.results.items()
    ]
    anchors = {(seat.population, Entrant("bot:random")) for seat in seats}
    fit = BradleyTerry().fit(results, anchors=anchors)
    gap, deviation = fit.difference(("p0", Entrant("m1")), ("p0", Entrant("bot:random")))
    return low <= 0.0 <= high, abs(gap) <= Z95 * deviation
