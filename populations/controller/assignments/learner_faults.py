"""Learners at fault: who tries next what failed on one, and when it is sent away.

A failure is held against its learner first, as a charge (`populations.controller.state.ledger`).
Learners are told apart by place, so a process that was started again is no other learner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from arena.types import LearnerId, population_of
from arena.wire.messages import Hello, Train
from populations.controller.state.leases import Learner, slot_place
from populations.controller.state.ledger import OWN_PLACE, STORAGE, place_of_kind
from populations.controller.state.state import ControllerState
from populations.records.rows import AssignmentRow

MAX_CHARGES = 2
"""Charges in a row after which a learner is at fault, if others do their work."""


def place_of(learner_id: LearnerId, hello: Hello, *, slot: int | None) -> str:
    """Return where a learner runs: its slot, else the name of its key, else its host."""
    if slot is not None:
        return slot_place(slot)
    holder, has_key, _ = learner_id.partition(".")
    return holder if has_key else f"host {hello.host}"


def is_charged(state: ControllerState, learner: Learner, row: AssignmentRow, *, kind: str) -> bool:
    """Return whether a failure is held against its learner.

    It is unless another one has failed alike, or no other one can try.

    Args:
        state: State of the controller.
        learner: Learner that failed, or was lost at it.
        row: Assignment that failed.
        kind: Kind of the failure (`Outcome.kind`).
    """
    if place_of_kind(kind).is_learners:
        return True
    if state.ledger.places_of(row.assignment_id) - {learner.place}:
        return False
    # One disk is everybody's, so what was given does not matter.
    if kind == STORAGE and any(
        one.is_charge and one.kind == STORAGE and one.place != learner.place
        for one in state.ledger.outcomes
    ):
        return False
    # Where no other learner could try, the assignment would wait for ever.
    return next(_able_places(state, row, without=learner.place), None) is not None


def is_at_fault(state: ControllerState, learner: Learner) -> bool:
    """Return whether a learner is to blame for its failures in a row.

    It is where others do their work meanwhile, or where different policies failed on it.
    """
    charges = state.ledger.charges_of(learner.hello.learner)
    if len(charges) < MAX_CHARGES:
        return False
    # Its own disk or line: whoever else works, a pause may help, and trying at once does not.
    if sum(charge.kind == OWN_PLACE for charge in charges) >= MAX_CHARGES:
        return True
    # A full disk hits all policies alike, so a storage failure tells nothing about them.
    about = {charge.suspects for charge in charges if charge.kind != STORAGE}
    # Work that others have ended since the first charge shows that it can be done.
    return len(about) > 1 or state.ledger.has_finished_elsewhere(charges[0])


def is_left_to_others(state: ControllerState, learner: Learner, row: AssignmentRow) -> bool:
    """Return whether an assignment failed on a learner and another one has not tried it yet."""
    failed_at = state.ledger.places_of(row.assignment_id)
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
    for place, slot in state.coming():
        if place != without and serves(slot.populations, row):
            yield place
