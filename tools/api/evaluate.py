"""Tournaments from Python.

Tests: `tests/tools/api/test_runs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from .runs import records_of


def evaluate(
    players: Sequence[str],
    *,
    matches: int = 100,
    greedy: bool = False,
    seed: int = 1,
    environment: str | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """Let every ordered pair of players meet, and rate them, as ``arena evaluate`` does.

    Every ordered pair plays ``matches`` matches, so that each player has every seat; players of one
    population among several sit in its seats only. Policies sample their actions, seeded. Ratings
    are on the Elo scale with 95% intervals; ``bot:random`` is at 0 if it takes part, else the mean
    is.

    Args:
        players: Two or more different players, each a PLAYER of the commands: see `load`.
        matches: Matches per ordered pair, at least 1.
        greedy: Whether policies play their likeliest actions instead of sampling.
        seed: Seed of episodes and actions, at least 0. The same call has the same result.
        environment: Environment to play, needed if all players are bots.
        trust: Whether code that a run or an export from elsewhere names may be imported: it runs
            with all rights of yours.

    Returns:
        Document of ``arena evaluate --json``: ``environment``, ``players`` (canonical names),
            ``matches``, ``greedy``, ``seed``, and as records ``pairs`` (``home``, ``away``,
            ``seats``, ``matches``, ``distinct``, ``wins``, ``draws``, ``losses``, ``score``,
            ``mean_return``) and ``ratings`` (``player``, ``rating``, ``rating_low``,
            ``rating_high``; best first).

    Raises:
        ConfigError: If there are too few players, a player is not found, or they cannot meet.
        CheckpointError: If the weights of a player are missing or damaged.
    """
    from arena.errors import ConfigError

    from ..evaluate.tournament import play
    from ..terminal.progress import PlayProgress
    from .launch import with_arguments

    if isinstance(players, str):
        raise ConfigError(f"players must be a list of players, got {players!r}")
    for name, value, least in (("matches", matches, 1), ("seed", seed, 0)):
        if value < least:
            raise ConfigError(f"{name} must be at least {least}, got {value}")
    try:
        with _as_it_was():
            document, _ = play(
                [str(player) for player in players],
                environment=environment,
                num_matches=matches,
                greedy=greedy,
                seed=seed,
                trust=trust,
                show=lambda what: nullcontext(PlayProgress(lambda text: None)),
            )
    except ConfigError as error:
        error.args = (with_arguments(str(error)),)
        raise
    lists = {name: records_of(document[name]) for name in ("pairs", "ratings")}
    return {**document, **lists}


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Give the caller's process its random numbers and threads back: matches set their own."""
    import torch

    from arena.matches.seeds import generators_kept

    threads = torch.get_num_threads()
    try:
        with generators_kept():
            yield
    finally:
        torch.set_num_threads(threads)
