"""Table at which a person and a player sit down: the environment, its seats and who has them.

Tests: `tests/tools/play/test_game.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..evaluate.meeting import resolve_players
from ..players.game import Game
from ..players.resolve import ResolvedPlayer

if TYPE_CHECKING:
    from arena.types import Seat

PERSON = "you"
"""Player whom the person is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Environment, person and player, for any number of games.

    Attributes:
        game: The game; the person's agent has a seat of its own.
        player: Player of all other seats.
        agent: Agent that the person plays.
        greedy: Whether the player takes its likeliest actions instead of sampling.
    """

    game: Game
    player: ResolvedPlayer
    agent: str
    greedy: bool

    @property
    def population(self) -> str:
        """Population of the person's agent."""
        return population_of(self.game, self.agent)

    @property
    def players(self) -> tuple[str, ...]:
        """Player of each seat."""
        return tuple(
            PERSON if seat.agents == (self.agent,) else self.player.name for seat in self.game.seats
        )


def with_level(player: str, level: int | None) -> str:
    """Return a PLAYER with the option ``level``; None: as it is."""
    return player if level is None else f"{player}:level={level}"


def population_of(game: Game, agent: str) -> str:
    """Return the population that plays an agent."""
    return next(name for name, agents in game.populations.items() if agent in agents)


def sit_down(
    player: str,
    *,
    environment: str | None = None,
    seat: str | None = None,
    greedy: bool = False,
    trust: bool = False,
) -> Table:
    """Find a player and an agent for the person.

    Args:
        player: PLAYER of the command line.
        environment: Environment, needed of a bot.
        seat: Name of the person's agent, or its number from 1. None: the first agent whom the
            player cannot play, else the first.
        greedy: Whether the player takes its likeliest actions instead of sampling.
        trust: Whether code that the player's file names may be imported, wherever it is from.

    Raises:
        ConfigError: If there is no such player, environment or agent, or nobody plays the others.
    """
    from arena.errors import ConfigError

    game, (found,) = resolve_players([player], environment=environment, trust=trust, option="--env")
    agents = game.spec.agents
    known = [
        one for one in agents if found.game is None or population_of(game, one) in found.policies
    ]
    others = [one for one in agents if one not in known]
    agent = _agent(seat, agents) if seat is not None else (others or agents)[0]
    unplayed = [one for one in others if one != agent]
    if unplayed:
        raise ConfigError(
            f"{player} plays {', '.join(known)} alone, and nobody would play "
            f"{', '.join(unplayed)}: name the run, whose champions play all"
        )
    return Table(
        game=replace(game, seats=tuple(_seats(game, agent))),
        player=found,
        agent=agent,
        greedy=greedy,
    )


def _agent(seat: str, agents: tuple[str, ...]) -> str:
    from arena.errors import ConfigError

    if seat in agents:
        return seat
    if seat.isascii() and seat.isdecimal() and 1 <= int(seat) <= len(agents):
        return agents[int(seat) - 1]
    raise ConfigError(
        f"--seat is one of {', '.join(agents)}, or its number from 1 to {len(agents)}, got {seat!r}"
    )


def _seats(game: Game, agent: str) -> list[Seat]:
    """Return the seats of one match, with one of its own for an agent."""
    from arena.matches.seating import HOME, is_cooperation, seat_teams

    seats = list(game.seats)
    if is_cooperation(game.sides):
        seats = [
            one for one, team in zip(seats, seat_teams(game.seats), strict=True) if team == HOME
        ]
    divided = []
    for one in seats:
        parts = [(agent,), tuple(other for other in one.agents if other != agent)]
        if agent not in one.agents or not parts[1]:
            divided.append(one)
            continue
        # The person's first: sides keep their order.
        divided += [
            replace(one, name=f"{one.name}/{name}", agents=agents)
            for name, agents in zip((agent, "others"), parts, strict=True)
        ]
    return divided
