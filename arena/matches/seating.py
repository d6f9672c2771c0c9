"""Seats of an environment, and seatings in which everyone plays every seat equally often.

Torch-free: the controller chooses seatings, the learner carries them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType

from arena.errors import ConfigError
from arena.types import Player, Seat, Seating, Tally

HOME, AWAY = "home", "away"


def is_cooperation(sides: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether all agents win or lose together: players are compared by their returns."""
    return len(sides) == 1


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
    _check_partition("environment.sides", groups=sides, agents=agents)
    _check_partition("populations", groups=populations, agents=agents)
    if is_cooperation(sides):
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
            # A population's agents on one side are one seat; its name is the side's if it is alone.
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
            # Both teams have the same agents: they play the same episodes, one after the other.
            agents=tuple(agent for agent in agents if agent in members),
        )
        for team in (HOME, AWAY)
        for population, members in populations.items()
    )


def seat_teams(seats: Sequence[Seat]) -> tuple[str, ...]:
    """Return the team of each seat: its side; in cooperation ``home`` or ``away``, in this order.

    Home and away have the same agents, so each of them has all seats that one play needs.
    """
    if len({seat.side for seat in seats}) > 1:
        return tuple(seat.side for seat in seats)
    # Home first, then away, as `make_seats` lists them.
    num_away = len(seats) // 2
    return (HOME,) * (len(seats) - num_away) + (AWAY,) * num_away


def num_episodes(tally: Tally, *, seats: Sequence[Seat]) -> int:
    """Return the episodes in ``length_sum``: a match is one, but two where plays are compared.

    In cooperation home and away play the same seeded episode one after the other.
    """
    is_one_side = len({seat.side for seat in seats}) == 1
    return tally.matches * (2 if is_one_side and tally.pairs else 1)


def rival_seats(seats: Sequence[Seat]) -> tuple[tuple[int, int], ...]:
    """Return pairs of seats whose players are compared, the lower index first.

    These are seats on different sides; in cooperation the two seats of each population: a team's
    result is that of every member, so each scale has it once. Of a population's seats on one side,
    where each agent has one, the first stands for all: they share one result.
    """
    teams, is_one_side = seat_teams(seats), len({seat.side for seat in seats}) == 1
    # dicts keep the first value with setdefault: the first seat of each side and population.
    first_of: dict[tuple[str, str], int] = {}
    for index, (team, seat) in enumerate(zip(teams, seats, strict=True)):
        first_of.setdefault((team, seat.population), index)
    return tuple(
        (first, second)
        for first, second in combinations(first_of.values(), 2)
        if teams[first] != teams[second]
        and not (is_one_side and seats[first].population != seats[second].population)
    )


def result_weights(
    pairs: Iterable[tuple[int, int]], *, entrants: Sequence[Hashable]
) -> dict[tuple[int, int], float]:
    """Return the weight of each comparison of two seats in ratings.

    Comparisons of one match hang together: of n sides each meets n - 1 others, and of a team each
    member has the team's result. A match is one result for each player, however many seats it has
    and meets; counted more often, intervals would be too narrow.

    Args:
        pairs: Seats that are compared.
        entrants: Entrant of each seat.

    Returns:
        Weights by pair; without those in which an entrant meets itself.
    """
    met = [(i, j) for i, j in pairs if entrants[i] != entrants[j]]
    times = Counter(entrants[seat] for pair in met for seat in pair)
    # w_ij = 1 / max(times of i's entrant, times of j's)
    return {(i, j): 1.0 / max(times[entrants[i]], times[entrants[j]]) for i, j in met}


def _check_partition(
    key: str, *, groups: Mapping[str, tuple[str, ...]], agents: tuple[str, ...]
) -> None:
    # A list: a set would hide an agent that is listed twice.
    listed = [agent for members in groups.values() for agent in members]
    for agent in listed:
        if agent not in agents:
            raise ConfigError(f"{key}: there is no agent {agent!r}; agents: {', '.join(agents)}")
    for agent in agents:
        if listed.count(agent) != 1:
            raise ConfigError(
                f"{key}: every agent must be in exactly one, {agent!r} is in {listed.count(agent)}"
            )


