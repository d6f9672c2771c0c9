"""Do intervals hold the truth where a match has many comparisons: sides of several, many sides?

    python -m experiments.ratings.many_sides --leagues 1000

Players who are all equally strong, so every difference is 0. A match is one draw of which side wins
(of many sides, all others are even), and every comparison of its seats follows from that.
Printed: the share of 95% intervals that hold 0, as `arena evaluate` and as a run's league count
matches; more than .95 where a team's members share one result and cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, permutations

import numpy as np

from arena.matches.comparisons import rival_seats
from arena.matches.seating import make_seats, seat_teams
from arena.matches.tournament import TournamentResult
from arena.types import AssignmentId, Entrant, PairScore, Seat, Tally
from experiments.harness import markdown, parser_of, say
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


def held(teams: Teams, *, players: int, matches: int, seed: int) -> tuple[bool, bool]:
    """Return whether one league's intervals hold the truth: by `arena evaluate`, by the league."""
    rng = np.random.default_rng(seed)
    names = ["bot:random", *(f"m{index}" for index in range(1, players))]
    seats = seats_of(teams)
    played = list(tallies(names, seats=seats, matches=matches, rng=rng))
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


def coverage(teams: Teams, *, leagues: int, seed: int = 1) -> tuple[float, float]:
    """Return the shares of leagues of two players whose intervals hold the truth."""
    found = [
        held(teams, players=2, matches=48 // teams[0], seed=seed * 1_000_000 + league)
        for league in range(leagues)
    ]
    evaluated, of_league = np.mean(found, axis=0).tolist()
    return evaluated, of_league


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--leagues", type=int, default=1000)
    options = parser.parse_args(argv)
    measured = (
        (name, *(f"{share:.3f}" for share in coverage(teams, leagues=options.leagues)))
        for name, teams in LAYOUTS.items()
    )
    for line in markdown(chain([("", "arena evaluate", "league")], measured)):
        say(line)


if __name__ == "__main__":
    main()
