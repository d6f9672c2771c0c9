"""Games that are kept: how they ended, which are the worst of a player, and which of many stay.

Tests: `tests/populations/records/test_games.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from arena.types import Digest, Entrant, Player, PlayerId, PolicyId, Seat, ghost_id, is_external
from populations.records.rows import CheckpointRow, GameRow

MAX_HELD = 20
"""Newest defeats of a population's champion whose players' weights are kept."""


def margin(game: GameRow, place: int, *, seats: Sequence[Seat]) -> float:
    """Return how a game ended for one of its places (an index of ``game.seats``).

    Args:
        game: The game.
        place: Place in it.
        seats: Seats of the environment.

    Returns:
        Points of its side less those of the best other side: above 0 is a victory, below a defeat;
        in cooperation its return.
    """
    if not game.points:
        return game.returns[place]
    sides = list(dict.fromkeys(one.side for one in seats))
    own = sides.index(seats[game.seats[place]].side)
    return game.points[own] - max(game.points[:own] + game.points[own + 1 :])


def line_of(player: str) -> str:
    """Return the policy of a player of the run, whichever weights play; a player from outside."""
    return player if is_external(player) else player.partition("@")[0]


def played_as(player: Player, made: Mapping[Digest, CheckpointRow]) -> PlayerId:
    """Return a player's id with the agent steps of its weights, as a ghost has one.

    Args:
        player: Player as it was asked to play.
        made: Origin of weights, by digest.
    """
    origin = None if player.weights is None else made.get(player.weights.digest)
    if origin is None or "@" in player.player or is_external(player.player):
        return player.player
    return ghost_id(PolicyId(player.player), agent_steps=origin.agent_steps)


def worst_games(
    games: Iterable[GameRow], players: Iterable[str], *, seats: Sequence[Seat]
) -> list[GameRow]:
    """Return the games in which a player sits, the worst for it first, of equal ones the newest.

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
    # A stable sort of the newest first.
    return [game for _, game in sorted(reversed(found), key=itemgetter(0))]


def badness(points: float, paid: float, steps: int) -> tuple[float, float, int]:
    """Return the sort key of how a game ended for a player, the worst first.

    Args:
        points: Its points less those of the best other side.
        paid: Its return.
        steps: Steps of the game.
    """
    # The quickest of equal defeats is worst, and the longest of other games.
    return points, paid, steps if points < 0 else -steps


def places(game: GameRow, names: set[str]) -> list[int]:
    """Return the places in a game at which a player sits that has one of some names."""
    return [
        place
        for place, (player, entrant) in enumerate(zip(game.players, game.entrants, strict=True))
        if not names.isdisjoint((player, entrant, line_of(player)))
    ]


def defeats(games: Iterable[GameRow], entrant: Entrant, *, seats: Sequence[Seat]) -> list[GameRow]:
    """Return the games that weights lost against another side, in their order."""
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
    """Choose the games of a population that stay when there are too many.

    First the champion's newest defeats, in half of the places at most, then the newest game of each
    pair, then its longest and its closest, then all others; of equal claims the newer ones.

    Args:
        games: Games of the population, in order of commit.
        keep: Most games.
        champion: Weights of its champion; None: there is none yet.
        seats: Seats of the environment.

    Returns:
        Ids of the games that stay.
    """
    claims: dict[str, int] = dict.fromkeys((game.game for game in games), 0)
    pairs: dict[tuple[str, ...], list[GameRow]] = {}
    for game in reversed(games):
        pairs.setdefault(tuple(sorted(map(line_of, game.players))), []).append(game)
    for newest_first in pairs.values():
        # Of equals the newest: max takes the first one.
        longest = max(newest_first, key=lambda one: one.steps)
        closest = min(newest_first, key=lambda one: abs(margin(one, 0, seats=seats)))
        claims[longest.game] = claims[closest.game] = 1
        claims[newest_first[0].game] = 2
    if champion is not None:
        lost = defeats(games, champion, seats=seats)[-((keep + 1) // 2) :]
        # All of them would leave nothing of other pairs where a champion stays for long.
        claims.update(dict.fromkeys((one.game for one in lost), 3))
    # A stable sort of the newest first.
    ranked = sorted(reversed(claims), key=lambda one: claims[one], reverse=True)
    return set(ranked[:keep])


def populations_of(game: GameRow, *, seats: Sequence[Seat]) -> set[str]:
    """Return the populations that took part in a game."""
    return {seats[seat].population for seat in game.seats}
