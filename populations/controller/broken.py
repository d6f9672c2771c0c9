"""Assignments that their environment broke: nobody who played is to blame."""

from __future__ import annotations

from dataclasses import replace

from arena.wire.messages import Train
from populations.controller.state import ControllerState
from populations.controller.transaction import Transaction
from populations.types import AssignmentRow

MAX_BROKEN = 6


def blame_environment(
    state: ControllerState, tx: Transaction, row: AssignmentRow, *, reason: str
) -> None:
    """Count an assignment that its environment broke; many in a row fail the run.

    It is not done again, for the same seeds would break the same way; what comes in its place has
    others.

    Args:
        state: Of the controller.
        tx: Takes what changes.
        row: The assignment.
        reason: What the learner said: the fault, and the lines of the environment's own files.
    """
    tx.put_assignment(replace(row, status="failed", reason=reason))
    state.broken_environments += 1
    if state.broken_environments >= MAX_BROKEN:
        state.fail(
            tx,
            reason=f"the environment broke in {state.broken_environments} assignments in a row; "
            f"the last: {reason}",
        )


def clear_environment(state: ControllerState, row: AssignmentRow) -> None:
    """Note that an assignment ended as it should; one without steps has no environment."""
    if not isinstance(row.message, Train) or row.message.agent_steps:
        state.broken_environments = 0
