"""Elo ratings game by game, with which the ratings of many sequences at once are compared."""

from __future__ import annotations

from collections.abc import Iterable

from populations.ratings.elo import expected_score


def elo_ratings(
    games: Iterable[tuple[str, str, float]], *, k_factor: float = 32.0, initial: float = 1200.0
) -> dict[str, float]:
    """Rate players by games of two with the first one's score, in the order given."""
    ratings: dict[str, float] = {}
    for home, away, score in games:
        expected = expected_score(
            ratings.setdefault(home, initial), ratings.setdefault(away, initial)
        )
        # R' = R + K (s - E)
        change = k_factor * (score - expected)
        ratings[home] += change
        ratings[away] -= change
    return ratings
