"""Cells of the payoff table for people and programs: one player against another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from arena.matches.pair_scores import mean_score, num_scored, points
from arena.types import Seat
from populations.records.aggregates import PairRow
from populations.records.rows import Document

Names = Mapping[tuple[str, str], str]
"""Displayed players, by population and entrant."""

_Key = tuple[str, str, str, str, int, int]
"""Population and entrant of both players, and their seats."""


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
    cells: dict[_Key, Sequence[float]] = {}
    for row in pairs:
        first = (seats[row.first_seat].population, row.first)
        second = (seats[row.second_seat].population, row.second)
        if first in names and second in names:
            # -1 is no seat: all of them share the key.
            own, other = (row.first_seat, row.second_seat) if by_seats else (-1, -1)
            won = points(row)
            # From the other side wins and losses change places, and two scores add up to 1.
            sides: Mapping[_Key, Sequence[float]] = {
                (*first, *second, own, other): (
                    *(row.wins, row.draws, row.losses, won, row.first_return_sum),
                ),
                (*second, *first, other, own): (
                    *(row.losses, row.draws, row.wins, num_scored(row) - won),
                    row.second_return_sum,
                ),
            }
            for key, sums in sides.items():
                known = cells.get(key, (0.0,) * len(sums))
                cells[key] = [one + more for one, more in zip(known, sums, strict=True)]
    # Sorted, because the keys are in the order of first matches.
    return [_json(key, cells[key], seats=seats, names=names) for key in sorted(cells)]


def _json(
    key: _Key,
    sums: Sequence[float],
    *,
    seats: tuple[Seat, ...],
    names: Names,
) -> Document:
    population, entrant, other_population, other, seat, other_seat = key
    wins, draws, losses, won, return_sum = sums
    matches = wins + draws + losses
    document: Document = {
        "population": population,
        "player": names[population, entrant],
        "opponent_population": other_population,
        "opponent": names[other_population, other],
        "matches": int(matches),
        "wins": int(wins),
        "draws": int(draws),
        "losses": int(losses),
        "score": mean_score(won, matches),
        "mean_return": return_sum / matches if matches else None,
    }
    if seat >= 0:
        document["seat"] = seats[seat].name
        document["opponent_seat"] = seats[other_seat].name
    return document
