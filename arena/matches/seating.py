"""Seats of an environment, and seatings in which each player has every seat equally often.

Torch-free: the controller chooses seatings, the learner carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from arena.errors import ConfigError
from arena.types import MAX_GAME_BYTES, SHOWN_BYTES, Game, Player, Seat, Seating, Tally

MAX_RETURN = 1e40
"""Mean return of a match: sums of such returns, and of their squares, are finite."""

FEW_SIDES = 9
"""Most sides up to which two players play all seatings in which one of them has a single side."""

SIDES_ALONE = 4
"""Number of single sides per call where there are more than `FEW_SIDES`: the seatings would grow
with their number, and each of them has a player for every seat."""


def make_seats(
    *,
    agents: tuple[str, ...],
    sides: Mapping[str, tuple[str, ...]],
    populations: Mapping[str, tuple[str, ...]],
) -> tuple[Seat, ...]:
    """List the seats: sides in their order, populations in theirs within a side.

    Args:
        agents: All agents, in the environment's order.
        sides: Agents that share one score, by side.
        populations: Agents that the policies of a population play, by population.

    Raises:
        ConfigError: If an agent is on no side or on two, likewise for populations; if a side or
            population has an agent that the environment lacks.
    """
    check_partition(sides, agents=agents, key="environment.sides")
    check_partition(populations, agents=agents, key="populations")
    if len(sides) == 1:
        return _cooperation_seats(side=next(iter(sides)), agents=agents, populations=populations)
    seats = []
    for side, side_agents in sides.items():
        shared = {
            population: tuple(a for a in agents if a in side_agents and a in population_agents)
            for population, population_agents in populations.items()
        }
        # A population without an agent on this side has no seat there.
        present = {population: members for population, members in shared.items() if members}
        for population, members in present.items():
            # A population's agents on one side are one seat, named after the side if no other
            # population is on it.
            name = side if len(present) == 1 else f"{side}/{population}"
            seats.append(Seat(name=name, side=side, population=population, agents=members))
    return tuple(seats)


def _cooperation_seats(
    *, side: str, agents: tuple[str, ...], populations: Mapping[str, tuple[str, ...]]
) -> tuple[Seat, ...]:
    return tuple(
        Seat(
            name=team if len(populations) == 1 else f"{team}/{population}",
            side=side,
            population=population,
            # Both teams have the same agents, because they play the same episodes one after the
            # other.
            agents=tuple(agent for agent in agents if agent in members),
        )
        for team in ("home", "away")
        for population, members in populations.items()
    )


@lru_cache(maxsize=64)
def plays_of(seats: tuple[Seat, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the plays of a match, each with its seats by index; a play seats every agent once.

    In competition all sides compete in one play. In cooperation home plays, then away; their
    results in the same seeded episode are compared.
    """
    plays: list[list[int]] = []
    seated: set[str] = set()
    for index, seat in enumerate(seats):
        if not plays or not seated.isdisjoint(seat.agents):
            plays.append([])
            seated = set()
        plays[-1].append(index)
        seated.update(seat.agents)
    return tuple(map(tuple, plays))


def seat_teams(seats: tuple[Seat, ...]) -> tuple[tuple[int, str], ...]:
    """Return the team of each seat: its play and its side."""
    return tuple(
        (play, seats[index].side) for play, own in enumerate(plays_of(seats)) for index in own
    )


def num_episodes(tally: Tally, *, seats: tuple[Seat, ...]) -> int:
    """Return the number of episodes in ``length_sum``: one per play and match, or one without
    rivals.
    """
    return tally.matches * (len(plays_of(seats)) if tally.pairs else 1)


def check_partition(
    groups: Mapping[str, Sequence[str]], *, agents: tuple[str, ...], key: str
) -> None:
    """Check that every agent is in exactly one group, and no group is empty.

    Raises:
        ConfigError: Names the agent or the group.
    """
    owners: dict[str, list[str]] = {agent: [] for agent in agents}
    for name, members in groups.items():
        if not members:
            raise ConfigError(f"{key}.{name}: must have at least one agent, got none")
        for agent in members:
            if agent not in owners:
                raise ConfigError(
                    f"{key}: there is no agent {agent!r}; agents: {', '.join(agents)}"
                )
            owners[agent].append(name)
    for agent, names in owners.items():
        if len(names) != 1:
            where = " and ".join(map(repr, names)) or "none"
            raise ConfigError(f"{key}: {agent!r} must be in exactly one of them, is in {where}")


