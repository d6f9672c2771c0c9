"""Table at which a person and a player sit down: the environment, its seats and who has them.

Tests: `tests/tools/play/test_game.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from arena.errors import ConfigError
from arena.matches.seating import plays_of
from arena.types import Seat

from ..evaluate.meeting import resolve_players
from ..players.game import Game
from ..players.resolve import ResolvedPlayer

PERSON = "you"
"""Player whom the person is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Environment, person and player, for any number of games.

    Attributes:
        game: The game; the person's agent has a seat of its own.
        player: Player of all other seats.
        agent: Agent that the person plays.
    """

    game: Game
    player: ResolvedPlayer
    agent: str

    @property
    def population(self) -> str:
        """Population of the person's agent."""
        return self.game.population_of(self.agent)

    @property
    def players(self) -> tuple[str, ...]:
        """Player of each seat."""
        return tuple(
            PERSON if seat.agents == (self.agent,) else self.player.name for seat in self.game.seats
        )


def sit_down(
    player: str, *, environment: str | None = None, seat: str | None = None, trust: bool = False
) -> Table:
    """Find a player and an agent for the person.

    Args:
        player: PLAYER of the command line.
        environment: Environment, needed of a bot.
        seat: Name of the person's agent, or its number from 1. None: the first agent whom the
            player cannot play, else the first.
        trust: Whether code that the player's file names may be imported, wherever it is from.

    Raises:
        ConfigError: If there is no such player, environment or agent, or nobody plays the others.
    """
    game, (found,) = resolve_players([player], environment=environment, trust=trust, option="--env")
    agents = game.spec.agents
    known = [
        one for one in agents if found.game is None or game.population_of(one) in found.policies
    ]
    others = [one for one in agents if one not in known]
    numbers = {str(number): one for number, one in enumerate(agents, 1)}
    agent = (others or agents)[0] if seat is None else numbers.get(seat, seat)
    if agent not in agents:
        raise ConfigError(
            f"--seat is one of {', '.join(agents)}, or its number from 1 to {len(agents)}, got "
            f"{seat!r}"
        )
    if unplayed := [one for one in others if one != agent]:
        raise ConfigError(
            f"{player} plays {', '.join(known)} alone, and nobody would play "
            f"{', '.join(unplayed)}: name the run, whose champions play all"
        )
    return Table(game=replace(game, seats=tuple(_seats(game, agent))), player=found, agent=agent)


def _seats(game: Game, agent: str) -> Iterator[Seat]:
    """Yield the seats of one match, with one of its own for an agent."""
    for one in (game.seats[index] for index in plays_of(game.seats)[0]):
        others = tuple(other for other in one.agents if other != agent)
        if agent in one.agents and others:
            # The person's seat comes first, so that sides keep their order.
            yield replace(one, name=f"{one.name}/{agent}", agents=(agent,))
            yield replace(one, name=f"{one.name}/others", agents=others)
        else:
            yield one
