"""Two policies that learn against each other in one assignment (``matchmaking.rivals: learning``).

Each is of one of two populations, and has the opponents that it would have alone, but for the
latest ones of the other population: those are the other one, which learns as well. Ratings, PBT,
ghosts and quarantine are each one's own. `populations.controller.assignments.next_team` pairs them.

Tests: `tests/populations/controller/opponents/test_learning_rivals.py`.
"""

from __future__ import annotations

from collections import Counter

from arena.types import Seating
from populations.controller.opponents.seatings import draw_seatings
from populations.controller.state.state import ControllerState
from populations.controller.state.teams import Team
from populations.controller.state.transaction import Transaction


def team_seatings(state: ControllerState, tx: Transaction, team: Team) -> tuple[Seating, ...]:
    """Draw the seatings of all that learn in an assignment.

    A seating in which both rivals learn is one of the opponents of each, and is there once for
    both.
    """
    if len(team) == 1 or state.is_cooperation:
        return draw_seatings(state, tx, team[0])
    first, second = team
    # |: the larger number of each seating, so each rival has all that were drawn for it.
    drawn = Counter(draw_seatings(state, tx, first, rival=second))
    drawn |= Counter(draw_seatings(state, tx, second, rival=first))
    return tuple(drawn.elements())
