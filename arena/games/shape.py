"""Shape of a recorded game: what can be said of it without playing it again. Torch-free.

Tests: `tests/populations/controller/evaluation/test_games.py`,
`tests/tools/replay/test_retelling.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from arena.matches.seating import seat_teams
from arena.types import MAX_GAME_BYTES, SHOWN_BYTES, Game, Seat

MAX_RETURN = 1e40
"""Mean return of a match: sums of such returns, and of their squares, are finite."""


def problem_of(game: Game, *, seats: Sequence[Seat]) -> str | None:
    """Say why nobody can have played a game; None if somebody can.

    Args:
        game: The game.
        seats: Seats of the environment.
    """
    sides = len({seat.side for seat in seats})
    teams = seat_teams(seats)
    # In cooperation one team plays alone.
    allowed = {
        tuple(place for place, team in enumerate(teams) if sides > 1 or team == one)
        for one in teams
    }
    if game.seats not in allowed:
        return f"has the seats {game.seats}, where {sorted(allowed)} play"
    if len(game.points) != (sides if sides > 1 else 0) or len(game.returns) != len(game.seats):
        return f"has {len(game.points)} points and {len(game.returns)} returns"
    if len(game.shown) != SHOWN_BYTES * (game.steps + 1) or not game.steps:
        return f"of {game.steps} steps has {len(game.shown)} bytes of digests"
    if game.size_bytes > MAX_GAME_BYTES:
        return f"has {game.size_bytes} bytes, more than {MAX_GAME_BYTES}"
    if any(abs(one) > MAX_RETURN for one in game.returns):
        return f"has the returns {game.returns}"
    return None
