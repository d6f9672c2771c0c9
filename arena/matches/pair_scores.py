"""Scores of pairs: sums from wins, draws and losses, or, in games with stakes, of scores.

A match's score is in [0, 1] for each of two opponents, and both scores add up to 1. If it only says
who won, it is 1, 1/2 or 0, and the sums follow from wins, draws and losses. If it has a margin
(``environment.outcome: {margin: ...}``), the sums of the scores and of their squares are kept as
well. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Protocol

from arena.types import PairScore

Z95 = 1.959963984540054
"""Half the width of a 95% interval in standard deviations."""

ROUNDING = 1e-6
"""Tolerance per match of sums of rounded scores."""


class Scored(Protocol):
    """Results of matches between two players, seen from the first one.

    Attributes:
        wins: Matches in which the first player scored more than 1/2.
        draws: Matches in which both scored 1/2.
        losses: Matches in which the first player scored less than 1/2.
        score_sum: Sum of the first player's scores; None: 1 for a win and 1/2 for a draw.
        square_sum: Sum of the squares of these; None where ``score_sum`` is.
    """

    @property
    def wins(self) -> float: ...  # noqa: D102
    @property
    def draws(self) -> float: ...  # noqa: D102
    @property
    def losses(self) -> float: ...  # noqa: D102
    @property
    def score_sum(self) -> float | None: ...  # noqa: D102
    @property
    def square_sum(self) -> float | None: ...  # noqa: D102


def num_scored(results: Scored) -> float:
    """Count the matches."""
    return results.wins + results.draws + results.losses


def points(results: Scored) -> float:
    """Return the sum of the first player's scores."""
    if results.score_sum is not None:
        return results.score_sum
    return results.wins + 0.5 * results.draws


def seen_from(
    seat: int, rivals: Collection[int], pairs: Iterable[PairScore]
) -> tuple[int, int, int, float]:
    """Return wins, draws and losses of a seat against others, and the sum of its scores."""
    wins = draws = losses = 0
    won = 0.0
    for pair in pairs:
        if pair.first == seat and pair.second in rivals:
            wins, losses = wins + pair.wins, losses + pair.losses
            won += points(pair)
        # The pair is seen from its first seat, so the second seat's score is 1 minus that.
        elif pair.second == seat and pair.first in rivals:
            wins, losses = wins + pair.losses, losses + pair.wins
            won += num_scored(pair) - points(pair)
        else:
            continue
        draws += pair.draws
    return wins, draws, losses, won


def mean_score(won: float, scored: float) -> float | None:
    """Return the score per opponent and match, in [0, 1]; None without a match.

    Every displayed score is computed here. With n sides a match has a result against each of the n
    - 1 others, so points are divided by the number of results, not of matches.

    Args:
        won: Sum of scores, as returned by `points`.
        scored: Number of results in that sum, as returned by `num_scored`.
    """
    # Sums of rounded scores can leave the range.
    return min(max(won / scored, 0.0), 1.0) if scored else None


def wilson(score: float, matches: float) -> tuple[float, float]:
    """Return Wilson's 95% interval of a score or a share (1927); draws count as half a win.

    Of all scores in [0, 1] with this mean, wins and losses vary most, so the interval is too wide
    where many matches are drawn.
    """
    # (s + z^2 / 2n -+ z sqrt(s (1 - s) / n + z^2 / 4n^2)) / (1 + z^2 / n)
    square = Z95 * Z95 / matches
    centre = score + square / 2.0
    half = Z95 * ((score * (1.0 - score) + square / 4.0) / matches) ** 0.5
    return max((centre - half) / (1.0 + square), 0.0), min((centre + half) / (1.0 + square), 1.0)


def squares(results: Scored) -> float:
    """Return the sum of the squares of the first player's scores."""
    if results.square_sum is not None:
        return results.square_sum
    # 1^2 for a win, (1/2)^2 for a draw
    return results.wins + 0.25 * results.draws


def reversed_sums(results: Scored) -> tuple[float | None, float | None]:
    """Return ``score_sum`` and ``square_sum`` as seen from the second player."""
    if results.score_sum is None or results.square_sum is None:
        return None, None
    matches = num_scored(results)
    # The second player's score is 1 - s, and its square 1 - 2 s + s^2.
    return matches - results.score_sum, matches - 2.0 * results.score_sum + results.square_sum


def added_sums(
    old: Scored, new: Scored, *, remaining: float = 1.0
) -> tuple[float | None, float | None]:
    """Return ``score_sum`` and ``square_sum`` of ``new`` and of ``remaining`` times ``old``."""
    if old.score_sum is None and new.score_sum is None:
        return None, None
    # If only one of them has sums, those of the other follow from wins, draws and losses.
    return points(old) * remaining + points(new), squares(old) * remaining + squares(new)


def kept_sums(
    results: Scored, *, score_sum: float, square_sum: float
) -> tuple[float | None, float | None]:
    """Return sums of scores for storage: None where wins, draws and losses imply them."""
    follows = (results.wins + 0.5 * results.draws, results.wins + 0.25 * results.draws)
    return (None, None) if follows == (score_sum, square_sum) else (score_sum, square_sum)


def adds_up(results: Scored, *, matches: int) -> bool:
    """Return whether counts and sums are possible for so many matches.

    A win has a score s in (1/2, 1], a loss one in [0, 1/2).
    """
    counts = (results.wins, results.draws, results.losses)
    if min(counts) < 0 or sum(counts) != matches:
        return False
    total, square = results.score_sum, results.square_sum
    if total is None or square is None:
        return total is None and square is None
    if not (math.isfinite(total) and math.isfinite(square)):
        return False
    slack = ROUNDING * matches
    # (wins + draws) / 2 <= sum of s <= wins + (draws + losses) / 2
    least, most = 0.5 * (matches - results.losses), 0.5 * (matches + results.wins)
    return (
        least <= total + slack
        and total <= most + slack
        # Cauchy-Schwarz: (sum of s)^2 <= M * sum of s^2
        and total * total <= (square + slack) * matches
        # s^2 <= s in [0, 1]
        and square <= total + slack
    )
