"""Mixed teammates: in training each agent has a seat, and partners are drawn apart.

Matches, ratings and exports keep whole sides of one player (`arena.matches.seating`). Torch-free.

Tests: `tests/arena/matches/test_teammates.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from msgspec import structs

from arena.matches.comparisons import counting_seats
from arena.matches.seating import seat_teams
from arena.types import Player, Seat, Seating, Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineup:
    """Players of one seating beside and against a trainee.

    Attributes:
        beside: Partners of the trainee, of its own population.
        against: By population, the rival and then its partners. One player alone has all agents of
            its side.
    """

    beside: tuple[Player, ...]
    against: Mapping[str, tuple[Player, ...]]


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


def mixed_seatings(
    trainee: Player,
    *,
    seats: Sequence[Seat],
    population: str,
    lineups: Sequence[Lineup],
    first_turn: int = 0,
    turns: Sequence[Sequence[int]] = (),
) -> tuple[Seating, ...]:
    """List seatings in which the trainee plays one agent of a side, and partners the others.

    For each lineup there is one seating per side that the trainee can be on. The trainee's place
    among the agents of its side moves on from lineup to lineup, and rivals face it at the same
    place, which tells them from their partners (`between_rivals`). In cooperation there is one
    seating per lineup, without rivals.

    Args:
        trainee: Policy that learns.
        seats: Seats of whole sides.
        population: The trainee's population.
        lineups: Players beside and against it.
        first_turn: Place of the trainee in the first lineup, modulo the size of its side.
        turns: Sides that the trainee has with each lineup in turn. Empty: all with each.

    Returns:
        Seatings with a player for each seat of `seats_per_agent`.

    Raises:
        ValueError: If the population has no seat, or a side has too few players.
    """
    own = [index for index, seat in enumerate(seats) if seat.population == population]
    if not own:
        raise ValueError(f"population {population!r} has no seat")
    teams, is_one_side = seat_teams(seats), len({seat.side for seat in seats}) == 1
    if is_one_side:
        # Home alone plays while training, and away repeats it.
        own = [index for index in own if teams[index] == teams[0]]

    def seating(lineup: Lineup, *, mine: int, turn: int) -> Seating:
        place = turn % len(seats[mine].agents)
        players: list[Player] = []
        for index, seat in enumerate(seats):
            is_mine = index == mine or (is_one_side and seat.population == population)
            side = (trainee, *lineup.beside) if is_mine else lineup.against[seat.population]
            players += _placed(side, size=len(seat.agents), place=place)
        return Seating(players=tuple(players))

    return tuple(
        seating(lineup, mine=mine, turn=turn)
        for turn, lineup in enumerate(lineups, start=first_turn)
        for mine in (turns[(turn - first_turn) % len(turns)] if turns else own)
    )


def _placed(side: Sequence[Player], *, size: int, place: int) -> list[Player]:
    """Return the players of a side's agents: the first one at a place, the others after it."""
    if 1 < len(side) < size:
        raise ValueError(f"{len(side)} players for a side of {size} agents")
    # The second modulo is for one player alone, which has all agents.
    return [side[(position - place) % size % len(side)] for position in range(size)]


def between_rivals(tally: Tally, *, seats: Sequence[Seat]) -> Tally:
    """Return a training tally of seats per agent as one of whole sides.

    A side counts for its trainee or its rival (`counting_seats`). Partners have no result of their
    own.

    Args:
        tally: Tally with an entrant for each agent.
        seats: Seats of whole sides.
    """
    sides = members(seats)
    counting = counting_seats(tally.entrants, sides)
    # The result of two sides is filed under the first agents of both (`rival_seats`).
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
