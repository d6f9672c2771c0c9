"""Cross-play: how each policy does beside each partner, where teammates are mixed.

From training matches, in which partners and rivals are drawn apart: against the same rivals, what
differs between two partners of one policy is the partner.

Tests: `tests/populations/controller/opponents/test_teammates.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from arena.errors import ConfigError
from arena.matches.comparisons import comparisons, is_tally_by_seats
from arena.matches.pair_scores import mean_score, num_scored, points
from arena.matches.seating import HOME, seat_teams
from arena.matches.teammates import members
from arena.types import (
    Digest,
    PolicyId,
    Seat,
    Tally,
    is_trainee,
    policy_of_trainee,
    population_of,
    trainee_entrant,
)
from populations.league.league import League
from populations.league.lineage import first_of_line
from populations.records.rows import Document, TallyRow
from populations.records.tables import Tables


@dataclass(slots=True)
class _Cell:
    """Sums over the matches of a policy beside a partner; scores over its rivals."""

    matches: int = 0
    scored: float = 0.0
    points: float = 0.0
    return_sum: float = 0.0


def cross_play(tallies: Iterable[TallyRow], *, tables: Tables, league: League) -> list[Document]:
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
        name: first_of_line(tables.generations, trainee_entrant(name, generation=row.generation))
        for name, row in tables.policies.items()
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


def _beside(tally: Tally, seats: Sequence[Seat]) -> Iterator[tuple[range, int, int]]:
    """Yield each side that a trainee is on, and the positions of the trainee and of a partner."""
    sides = members(seats)
    if len({seat.side for seat in seats}) == 1:
        # In cooperation away repeats home, who alone plays.
        sides = sides[: seat_teams(seats).count(HOME)]
    for side in sides:
        learning = [index for index in side if is_trainee(tally.entrants[index])]
        for index in learning[:1]:
            yield from ((side, index, partner) for partner in side if partner != index)


def _add(cell: _Cell, tally: Tally, *, side: range, index: int, seats: tuple[Seat, ...]) -> None:
    cell.matches += tally.matches
    cell.return_sum += tally.return_sum[index]
    own = side.start
    if not is_tally_by_seats(tally, seats):
        # Of many sides those of one player have one sum.
        compared = comparisons(seats, entrants=tally.entrants)
        both = (players for one in compared for players in (one.first, one.second))
        own = next((players[0] for players in both if own in players), own)
    for pair in tally.pairs:
        # A side's results are filed under its first agent.
        if own in (pair.first, pair.second):
            won, scored = points(pair), num_scored(pair)
            cell.points += won if own == pair.first else scored - won
            cell.scored += scored