def seats_in_turn(
    seats: Sequence[Seat], *, population: str, num_seatings: int, num_opponents: int, start: int
) -> tuple[tuple[int, ...], ...]:
    """Return the trainee's seats with each opponent, for `training_seatings`.

    If each seat with each opponent would be too many, there are at most ``num_seatings`` seatings,
    but at least one with each opponent. The seats continue from opponent to opponent.

    Args:
        seats: Seats of the environment.
        population: The trainee's population.
        num_seatings: Number of seatings that can be played at once.
        num_opponents: Number of opponents.
        start: Position among the population's seats where the first opponent begins.

    Returns:
        Seats for each opponent; empty: all seats with each opponent.
    """
    own = [index for index, seat in enumerate(seats) if seat.population == population]
    if len({seat.side for seat in seats}) <= FEW_SIDES or len(own) * num_opponents <= num_seatings:
        return ()
    each = max(num_seatings // num_opponents, 1)
    return tuple(
        tuple(own[(start + opponent * each + index) % len(own)] for index in range(each))
        for opponent in range(num_opponents)
    )


def pair_seatings(
    home: Mapping[str, Player],
    away: Mapping[str, Player],
    *,
    seats: tuple[Seat, ...],
    turn: int = 0,
) -> tuple[Seating, ...]:
    """List seatings between two teams so that each has every seat equally often.

    Args:
        home: Players of a team by population, for every seat.
        away: Players of the other team.
        seats: Seats of the environment.
        turn: Index of the single sides that a team gets, where there are more than `FEW_SIDES`.
            Consecutive numbers cycle through all of them.

    Returns:
        ``home`` as each single side against ``away`` as all others, and the reverse, without
        repetition; of many sides, some of them. With two sides: the two orders. In cooperation: one
        seating, because both play the same episodes.
    """
    teams = seat_teams(seats)
    alone = tuple(dict.fromkeys(teams))
    # With two sides, home alone on one is away alone on the other.
    roles = ((home, away),) if len(alone) == 2 else ((home, away), (away, home))
    if len(plays_of(seats)) > 1:
        alone = alone[:1]
    elif len(alone) > FEW_SIDES:
        # Only some of many sides are played alone in each turn; turns go through all of them.
        start = turn * SIDES_ALONE
        alone = tuple(alone[(start + index) % len(alone)] for index in range(SIDES_ALONE))
    seatings = (
        Seating(
            players=tuple(
                (single if team == one else rest)[seat.population]
                for seat, team in zip(seats, teams, strict=True)
            )
        )
        for single, rest in roles
        for one in alone
    )
    # For a player against itself all seatings are equal, so repetitions are dropped.
    return tuple(seatings) if home != away else tuple(dict.fromkeys(seatings))


def problem_of(game: Game, *, seats: tuple[Seat, ...]) -> str | None:
    """Return the reason why a recorded game is impossible; None if it is possible.

    Args:
        game: The game.
        seats: Seats of the environment.
    """
    plays = plays_of(seats)
    if game.seats not in plays:
        return f"has the seats {game.seats}, where {sorted(plays)} play"
    num_points = len({seat.side for seat in seats}) if len(plays) == 1 else 0
    if len(game.points) != num_points or len(game.returns) != len(game.seats):
        return f"has {len(game.points)} points and {len(game.returns)} returns"
    if len(game.shown) != SHOWN_BYTES * (game.steps + 1) or not game.steps:
        return f"of {game.steps} steps has {len(game.shown)} bytes of digests"
    if game.size_bytes > MAX_GAME_BYTES:
        return f"has {game.size_bytes} bytes, more than {MAX_GAME_BYTES}"
    if any(abs(one) > MAX_RETURN for one in game.returns):
        return f"has the returns {game.returns}"
    return None
