"""Openings: first decisions of the seats in evaluation matches, and the results of these matches.

A seat's first decision is that of its agent that decides first. An action of choices is one number:
the index of a Discrete from 0, or the index of a combination of several choices, the last choice
counting fastest. An action with numbers (a Box) has no such index and is not counted. Torch-free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from arena.matches.pair_scores import ROUNDING, num_scored, points
from arena.types import SeatOpenings, Tally

MAX_ACTIONS = 32
"""Actions of a seat with a count of their own in a tally: the most frequent ones."""

MAX_PER_MESSAGE = 4096
"""Actions with a count of their own in all tallies of a message, which bounds its size."""

MAX_CODES = 2**31
"""Largest number of combinations of choices with an index."""

NOT_COUNTED = SeatOpenings()
"""Openings of a seat without a decision, or whose actions have no index."""


def radices(branches: Sequence[int], *, has_numbers: bool) -> tuple[int, ...] | None:
    """Return the place value of each choice in an action's index; None: it has no index.

    Args:
        branches: Number of choices of each category.
        has_numbers: Whether the action also has numbers (a Box).
    """
    if has_numbers or not branches or math.prod(branches) > MAX_CODES:
        return None
    return tuple(math.prod(branches[place + 1 :]) for place in range(len(branches)))


def choices_of(code: int, branches: Sequence[int]) -> tuple[int, ...]:
    """Return the choices of an action's index."""
    places = radices(branches, has_numbers=False) or ()
    return tuple(code // place % number for place, number in zip(places, branches, strict=True))


def most_played(openings: Iterable[tuple[int, int, float]], *, most: int) -> SeatOpenings:
    """Make the openings of a seat from (action, matches, points), the most frequent first.

    Args:
        openings: One entry per action.
        most: Number of actions that are kept.
    """
    # Among equal counts the lower action comes first, so that equal matches give equal tallies.
    kept = sorted(openings, key=lambda one: (-one[1], one[0]))[:most]
    if not kept:
        return NOT_COUNTED
    actions, matches, won = zip(*kept, strict=True)
    return SeatOpenings(actions=actions, matches=matches, points=won)


def added(one: Tally, other: Tally) -> tuple[SeatOpenings, ...]:
    """Return the summed openings of two tallies of the same entrants; empty if one has none."""
    if not one.openings or not other.openings:
        return ()
    return tuple(
        _sum(*both, most=MAX_ACTIONS) for both in zip(one.openings, other.openings, strict=True)
    )


def _sum(one: SeatOpenings, other: SeatOpenings, *, most: int) -> SeatOpenings:
    sums: dict[int, tuple[int, float]] = {}
    for seat in (one, other):
        for action, matches, won in entries(seat):
            before = sums.get(action, (0, 0.0))
            sums[action] = (before[0] + matches, before[1] + won)
    return most_played(((action, *both) for action, both in sums.items()), most=most)


def entries(seat: SeatOpenings) -> Iterable[tuple[int, int, float]]:
    """Return (action, matches, points) of each action with a count of its own."""
    return zip(seat.actions, seat.matches, seat.points, strict=True)


def bounded(tallies: Sequence[Tally], *, most: int = MAX_PER_MESSAGE) -> tuple[Tally, ...]:
    """Keep fewer actions of each seat, or none, so that all tallies have at most ``most``."""
    num_seats = sum(len(tally.openings) for tally in tallies)
    if sum(len(seat.actions) for tally in tallies for seat in tally.openings) <= most:
        return tuple(tallies)
    return tuple(_shortened(tally, most=most // num_seats) for tally in tallies)


def _shortened(tally: Tally, *, most: int) -> Tally:
    kept = tuple(most_played(entries(seat), most=most) for seat in tally.openings)
    return replace(tally, openings=kept if most else ())


def seat_points(tally: Tally, seat: int) -> float | None:
    """Return the points of a seat: the sum over matches of its mean score against its rivals.

    Return None for a seat without rivals.
    """
    own = [
        points(pair) if pair.first == seat else num_scored(pair) - points(pair)
        for pair in tally.pairs
        if seat in (pair.first, pair.second)
    ]
    return math.fsum(own) / len(own) if own else None


def openings_problem(tally: Tally) -> str | None:
    """Return the reason why a tally's openings contradict its matches; None if they do not."""
    if tally.openings and len(tally.openings) != len(tally.entrants):
        return f"openings of {len(tally.openings)} seats, {len(tally.entrants)} entrants"
    for index, seat in enumerate(tally.openings):
        problem = _seat_problem(seat, matches=tally.matches, won=seat_points(tally, index) or 0.0)
        if problem is not None:
            return f"openings of seat {index}: {problem}"
    return None


def _seat_problem(seat: SeatOpenings, *, matches: int, won: float) -> str | None:
    number = len(seat.actions)
    if not number == len(seat.matches) == len(seat.points) == len(set(seat.actions)):
        return "each action needs a count and points, once"
    if number > MAX_ACTIONS:
        return f"{number} actions, {MAX_ACTIONS} at most"
    if any(not 0 <= action < MAX_CODES for action in seat.actions):
        return "an action has no such index"
    if any(count < 1 for count in seat.matches) or sum(seat.matches) > matches:
        return f"counts {seat.matches} of {matches} matches"
    slack = ROUNDING * matches
    for count, gained in zip(seat.matches, seat.points, strict=True):
        if not -slack <= gained <= count + slack:  # This is false for NaN, too.
            return f"{gained:g} points in {count} matches"
    # Points of all other actions are between 0 and the number of their matches.
    rest = won - sum(seat.points)
    if not -slack <= rest <= matches - sum(seat.matches) + slack:
        return f"{sum(seat.points):g} points of the actions, {won:g} of the seat"
    return None
