"""Assignments that failed or were lost: given out again, or held against somebody.

Whose fault a failure is, the ledger says (`populations.controller.state.ledger`); here is what
follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec import structs

from arena.types import Entrant, WeightsRef, policy_of_trainee
from arena.wire.messages import Evaluate, Failed, Train, named_references
from populations.controller.assignments.jobs import initial_weights
from populations.controller.assignments.placement import able_places
from populations.controller.evaluation.pairings import validated_generation_of
from populations.controller.evolution import quarantine
from populations.controller.evolution.resets import without_weights
from populations.controller.indexes.teams import leaders_of, maker_of
from populations.controller.monitoring import alerts
from populations.controller.opponents import drop_external_player
from populations.controller.state import pauses
from populations.controller.state.leases import Learner
from populations.controller.state.ledger import (
    FINISHED,
    LEARNERS,
    LOST,
    MAX_ALERTED,
    NO_POLICYS,
    NON_FINITE,
    STORAGE,
    Ledger,
    Outcome,
    num_assignments,
)
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.hooks.findings import Finding
from populations.records.rows import AssignmentRow, PolicyRow
from populations.storage.store import newest_last

TRIED_AGAIN = frozenset({LOST, "error"})
"""Kinds of failure after which the only learner gets the same assignment once more."""


def fail_row(
    state: ControllerState,
    tx: Transaction,
    learner: Learner,
    row: AssignmentRow,
    failed: Failed,
    *,
    damage: str | None = None,
) -> bool:
    """Give the assignment out again, or end it where that cannot help.

    Args:
        state: State of the controller.
        tx: Transaction that takes the rows.
        learner: Learner that failed.
        row: Assignment that failed.
        failed: Message of the learner.
        damage: Fault that the controller found in the checkpoint that the message names.

    Returns:
        Whether only another process of the learner can tell if a policy is to blame.
    """
    # A learner that was told to stop has failed nothing.
    if failed.kind != "stopped":
        tx.add_event(
            "assignment_failed",
            str(row.assignment_id),
            attempt=failed.attempt,
            failure=failed.kind,
            reason=failed.reason,
            policy=failed.policy,
        )
    # Known already, and nobody's fault: the disk is full, or the directory of a ghost waits for
    # room. The assignment stays open.
    pause = state.blame.pause
    is_known = failed.kind == STORAGE and pause is not None and pause.is_storage
    if is_known or (failed.key and pauses.is_unlinked(state.tables, pause, failed.key)):
        pauses.refuse(state.blame, tx, reason=failed.reason)
        return False
    # The controller has seen the damage itself: the same message would fail on every learner.
    if damage is not None and failed.key is not None:
        close(tx, row, damage)
        set_aside(state, tx, failed.key, reason=damage)
        # Weights of another run have nothing to fall back on, but for an exploiter that was reset.
        for trainee in row.message.trainees if isinstance(row.message, Train) else ():
            policy = state.tables.policies[trainee.policy]
            start = initial_weights(state.settings, state.tables, policy)
            if start is not None and start.key == failed.key:
                quarantine.quarantine(state, tx, trainee.policy, reason=damage)
        return False
    outcome = _outcome(state, tx, learner, row, failed.kind, failed.reason, failed)
    return _take(state, tx, learner, row, outcome)


def lose_row(
    state: ControllerState,
    tx: Transaction,
    learner: Learner,
    row: AssignmentRow,
    *,
    reason: str,
    unreachable: bool = False,
) -> Outcome:
    """Take in that a learner was lost while it worked on an assignment, and return the outcome.

    Args:
        state: State of the controller.
        tx: Transaction that takes the rows.
        learner: Learner that was lost.
        row: Assignment that it worked on.
        reason: Why.
        unreachable: Whether it may be that only its line was cut.
    """
    outcome = _outcome(state, tx, learner, row, LOST, reason)
    outcome = structs.replace(outcome, is_outside=unreachable and learner.slot is None)
    _take(state, tx, learner, row, outcome)
    return outcome


def _is_charged(state: ControllerState, learner: Learner, row: AssignmentRow, *, kind: str) -> bool:
    """Return whether a failure is held against its learner.

    It is unless another one has failed alike, or no other one can try.

    Args:
        state: State of the controller.
        learner: Learner that failed, or was lost at it.
        row: Assignment that failed.
        kind: Kind of the failure (`Outcome.kind`).
    """
    if kind in LEARNERS:
        return True
    if state.blame.ledger.places_of(row.assignment_id) - {learner.place}:
        return False
    # One disk is everybody's, so what was given does not matter.
    if kind == STORAGE and any(
        one.is_charge and one.kind == STORAGE and one.place != learner.place
        for one in state.blame.ledger.outcomes
    ):
        return False
    # Without another learner that could try, the assignment would wait for ever.
    return next(able_places(state.crew, row, without=learner.place), None) is not None


def finish_row(
    state: ControllerState, tx: Transaction, learner: Learner, row: AssignmentRow
) -> None:
    """Note that an assignment ended as it should, before anything is decided by it."""
    # Its failures and crashes are no longer in a row, and its place is no longer passed over.
    state.crew.clear_faults(learner)
    blame = state.blame
    if blame.pause is not None:
        blame.pause.failed_s.pop(learner.place, None)
    outcome = _outcome(state, tx, learner, row, FINISHED)
    charges = blame.ledger.charges_of(outcome.learner)
    last = charges[-1].reason if charges else ""
    # Initial weights are made without the environment, and show nothing of it.
    if not (isinstance(row.message, Train) and row.message.agent_steps == 0):
        blame.ledger.add(outcome)
        pauses.follow(state.phase, blame, tx)
    for finding in _failing(blame.ledger, last):
        alerts.record(state.measured, tx, finding)


def _outcome(
    state: ControllerState,
    tx: Transaction,
    learner: Learner,
    row: AssignmentRow,
    kind: str,
    reason: str = "",
    failed: Failed | None = None,
) -> Outcome:
    return Outcome(
        assignment_id=row.assignment_id,
        kind=kind,
        is_evaluation=isinstance(row.message, Evaluate),
        suspects=_suspects(state, row, kind=kind, failed=failed),
        place=learner.place,
        learner=learner.hello.learner,
        is_charge=kind != FINISHED and _is_charged(state, learner, row, kind=kind),
        is_outside=learner.slot is None and kind == "place",
        names_weights=failed is not None and failed.key is not None,
        reason=reason,
        at_s=tx.now.monotonic_s,
    )


def _suspects(
    state: ControllerState, row: AssignmentRow, *, kind: str, failed: Failed | None
) -> tuple[Entrant, ...]:
    """Return whose fault a failure may be, with their generations."""
    # A failure that names a policy is not held against one that learned or played against it.
    if failed is not None and failed.key is not None and kind not in NO_POLICYS:
        # A learner may name anything; only what it was given to play counts.
        given = (ref for ref in named_references(row.message) if isinstance(ref, WeightsRef))
        makers = (maker_of(state.league, ref.digest) for ref in given if ref.key == failed.key)
        return tuple(maker for maker in islice(makers, 1) if maker is not None)
    if isinstance(row.message, Train):
        named = None if failed is None else failed.policy
        trainees = [trainee for trainee in row.message.trainees if trainee.policy == named]
        leaders = leaders_of(state.league, trainees or row.message.trainees)
    else:
        # A newcomer that fails against itself is alone in it; else anybody may be to blame. What
        # was seated before a copy says nothing about what replaced it.
        pairings = row.message.pairings
        is_known = len(pairings) == 1 or kind == FINISHED
        found = (validated_generation_of(state.league, pairing) for pairing in pairings if is_known)
        leaders = tuple(leader for leader in found if leader is not None)
    return tuple(one.trainee for one in leaders)


def _take(
    state: ControllerState, tx: Transaction, learner: Learner, row: AssignmentRow, outcome: Outcome
) -> bool:
    """Take a failure into the ledger, and do what follows from it; see `fail_row`."""
    ledger = state.blame.ledger
    ledger.add(outcome)
    needs_process = False
    if not outcome.is_charge:
        # A disk that refuses two learners, or the only one, is to blame itself.
        if outcome.kind == STORAGE:
            pauses.refuse(state.blame, tx, reason=outcome.reason)
            return False
        # The same seeds would fail the same way, and the next assignment has others. What may have
        # been chance, or a learner that is wrong, is tried once more.
        is_first = sum(one.assignment_id == row.assignment_id for one in ledger.outcomes) == 1
        if not (is_first and outcome.kind in TRIED_AGAIN):
            close(tx, row, outcome.reason)
        needs_process = _blame(state, tx, learner, outcome)
    for finding in _failing(ledger, outcome.reason):
        alerts.record(state.measured, tx, finding)
    pauses.follow(state.phase, state.blame, tx)
    return needs_process


def _blame(state: ControllerState, tx: Transaction, learner: Learner, outcome: Outcome) -> bool:
    """Quarantine the policies that a failure follows; see `fail_row` for what is returned."""
    ledger, is_evaluation = state.blame.ledger, outcome.is_evaluation
    needs_process = False
    for name in outcome.suspects if outcome.kind not in NO_POLICYS else ():
        row = ledger.held_against(name, is_evaluation=is_evaluation)
        follows = ledger.follows(name, is_evaluation=is_evaluation)
        policy_id, generation = policy_of_trainee(name)
        # Weights that have replaced others are not blamed for what those did.
        if state.tables.policies[policy_id].generation != generation:
            continue
        if outcome.kind == NON_FINITE:
            quarantine.quarantine(state, tx, policy_id, reason=outcome.reason)
        # Another process of the only learner is to show the same; from elsewhere none can be had.
        elif learner.slot is not None and len({one.learner for one in row}) == 1:
            needs_process |= follows or (
                len(row) >= 2 and ledger.is_alone(name, is_evaluation=is_evaluation)
            )
        elif follows:
            text = (
                f"{num_assignments(row)} {'evaluations' if is_evaluation else 'assignments'} in a "
                f"row failed with it, while others finished; the last: {outcome.reason}"
            )
            quarantine.quarantine(state, tx, policy_id, reason=text)
    return needs_process


def _failing(ledger: Ledger, reason: str) -> Iterator[Finding]:
    """Yield whether assignments fail now and then; nothing between the two limits."""
    failed = sum(ledger.recent)
    if (failed >= MAX_ALERTED and reason) or not failed:
        what = f"{failed} of the last {len(ledger.recent)} assignments failed; the last: {reason}"
        yield Finding("assignments_failing", "", "run", what if failed else "")


def close(tx: Transaction, row: AssignmentRow, reason: str) -> None:
    """End an assignment as failed: it will not be given out again."""
    tx.put(structs.replace(row, status="failed", reason=reason))


def set_aside(state: ControllerState, tx: Transaction, key: str, *, reason: str) -> None:
    """Take a corrupt checkpoint or ghost out of use; its policy falls back."""
    # The key may name an imported player, a ghost, weights to start from, or a checkpoint.
    drop_external_player(state.settings, tx, key, reason=reason)
    for ghost in list(state.tables.ghosts.values()):
        if ghost.key == key and ghost.is_present:
            tx.put(structs.replace(ghost, corrupt=True))
            tx.add_event("ghost_corrupt", ghost.player, key=key, reason=reason)
    without_weights(state, tx, key, reason=reason)
    row = state.tables.checkpoints.get(key)
    # A second learner may have called it corrupt, too.
    if row is None or row.state == "corrupt":
        return
    tx.put(structs.replace(row, state="corrupt"))
    tx.add_event("checkpoint_corrupt", row.policy, key=key, reason=reason)
    for policy in list(state.tables.policies.values()):
        if policy.checkpoint == key:
            fall_back(state, tx, policy)


def fall_back(state: ControllerState, tx: Transaction, policy: PolicyRow) -> None:
    """Put a policy on its newest older checkpoint that is still there, or quarantine its team."""
    # Checkpoints are not read back here: a damaged one fails its next assignment and is set aside
    # in turn.
    candidates = state.tables.checkpoints.by("present").get(policy.policy)
    if not candidates:
        reason = f"no checkpoint of {policy.policy} is left that verifies"
        quarantine.quarantine(state, tx, policy.policy, reason=reason)
        return
    # Agent steps alone do not decide: an immigrant's checkpoint has as many as the one that it
    # replaced.
    newest = max(candidates.values(), key=newest_last)
    tx.put(structs.replace(policy, checkpoint=newest.key))
    tx.add_event("fell_back", policy.policy, checkpoint=newest.key, agent_steps=newest.agent_steps)
