"""Results of players against each other: cells of the payoff table, beside what ratings predict,
and of each policy beside each partner.

Cross-play is from training matches, in which partners and rivals are drawn apart where teammates
are mixed: against the same rivals, what differs between two partners of one policy is the partner.

Tests: `tests/populations/views/test_cells.py`, `tests/populations/views/test_calibration.py`,
`tests/populations/controller/test_mixed_teammates.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from arena.errors import ConfigError
from arena.matches.comparisons import comparisons, is_tally_by_seats
from arena.matches.pair_scores import mean_score, num_scored, points
from arena.matches.seating import plays_of
from arena.matches.teammates import members
from arena.types import (
    Digest,
    Entrant,
    PolicyId,
    Seat,
    Tally,
    is_trainee,
    policy_of_trainee,
    population_of,
)
from populations.league.league import League
from populations.league.lineage import first_of_line
from populations.league.pairs import seat_advantage, seats_of
from populations.league.ratings import Ratings
from populations.ratings.elo import expected_score
from populations.ratings.results import Counts, Rated
from populations.records.aggregates import PairRow
from populations.records.rows import Document, RatingsRow, TallyRow

Names = Mapping[tuple[str, str], str]
"""Displayed players, by population and entrant."""

Seen = tuple[Rated, Rated, tuple[int, ...], Counts, float]
"""Player and opponent of a pair, their seats, and the results and returns of the player."""


def seen_from_both(row: PairRow, seats: tuple[Seat, ...]) -> tuple[Seen, Seen]:
    """Return the results of a pair as each of the two sees them."""
    first = (seats[row.first_seat].population, row.first)
    second = (seats[row.second_seat].population, row.second)
    counts = Counts.from_results(row)
    return (
        (first, second, (row.first_seat, row.second_seat), counts, row.first_return_sum),
        (second, first, (row.second_seat, row.first_seat), counts.turned(), row.second_return_sum),
    )


def payoff_cells(
    pairs: Iterable[PairRow], *, seats: tuple[Seat, ...], names: Names, by_seats: bool = False
) -> list[Document]:
    """Return the results of players against each other, each pair seen from both.

    Args:
        pairs: Results of evaluation.
        seats: Seats of the environment.
        names: Displayed players; pairs with others are left out.
        by_seats: Whether each pair of seats has a cell of its own, or all of them one.

    Returns:
        One object per cell, in the order of populations, entrants and seats.
    """
    cells: dict[tuple[Rated, Rated, tuple[int, ...]], Sequence[float]] = {}
    for row in pairs:
        for own, other, places, counts, paid in seen_from_both(row, seats):
            if own in names and other in names:
                # Without seats all of them share the key.
                key = (own, other, places if by_seats else ())
                sums = (counts.wins, counts.draws, counts.losses, counts.points, paid)
                known = cells.get(key, (0.0,) * len(sums))
                cells[key] = [one + more for one, more in zip(known, sums, strict=True)]
    found: list[Document] = []
    # Keys are sorted, because they are in the order of first matches.
    for (own, other, places), (wins, draws, losses, won, paid) in sorted(cells.items()):
        matches = wins + draws + losses
        cell: Document = {
            "population": own[0],
            "player": names[own],
            "opponent_population": other[0],
            "opponent": names[other],
            "matches": round(matches),
            "wins": round(wins),
            "draws": round(draws),
            "losses": round(losses),
            "score": mean_score(won, matches),
            "mean_return": paid / matches if matches else None,
        }
        if places:
            cell["seat"], cell["opponent_seat"] = (seats[place].name for place in places)
        found.append(cell)
    return found


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
        # The variance would be below 0 with more draws than the predicted score allows.
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
    is_cooperation = len(plays_of(seats)) > 1
    found: dict[tuple[Rated, Rated], Calibration] = {}
    for row in pairs:
        (first, second, _, counts, _), _ = seen_from_both(row, seats)
        if first not in known or second not in known or first == second:
            continue
        ahead = known[first]
        # No seat is ahead in cooperation, where teams play one after the other.
        if not is_cooperation:
            ahead += seat_advantage(advantages, seats_of(row))
        promised = expected_score(ahead, known[second])
        # A pair with seats swapped is the same one, seen from its other player.
        if (second, first) in found:
            one = found[second, first]
            one.add(counts.turned(), promised=1.0 - promised)
        else:
            one = found.setdefault((first, second), Calibration())
            one.add(counts, promised=promised)
    return found


@dataclass(slots=True)
class _Cell:
    """Sums over the matches of a policy beside a partner; scores over its rivals."""

    matches: int = 0
    scored: float = 0.0
    points: float = 0.0
    return_sum: float = 0.0


def cross_play(tallies: Iterable[TallyRow], *, league: League) -> list[Document]:
    """Return the mean score and return of each policy beside each partner.

    Matches count since the policy's weights were last replaced. The partner is the policy that made
    the weights that played, at any age. A match with several partners counts for each of them.

    Args:
        tallies: Tallies of the run; those of evaluation are left out.
        tables: Rows of the run.
        league: League of the run.

    Returns:
        One object per pair, sorted; ``score`` is None in cooperation.

    Raises:
        ConfigError: If teammates are the same: then nobody has a partner.
    """
    if not league.mixes_teammates:
        raise ConfigError("cross-play needs a run with matchmaking.teammates 'mixed', got 'same'")
    first = {
        name: first_of_line(league.tables.generations, row.trainee)
        for name, row in league.tables.policies.items()
    }
    cells: dict[tuple[PolicyId, PolicyId], _Cell] = {}
    for row in tallies:
        for side, index, partner in _beside(row.tally, league.seats) if row.kind == "train" else ():
            policy, generation = policy_of_trainee(row.tally.entrants[index])
            origin = league.checkpoints.get(Digest(row.tally.entrants[partner]))
            # A policy that was retired has no line that goes on.
            if policy in first and generation >= first[policy] and origin is not None:
                cell = cells.setdefault((policy, origin.policy), _Cell())
                _add(cell, row.tally, side=side, index=index, seats=league.training_seats)
    return [
        {
            "population": population_of(policy),
            "player": policy,
            "partner": partner,
            "matches": cell.matches,
            "score": mean_score(cell.points, cell.scored),
            "mean_return": cell.return_sum / cell.matches,
        }
        for (policy, partner), cell in sorted(cells.items())
    ]


def _beside(tally: Tally, seats: tuple[Seat, ...]) -> Iterator[tuple[range, int, int]]:
    """Yield each side that a trainee is on, and the positions of the trainee and of a partner."""
    # Training is one play.
    for side in members(seats)[: len(plays_of(seats)[0])]:
        learning = [index for index in side if is_trainee(tally.entrants[index])]
        for index in learning[:1]:
            yield from ((side, index, partner) for partner in side if partner != index)


def _add(cell: _Cell, tally: Tally, *, side: range, index: int, seats: tuple[Seat, ...]) -> None:
    cell.matches += tally.matches
    cell.return_sum += tally.return_sum[index]
    own = side.start
    if not is_tally_by_seats(tally, seats):
        # The sides of one player have one sum where there are many.
        compared = comparisons(seats, entrants=tally.entrants)
        both = (players for one in compared for players in (one.first, one.second))
        own = next((players[0] for players in both if own in players), own)
    for pair in tally.pairs:
        # A side's results are filed under its first agent.
        if own in (pair.first, pair.second):
            won, scored = points(pair), num_scored(pair)
            cell.points += won if own == pair.first else scored - won
            cell.scored += scored
