"""Seatings of training. With mixed teammates, each agent has a seat of its own.

In matches, ratings and exports one player has a whole side (`arena.matches.seating`). Torch-free.

Tests: `tests/arena/matches/test_teammates.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from msgspec import structs

from arena.matches.comparisons import counting_seats
from arena.matches.seating import plays_of
from arena.types import Player, Seat, Seating, Tally

Cast = tuple[Sequence[Player], Mapping[str, Sequence[Player]]]
"""Players of one seating: those of the trainee's side, trainee first, and those of each other side
by population, rival first. A single player has all agents of its side."""


def seats_per_agent(seats: Sequence[Seat]) -> tuple[Seat, ...]:
    """Return a seat for each agent, in the order of the seats."""
    return tuple(
        replace(
            seat,
            name=seat.name if len(seat.agents) == 1 else f"{seat.name}/{agent}",
            agents=(agent,),
        )
        for seat in seats
        for agent in seat.agents
    )


def members(seats: Sequence[Seat]) -> tuple[range, ...]:
    """Return the positions of each seat's agents among the seats per agent."""
    sizes = [len(seat.agents) for seat in seats]
    ends = accumulate(sizes)
    return tuple(range(end - size, end) for size, end in zip(sizes, ends, strict=True))


def training_seatings(
    casts: Sequence[Cast],
    *,
    seats: tuple[Seat, ...],
    population: str,
    is_mixed: bool = False,
    first_turn: int = 0,
    turns: Sequence[Sequence[int]] = (),
) -> tuple[Seating, ...]:
    """List seatings in which the trainee plays each opponent in each of its seats equally often.

    For each cast there is one seating per seat that the trainee can be in. Where teammates are
    mixed, it plays one agent of its side, and partners the others. Its place among these agents
    moves on from cast to cast, and rivals face it at the same place, which tells them from their
    partners (`between_rivals`). In cooperation there is one seating per cast, without rivals; mates
    of other populations have the agents of those.

    Args:
        casts: Teammates and opponents of the trainee.
        seats: Seats of whole sides.
        population: The trainee's population.
        is_mixed: Whether each agent has a player of its own (`seats_per_agent`).
        first_turn: Position of the trainee in the first cast, modulo the size of its side.
        turns: Seats of the trainee with each cast in turn. Empty: all seats with each cast.

    Returns:
        Seatings with a player for each seat, or for each agent.

    Raises:
        ValueError: If the population has no seat, another population has no player, or a side too
            few.
    """
    # Training needs one play, because in cooperation away has the same players as home.
    played = plays_of(seats)[0]
    own = [index for index in played if seats[index].population == population]
    if not own:
        raise ValueError(f"population {population!r} has no seat")

    def seating(cast: Cast, *, mine: int, turn: int) -> Seating:
        beside, against = cast
        sizes = [len(seat.agents) if is_mixed else 1 for seat in seats]
        players: list[Player] = []
        for index, seat in enumerate(seats):
            is_mine = index % len(played) == mine
            side = beside if is_mine else against.get(seat.population)
            if not side:
                raise ValueError(
                    f"no player of population {seat.population!r} for seat {seat.name!r}"
                )
            players += _placed(side, size=sizes[index], place=turn % sizes[mine])
        return Seating(players=tuple(players))

    return tuple(
        seating(cast, mine=mine, turn=turn)
        for turn, cast in enumerate(casts, start=first_turn)
        for mine in (turns[(turn - first_turn) % len(turns)] if turns else own)
    )


def _placed(side: Sequence[Player], *, size: int, place: int) -> list[Player]:
    """Return the players of a side's agents: the first one at ``place``, the others after it."""
    if 1 < len(side) < size:
        raise ValueError(f"{len(side)} players for a side of {size} agents")
    # The second modulo handles a single player, which has all agents.
    return [side[(position - place) % size % len(side)] for position in range(size)]


def between_rivals(tally: Tally, *, seats: Sequence[Seat]) -> Tally:
    """Convert a training tally of seats per agent to one of whole sides.

    A side counts for its trainee or its rival (`counting_seats`). Partners have no result of their
    own.

    Args:
        tally: Tally with an entrant for each agent.
        seats: Seats of whole sides.
    """
    sides = members(seats)
    counting = counting_seats(tally.entrants, sides)
    # The result of two sides is stored under the first agents of both (`rival_seats`).
    seat_of = {side.start: seat for seat, side in enumerate(sides)}
    return structs.replace(
        tally,
        entrants=tuple(tally.entrants[index] for index in counting),
        return_sum=tuple(tally.return_sum[index] for index in counting),
        return_sum_of_squares=tuple(tally.return_sum_of_squares[index] for index in counting),
        pairs=tuple(
            structs.replace(pair, first=seat_of[pair.first], second=seat_of[pair.second])
            for pair in tally.pairs
        ),
    )
