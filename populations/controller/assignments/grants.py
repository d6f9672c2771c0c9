"""Grants of what learners may publish now: the checkpoints of their open assignments.

Tests: `tests/populations/controller/assignments/test_grants.py`.
"""

from __future__ import annotations

from arena.transfer.terms import Grant, grants_of
from arena.types import AssignmentId, LearnerId
from arena.wire.keys import holder_of
from arena.wire.messages import Train
from populations.controller.assignments.validation import Asked
from populations.controller.state.state import ControllerState

Leases = tuple[tuple[LearnerId, AssignmentId, int], ...]


def open_leases(state: ControllerState) -> Leases:
    """Return learner, assignment and attempt of all that learners hold."""
    return tuple(
        (name, *held.lease) for name, learner in state.learners.items() for held in learner.held
    )


def open_grants(state: ControllerState) -> dict[str, tuple[Grant, ...]]:
    """Return what each learner may publish, by the name of its key."""
    grants: dict[str, tuple[Grant, ...]] = {}
    for name, assignment_id, _ in open_leases(state):
        row = state.tables.assignments.get(assignment_id)
        if row is not None and isinstance(row.message, Train):
            asked = Asked(message=row.message, setup=state.setup, waited_s=0.0, up_s=0.0)
            own = grants_of(row.message, max_agent_steps=asked.max_agent_steps)
            grants[holder_of(name)] = grants.get(holder_of(name), ()) + own
    return grants
