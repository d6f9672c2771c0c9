"""Recorded evaluation games: their results, a player's worst ones, and which are retained.

Tests: `tests/populations/records/test_games.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from arena.types import Digest, Entrant, Player, PlayerId, PolicyId, Seat, ghost_id, is_external
from populations.records.rows import CheckpointRow, GameRow

MAX_HELD = 20
"""Maximum number of a champion's newest defeats whose players' weights are retained for replays."""


def margin(game: GameRow, place: int, *, seats: Sequence[Seat]) -> float:
    """Return the result of a game for one of its places (an index of ``game.seats``).

    Args:
        game: The game.
        place: Index of the player in ``game.seats``.
        seats: Seats of the environment.

    Returns:
        Points of the player's side minus the points of the best other side: positive for a victory,
        negative for a defeat. In cooperation, which has no points, the player's return.
    """
    if not game.points:
        return game.returns[place]
    sides = list(dict.fromkeys(one.side for one in seats))
    own = sides.index(seats[game.seats[place]].side)
    return game.points[own] - max(game.points[:own] + game.points[own + 1 :])


def line_of(player: str) -> str:
    """Return the policy of a ghost or policy; the name itself of a player from outside the run."""
    return player if is_external(player) else player.partition("@")[0]


def played_as(player: Player, made: Mapping[Digest, CheckpointRow]) -> PlayerId:
    """Return a player's id with the agent steps of its weights, in the form of a ghost's id.

    Args:
        player: Player in the assignment's message.
        made: Checkpoint in which weights were first saved, by digest.
    """
    origin = None if player.weights is None else made.get(player.weights.digest)
    if origin is None or "@" in player.player or is_external(player.player):
        return player.player
    return ghost_id(PolicyId(player.player), agent_steps=origin.agent_steps)


def worst_games(
    games: Iterable[GameRow], players: Iterable[str], *, seats: Sequence[Seat]
) -> list[GameRow]:
    """Return a player's games, its worst result first; among equal results the newest is first.

    Args:
        games: Games in order of commit.
        players: Ids, entrants or policies that name the player.
        seats: Seats of the environment.
    """
    names = set(players)

    def worst(game: GameRow, mine: Sequence[int]) -> tuple[float, float, int]:
        return min(
            badness(margin(game, place, seats=seats), game.returns[place], game.steps)
            for place in mine
        )

    found = [(worst(game, mine), game) for game in games if (mine := places(game, names))]
    # The sort is stable, so the newest of equal results stays first.
    return [game for _, game in sorted(reversed(found), key=itemgetter(0))]


def badness(points: float, paid: float, steps: int) -> tuple[float, float, int]:
    """Return the sort key of a player's result in a game; the worst result has the smallest key.

    Args:
        points: The player's margin: its points minus the points of the best other side.
        paid: Return of the player.
        steps: Steps of the game.
    """
    # Among equal defeats the quickest is the worst, among other equal results the longest.
    return points, paid, steps if points < 0 else -steps


def places(game: GameRow, names: set[str]) -> list[int]:
    """Return indices of a game's players whose id, entrant or policy is among some names."""
    return [
        place
        for place, (player, entrant) in enumerate(zip(game.players, game.entrants, strict=True))
        if not names.isdisjoint((player, entrant, line_of(player)))
    ]


def defeats(games: Iterable[GameRow], entrant: Entrant, *, seats: Sequence[Seat]) -> list[GameRow]:
    """Return the games that an entrant lost against another side, in the order given."""
    return [
        game
        for game in games
        if game.points
        and any(margin(game, place, seats=seats) < 0 for place in places(game, {entrant}))
    ]


def kept_games(
    games: Sequence[GameRow],
    *,
    keep: int,
    champion: Entrant | None,
    seats: Sequence[Seat],
) -> set[str]:
    """Choose the games of a population that are retained when there are too many.

    Priority is in this order: the champion's newest defeats (at most half of ``keep``), the newest
    game of each pair of players, the longest and the closest game of each pair, all other games.
    Among games of equal priority the newer ones are retained.

    Args:
        games: Games of the population, in order of commit.
        keep: Maximum number of retained games.
        champion: Weights of its champion; None: there is none yet.
        seats: Seats of the environment.

    Returns:
        Ids of the retained games.
    """
    claims: dict[str, int] = dict.fromkeys((game.game for game in games), 0)
    pairs: dict[tuple[str, ...], list[GameRow]] = {}
    for game in reversed(games):
        pairs.setdefault(tuple(sorted(map(line_of, game.players))), []).append(game)
    for newest_first in pairs.values():
        # max and min return the first of equal games, here the newest.
        longest = max(newest_first, key=lambda one: one.steps)
        closest = min(newest_first, key=lambda one: abs(margin(one, 0, seats=seats)))
        claims[longest.game] = claims[closest.game] = 1
        claims[newest_first[0].game] = 2
    if champion is not None:
        lost = defeats(games, champion, seats=seats)[-((keep + 1) // 2) :]
        # Defeats get at most half, or those of a long-lived champion would displace all others.
        claims.update(dict.fromkeys((one.game for one in lost), 3))
    # The sort is stable, so the newest of equal priority stays first.
    ranked = sorted(reversed(claims), key=lambda one: claims[one], reverse=True)
    return set(ranked[:keep])


def populations_of(game: GameRow, *, seats: Sequence[Seat]) -> set[str]:
    """Return the populations that took part in a game."""
    return {seats[seat].population for seat in game.seats}
