"""Two policies that learn against each other in one assignment (``matchmaking.rivals: learning``).

Each is of one of two populations, and has the opponents that it would have alone, but for the
latest ones of the other population: those are the other one, which learns as well. Ratings, PBT,
ghosts and quarantine are each one's own.

Tests: `tests/populations/controller/opponents/test_learning_rivals.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set

from arena.types import PolicyId, Seating
from arena.wire.messages import Train
from populations.controller.opponents.seatings import draw_seatings
from populations.controller.state.state import ControllerState
from populations.controller.state.teams import Team, team_of
from populations.controller.state.transaction import Transaction
from populations.records.rows import PolicyRow


def team_with(
    state: ControllerState,
    policy: PolicyRow,
    *,
    held_up: Set[PolicyId],
    max_lead: int,
    may_train: Callable[[str], bool],
) -> Team:
    """Return all that learn in the next assignment of a free policy.

    The rival is the free policy of the other population that has trained least, if neither is far
    ahead: the smaller side trains alone in between, or it would have trained less at the end.

    Args:
        state: State of the controller.
        policy: The policy.
        held_up: Policies that cannot be trained because of a mate.
        max_lead: Agent steps by which a rival may be ahead.
        may_train: Whether a population may be trained.

    Returns:
        The policy and its mates or its rival. Empty: it waits for a rival that trains alone.
    """
    if state.config.matchmaking.rivals == "frozen" or policy.checkpoint is None:
        return team_of(state, policy)
    (other,) = (name for name in state.setup.populations if name != policy.population)
    if not may_train(other):
        return (policy,)
    limit = state.config.stop.agent_steps_per_policy
    rival = state.training_queue.next_of(other, state.tables, held_up=held_up, limit=limit)
    if rival is not None and abs(rival.agent_steps - policy.agent_steps) <= max_lead:
        rows = {row.population: row for row in (policy, rival)}
        return tuple(rows[name] for name in state.setup.populations)
    # Without that, two that have once been parted would train alone by turns from then on.
    if any(
        row.population == other and row.agent_steps <= policy.agent_steps + max_lead
        for row in _training_alone(state)
    ):
        return ()
    return (policy,)


def _training_alone(state: ControllerState) -> list[PolicyRow]:
    """Return the policies that are the only trainees of open assignments."""
    return [
        state.tables.policies[row.message.trainees[0].policy]
        for row in state.tables.assignments.values()
        if isinstance(row.message, Train) and len(row.message.trainees) == 1
    ]


def seatings(state: ControllerState, tx: Transaction, team: Team) -> tuple[Seating, ...]:
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
