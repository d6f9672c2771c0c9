"""Common game of players who are to meet.

Tests: `tests/tools/evaluate/test_command.py`, `tests/tools/export/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..players.game import Game
from ..players.resolve import ResolvedPlayer, resolve_player


def resolve_players(
    names: Sequence[str],
    *,
    environment: str | None,
    trust: bool = False,
    option: str = "--environment",
) -> tuple[Game, list[ResolvedPlayer]]:
    """Find players who are to meet, and what they play.

    Args:
        names: Players as the user wrote them.
        environment: Environment, needed where all are bots; the user's word for it.
        trust: Whether code that the players' files name may be imported, wherever they are from.
        option: Name of the option for the environment.

    Raises:
        ConfigError: If a name is given twice, if the players do not share an environment and its
            populations, or if only files from elsewhere name code to import. Sides and outcome are
            those of the first run, else of the first export.
    """
    from arena.envs.registry import canonical_id
    from arena.errors import ConfigError

    players = [resolve_player(name, trust=trust) for name in names]
    # Players are compared by canonical name, because one bot may be written in several ways.
    known = [player.name for player in players]
    for name in known:
        if known.count(name) > 1:
            raise ConfigError(f"every PLAYER must be given once, {name!r} is given twice")
    games = {player.name: player.game for player in players if player.game is not None}
    if not games:
        if environment is None:
            raise ConfigError(f"bots alone play anything: {option} ID says what")
        return Game.of_environment(environment), players
    # A run knows more about its game than an export; code that is not trusted is not used.
    first, game = min(
        games.items(), key=lambda item: (not item[1].is_playable, item[1].is_exported)
    )
    if environment is not None and canonical_id(environment) != game.spec.id:
        raise ConfigError(f"{option} {environment}: {first} plays {game.spec.id}")
    if not game.is_playable and environment is not None:
        first, game = option, game.vouched_for(environment)
    game.check_word()
    for name, other in games.items():
        # The digest covers spaces and kwargs: with another digest, rows of a batch differ in
        # meaning.
        if other.spec.digest != game.spec.digest:
            raise ConfigError(
                f"players must share one environment: {first} plays {_described(game)}, "
                f"{name} plays {_described(other)}"
            )
        if dict(other.populations) != dict(game.populations):
            raise ConfigError(
                f"players must share one division into populations: {first} has "
                f"{dict(game.populations)}, {name} has {dict(other.populations)}"
            )
        ours, theirs = (g.environment.continuous_actions for g in (game, other))
        # The key only has a meaning for Box spaces.
        if ours != theirs and game.spec.has_numbers:
            raise ConfigError(
                f"players must share environment.continuous_actions: {first} has {ours}, "
                f"{name} has {theirs}"
            )
    return replace(game, agent_ids=_told_who_decides(players)), players


def _told_who_decides(players: Sequence[ResolvedPlayer]) -> tuple[str, ...]:
    """Return populations whose observations end with the agent, as all their players learned.

    Raises:
        ConfigError: If some have and some have not.
    """
    from arena.errors import ConfigError

    told: dict[str, ResolvedPlayer] = {}
    others: dict[str, ResolvedPlayer] = {}
    for player in players:
        for population, policy in player.policies.items():
            (told if policy.is_told_who_decides else others)[population] = player
    # A batch has one row width for each population.
    for population in told.keys() & others.keys():
        raise ConfigError(
            f"players of population {population} must share network.agent_id: it is on for "
            f"{told[population].name}, off for {others[population].name}"
        )
    return tuple(told)


def _described(game: Game) -> str:
    return f"{game.spec.id} {dict(game.spec.kwargs)} (digest {game.spec.digest[:8]})"
