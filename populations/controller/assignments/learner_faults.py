"""Blame for a failure: its learner's fault, or the fault of what the learner was given.

A failure is held against its learner first, as a charge, and the assignment is left to another
learner. If it fails there too, the charge is withdrawn: a policy or the environment is to blame.
Learners are told apart by place, so a process that was started again is no other learner. Not
durable: after a resume each failure is first a learner's again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from arena.types import LearnerId, population_of
from arena.wire.messages import Hello, Train
from populations.controller.state.leases import Charge, Learner
from populations.controller.state.state import ControllerState
from populations.records.rows import AssignmentRow

MAX_CHARGES = 2
"""Charges in a row after which a learner is at fault, if others do their work."""

NEVER_BLAMED = frozenset({"stopped", "place"})
"""Kinds of failure that nothing but the learner can be blamed for."""


def place_of(learner_id: LearnerId, hello: Hello, *, slot: int | None) -> str:
    """Return where a learner runs: its slot, else the name of its key, else its host."""
    if slot is not None:
        return slot_place(slot)
    holder, has_key, _ = learner_id.partition(".")
    return holder if has_key else f"host {hello.host}"


def slot_place(slot: int) -> str:
    """Return the place of the processes in a slot."""
    return f"slot {slot}"


def is_charged(
    state: ControllerState,
    learner: Learner,
    row: AssignmentRow,
    *,
    kind: str,
    reason: str,
    now_s: float,
) -> bool:
    """Hold a failure against its learner, unless another learner failed alike or there is none.

    Args:
        state: State of the controller.
        learner: Learner that failed, or was lost at it.
        row: Assignment that failed.
        kind: Kind of the failure, or ``lost``.
        reason: Reason that the learner gave.
        now_s: Controller's clock.

    Returns:
        Whether the failure stays the learner's; else charges for the same are withdrawn.
    """
    failed_at = state.failed_at
    # Closed assignments are dropped here, so the table does not grow with the run.
    for gone in failed_at.keys() - state.tables.assignments.keys():
        del failed_at[gone]
    places = failed_at.setdefault(row.assignment_id, {})
    places[learner.place] = learner
    alike = dict(places)
    if kind == "storage":
        # One disk is everybody's, so what was given does not matter.
        alike |= {
            other.place: other
            for other in state.learners.values()
            if any(charge.kind == kind for charge in other.charges)
        }
    # Where no other learner could try, the assignment would wait for ever.
    is_alone = next(_able_places(state, row, without=learner.place), None) is None
    if kind not in NEVER_BLAMED and (len(alike) > 1 or is_alone):
        # A second place failed alike, so all of them are cleared of it.
        for other in alike.values():
            other.charges = [
                charge
                for charge in other.charges
                if charge.assignment_id != row.assignment_id
                and not (kind == charge.kind == "storage")
            ]
        return False
    learner.charges.append(
        Charge(
            assignment_id=row.assignment_id,
            policies=tuple(trainee.policy for trainee in row.message.trainees)
            if isinstance(row.message, Train)
            else (),
            kind=kind,
            reason=reason,
            at_s=now_s,
        )
    )
    return True


def is_at_fault(state: ControllerState, learner: Learner) -> bool:
    """Return whether a learner is to blame for its failures in a row.

    It is where others do their work meanwhile, or where different policies failed on it.
    """
    charges = learner.charges
    if len(charges) < MAX_CHARGES:
        return False
    # Its own disk or line: whoever else works, a pause may help, and trying at once does not.
    if sum(charge.kind == "place" for charge in charges) >= MAX_CHARGES:
        return True
    # A full disk hits all policies alike, so a storage failure tells nothing about them.
    about = {charge.policies for charge in charges if charge.kind != "storage"}
    # Work that others have ended since the first charge shows that it can be done.
    return len(about) > 1 or any(
        other.place != learner.place and other.settled_s >= charges[0].at_s
        for other in state.learners.values()
    )


def is_left_to_others(state: ControllerState, learner: Learner, row: AssignmentRow) -> bool:
    """Return whether an assignment failed on a learner and another one has not tried it yet."""
    failed_at = state.failed_at.get(row.assignment_id, {})
    return learner.place in failed_at and any(
        place not in failed_at for place in _able_places(state, row, without=learner.place)
    )


def serves(populations: Collection[str], row: AssignmentRow) -> bool:
    """Return whether a learner of some populations (empty: all) may do an assignment.

    Any learner may evaluate, and make initial weights.
    """
    message = row.message
    if not populations or not isinstance(message, Train) or message.agent_steps == 0:
        return True
    return all(population_of(trainee.policy) in populations for trainee in message.trainees)


def _able_places(state: ControllerState, row: AssignmentRow, *, without: str) -> Iterator[str]:
    """Yield places of other learners, there or coming, that may do an assignment."""
    for other in state.learners.values():
        if other.place != without and serves(other.hello.populations, row):
            yield other.place
    for index, slot in enumerate(state.slots):
        place = slot_place(index)
        # A place whose learner was at fault is not waited for, nor one whose processes end, or
        # never say Hello, time after time, or for which there is no machine.
        is_coming = (
            slot.learner is None
            and not slot.is_waiting
            and slot.crashes < MAX_CHARGES
            and place not in state.faults
        )
        if is_coming and place != without and serves(slot.populations, row):
            yield place
