"""Results as rating models take them: merged, and checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from arena.types import Entrant
from populations.core import E, Result

Rated = tuple[str, Entrant]
"""Population and entrant: ``bot:random`` among predators is not ``bot:random`` among prey."""


def merge_results(results: Iterable[Result[E]]) -> tuple[Result[E], ...]:
    """Add up results of the same entrants in the same seats.

    Returns:
        One result for each pair of entrants and seats, in an order that does not depend on the
        order of ``results``; the first seat is the lower one.

    Raises:
        ValueError: If a count is negative or not finite, or an entrant plays itself.
    """
    # repr, because entrants need not be comparable; it is the same in every process.
    merged: dict[tuple[E, E, tuple[int, int]], list[float]] = {}
    for result in results:
        _check(result)
        forward = (result.seats, repr(result.first)) <= (result.seats[::-1], repr(result.second))
        first, second = result.first, result.second
        seats, outcome = result.seats, (result.wins, result.draws, result.losses)
        if not forward:
            first, second, seats, outcome = second, first, seats[::-1], outcome[::-1]
        counts = merged.setdefault((first, second, seats), [0.0, 0.0, 0.0])
        for index, count in enumerate(outcome):
            counts[index] += count
    ordered = sorted(merged, key=lambda key: (repr(key[0]), repr(key[1]), key[2]))
    return tuple(_result(*key, counts=merged[key]) for key in ordered)


def _result(first: E, second: E, seats: tuple[int, int], *, counts: list[float]) -> Result[E]:
    wins, draws, losses = counts
    return Result(first=first, second=second, seats=seats, wins=wins, draws=draws, losses=losses)


def _check(result: Result[E]) -> None:
    counts = (result.wins, result.draws, result.losses)
    if any(not math.isfinite(count) or count < 0.0 for count in counts):
        raise ValueError(f"wins, draws and losses must be finite and at least 0, got {counts!r}")
    if result.first == result.second:
        raise ValueError(f"an entrant cannot play itself, got {result.first!r} twice")


def matches_by_entrant(results: Iterable[Result[E]]) -> Mapping[E, float]:
    """How many matches each entrant has played."""
    matches: dict[E, float] = {}
    for result in results:
        for entrant in (result.first, result.second):
            played = result.wins + result.draws + result.losses
            matches[entrant] = matches.get(entrant, 0.0) + played
    return matches
