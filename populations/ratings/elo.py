"""Sequential Elo ratings: for comparison, and where only the order of games is known.

Source: Elo, "The rating of chessplayers, past and present" (1978). With more than two players, each
pair is rated by the ratings before the game and the changes are divided by the number of opponents.
With teams, a side has the mean rating of its members, and each member gets the change of the side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np
import numpy.typing as npt

from populations.ratings.model import E

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

INITIAL = 1200.0
K_FACTOR = 32.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Game(Generic[E]):
    """Game of two or more players.

    Attributes:
        players: Two or more names, all different.
        scores: Score of each player against the one in its column, in [0, 1]. ``scores[i][j]`` and
            ``scores[j][i]`` sum to 1; the diagonal is ignored.
    """

    players: tuple[E, ...]
    scores: tuple[tuple[float, ...], ...]

    @classmethod
    def of_two(cls, first: E, second: E, *, score: float) -> Game[E]:
        """Return a game of two; ``score`` is that of ``first``."""
        return cls(players=(first, second), scores=((0.5, score), (1.0 - score, 0.5)))

    @classmethod
    def of_ranking(cls, players: Sequence[E], *, results: Sequence[float]) -> Game[E]:
        """Return a game in which the higher result wins each pair and equal ones draw."""
        scores = tuple(tuple(0.5 * (1 + (a > b) - (a < b)) for b in results) for a in results)
        return cls(players=tuple(players), scores=scores)


def expected_score(rating: float, opponent: float) -> float:
    """Return the expected score of a rating against another, in (0, 1)."""
    # A bounded exponent cannot overflow; beyond the bound the score is 0 or 1 to the last bit.
    exponent = min(max((opponent - rating) / 400.0, -300.0), 300.0)
    # 400 points are odds of 10:1.
    return float(1.0 / (1.0 + 10.0**exponent))


def elo_ratings(
    games: Iterable[Game[E]],
    *,
    k_factor: float = K_FACTOR,
    initial: float = INITIAL,
    start: Mapping[E, float] | None = None,
    frozen: Collection[E] = (),
) -> dict[E, float]:
    """Rate players by their games, in the order given.

    Without frozen players every game is zero-sum: the mean rating does not change.

    Args:
        games: Games in the order in which they were played.
        k_factor: Points gained by a win that was expected to be a loss.
        initial: Rating of a player before its first game.
        start: Ratings of players that already have one.
        frozen: Players whose rating never moves (snapshots); their opponents' ratings do.

    Raises:
        ValueError: If a game's players or scores are not as `Game` says.
    """
    ratings = dict(start or {})
    for game in games:
        _check(game)
        # Ratings before the game: its own changes must not move its expectations.
        before = [ratings.setdefault(player, initial) for player in game.players]
        changes = _changes(before, scores=game.scores, k_factor=k_factor)
        for player, change in zip(game.players, changes, strict=True):
            if player not in frozen:
                ratings[player] += change
    return ratings


def elo_of_many(
    homes: IntArray,
    aways: IntArray,
    scores: FloatArray,
    *,
    orders: npt.NDArray[np.integer],
    num_players: int,
    k_factor: float = K_FACTOR,
    initial: float = INITIAL,
) -> FloatArray:
    """Rate many sequences of games of two at once, each as `elo_ratings` would.

    Args:
        homes: Indices of the first players. Shape [M], M games.
        aways: Indices of the second players. Shape [M].
        scores: Scores of the first players. Shape [M].
        orders: Indices of games in the order in which sequence b plays them. Shape [B, L].
        num_players: N.
        k_factor: As for `elo_ratings`.
        initial: As for `elo_ratings`.

    Returns:
        Ratings [B, N].
    """
    ratings = np.full((len(orders), num_players), initial)
    # Step l plays one game of every sequence: contiguous rows [L, B], so that a step reads one.
    sequence = np.arange(len(orders))
    for game in np.ascontiguousarray(orders.T):
        home, away = homes[game], aways[game]
        gap = np.clip((ratings[sequence, away] - ratings[sequence, home]) / 400.0, -300.0, 300.0)
        # R' = R + K (s - 1 / (1 + 10^((R_opponent - R) / 400)))
        change = k_factor * (scores[game] - 1.0 / (1.0 + 10.0**gap))
        # Each sequence occurs once in the index, so += loses no change.
        ratings[sequence, home] += change
        ratings[sequence, away] -= change
    return ratings


def _changes(
    ratings: Sequence[float], *, scores: Sequence[Sequence[float]], k_factor: float
) -> list[float]:
    # Change of i: K / (n - 1) * sum_j (s_ij - E_ij)
    return [
        k_factor
        / (len(ratings) - 1)
        * sum(
            scores[i][j] - expected_score(rating, opponent)
            for j, opponent in enumerate(ratings)
            if j != i
        )
        for i, rating in enumerate(ratings)
    ]


def _check(game: Game[E]) -> None:
    size = len(game.players)
    if size < 2 or len(set(game.players)) != size:
        raise ValueError(f"a game needs two or more different players, got {game.players!r}")
    if len(game.scores) != size or any(len(row) != size for row in game.scores):
        raise ValueError(f"scores must be {size} by {size}, got {game.scores!r}")
    for i in range(size):
        for j in range(i):
            score, opposite = game.scores[i][j], game.scores[j][i]
            if not 0.0 <= score <= 1.0 or abs(score + opposite - 1.0) > 1e-9:
                raise ValueError(
                    "scores must be in [0, 1] and those of a pair sum to 1, "
                    f"got {score!r} and {opposite!r}"
                )