def seatings_for(
    trainee: Player,
    *,
    seats: tuple[Seat, ...],
    population: str,
    opponents: Mapping[str, Sequence[Player]],
    num_mirrors: int = 0,
    mates: Mapping[str, Player] = MappingProxyType({}),
) -> tuple[Seating, ...]:
    """List seatings in which the trainee meets each opponent in each of its seats equally often.

    Mirror self-play comes first: the trainee has every seat of its population. Then, for each
    opponent of the trainee's own population, one seating per seat that the trainee can have. A
    population with a single seat has no opponents of its own; then there is one seating for each
    player in the longest list of the other populations. Seats of other populations are filled from
    their lists in turn. In cooperation the trainee has all agents of its population, its mates have
    those of theirs, and there is one seating.

    Args:
        trainee: Policy that learns.
        seats: Seats of the environment.
        population: The trainee's population.
        opponents: Frozen players by population. Populations with seats other than the trainee's
            need at least one.
        num_mirrors: How many mirror seatings to list.
        mates: In cooperation, who learns beside the trainee, by population.

    Raises:
        ValueError: If the population has no seat, or another population no player for its seats.
    """
    own = [index for index, seat in enumerate(seats) if seat.population == population]
    if not own:
        raise ValueError(f"population {population!r} has no seat")
    if len({seat.side for seat in seats}) == 1:
        # Both teams are the trainees: while training there is no opponent, and only home plays.
        team = {**mates, population: trainee}
        return (team_seating(team, team, seats=seats),)
    for seat in seats:
        if seat.population != population and not opponents.get(seat.population):
            raise ValueError(f"no player of population {seat.population!r} for seat {seat.name!r}")

    def seating(turn: int, *, rival: Player, trainee_seats: Sequence[int]) -> Seating:
        players = []
        for index, seat in enumerate(seats):
            if seat.population == population:
                players.append(trainee if index in trainee_seats else rival)
            else:
                candidates = opponents[seat.population]
                # In turn: each of them is met about as often.
                players.append(candidates[turn % len(candidates)])
        return Seating(players=tuple(players))

    rivals = opponents.get(population, ())
    # A population with one seat does not meet itself: its opponents have the other seats.
    if len(own) == 1:
        num_turns = max((len(players) for players in opponents.values()), default=0)
        return tuple(seating(t, rival=trainee, trainee_seats=own) for t in range(num_turns))
    mirrors = [seating(t, rival=trainee, trainee_seats=own) for t in range(num_mirrors)]
    against = [
        seating(turn, rival=rival, trainee_seats=[index])
        # Players of other populations stay the same over the seatings with one rival.
        for turn, rival in enumerate(rivals)
        for index in own
    ]
    return (*mirrors, *against)


def team_seating(
    home: Mapping[str, Player], away: Mapping[str, Player], *, seats: tuple[Seat, ...]
) -> Seating:
    """Seat two teams of cooperation, whose players are given by population.

    Raises:
        ValueError: If a team lacks a population.
    """
    players = []
    for seat, name in zip(seats, seat_teams(seats), strict=True):
        team = home if name == HOME else away
        if seat.population not in team:
            raise ValueError(f"no player of population {seat.population!r} for seat {seat.name!r}")
        players.append(team[seat.population])
    return Seating(players=tuple(players))


def pair_seatings(home: Player, away: Player, *, seats: tuple[Seat, ...]) -> tuple[Seating, ...]:
    """List seatings between two players so that each has every seat equally often.

    Args:
        home: A player who can sit in every seat.
        away: Another one.
        seats: Seats of the environment.

    Returns:
        ``home`` as each single side against ``away`` as all others, and the reverse, without
        repetition. With two sides: the two orders. In cooperation: one seating, because both play
        the same episodes.
    """
    sides = tuple(dict.fromkeys(seat.side for seat in seats))
    if len(sides) == 1:
        populations = dict.fromkeys(seat.population for seat in seats)
        teams = (dict.fromkeys(populations, home), dict.fromkeys(populations, away))
        return (team_seating(*teams, seats=seats),)
    # With two sides home alone on one is away alone on the other.
    roles = ((home, away),) if len(sides) == 2 else ((home, away), (away, home))
    seatings = (
        Seating(players=tuple(single if seat.side == side else rest for seat in seats))
        for single, rest in roles
        for side in sides
    )
    # Only a player against itself is the same in all of them.
    return tuple(seatings) if home != away else tuple(dict.fromkeys(seatings))
