"""Cells of the payoff table for people and programs: one player against another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from arena.matches.pair_scores import mean_score, num_scored, points
from arena.types import Seat
from populations.records.aggregates import PairRow
from populations.records.rows import Document

Names = Mapping[tuple[str, str], str]
"""Displayed players, by population and entrant."""


@dataclass(slots=True)
class _Cell:
    wins: float = 0.0
    draws: float = 0.0
    losses: float = 0.0
    points: float = 0.0
    return_sum: float = 0.0

    def add(
        self, wins: float, draws: float, losses: float, *, points: float, return_sum: float
    ) -> None:
        self.wins += wins
        self.draws += draws
        self.losses += losses
        self.points += points
        self.return_sum += return_sum


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
    cells: dict[tuple[str, str, str, str, int, int], _Cell] = {}
    for row in pairs:
        first = (seats[row.first_seat].population, row.first)
        second = (seats[row.second_seat].population, row.second)
        if first in names and second in names:
            # -1 is no seat: all of them share the key.
            own, other = (row.first_seat, row.second_seat) if by_seats else (-1, -1)
            won = points(row)
            cells.setdefault((*first, *second, own, other), _Cell()).add(
                row.wins, row.draws, row.losses, points=won, return_sum=row.first_return_sum
            )
            # From the other side: wins and losses change places.
            cells.setdefault((*second, *first, other, own), _Cell()).add(
                row.losses,
                row.draws,
                row.wins,
                # The two scores of a match add up to 1.
                points=num_scored(row) - won,
                return_sum=row.second_return_sum,
            )
    # Sorted, because the keys are in the order of first matches.
    return [_json(key, cells[key], seats=seats, names=names) for key in sorted(cells)]


def _json(
    key: tuple[str, str, str, str, int, int],
    cell: _Cell,
    *,
    seats: tuple[Seat, ...],
    names: Names,
) -> Document:
    population, entrant, other_population, other, seat, other_seat = key
    matches = cell.wins + cell.draws + cell.losses
    document: Document = {
        "population": population,
        "player": names[population, entrant],
        "opponent_population": other_population,
        "opponent": names[other_population, other],
        "matches": int(matches),
        "wins": int(cell.wins),
        "draws": int(cell.draws),
        "losses": int(cell.losses),
        "score": mean_score(cell.points, matches),
        "mean_return": cell.return_sum / matches if matches else None,
    }
    if seat >= 0:
        document["seat"] = seats[seat].name
        document["opponent_seat"] = seats[other_seat].name
    return document
