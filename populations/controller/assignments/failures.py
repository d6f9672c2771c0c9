"""Consequences of failed or lost assignments: given out again, or held against a policy.

The ledger finds whose fault a failure is (`populations.controller.state.ledger`); these functions
act on it.
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
"""Kinds of failure after which the same assignment is tried once more with the only learner."""


def fail_row(
    state: ControllerState,
    tx: Transaction,
    learner: Learner,
    row: AssignmentRow,
    failed: Failed,
    *,
    damage: str | None = None,
) -> bool:
    """Record a failure; leave the assignment open for another try, or close it.

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
    # An assignment that a requested stop interrupted has not failed.
    if failed.kind != "stopped":
        tx.add_event(
            "assignment_failed",
            str(row.assignment_id),
            attempt=failed.attempt,
            failure=failed.kind,
            reason=failed.reason,
            policy=failed.policy,
        )
    # If the disk is known to refuse, or a ghost's directory waits for room on it, neither learner
    # nor policy is to blame, and the assignment stays open.
    pause = state.blame.pause
    is_known = failed.kind == STORAGE and pause is not None and pause.is_storage
    if is_known or (failed.key and pauses.is_unlinked(state.tables, pause, failed.key)):
        pauses.refuse(state.blame, tx, reason=failed.reason)
        return False
    # The server has found the damage itself, so the assignment would fail on every learner.
    if damage is not None and failed.key is not None:
        close(tx, row, damage)
        set_aside(state, tx, failed.key, reason=damage)
        # A policy that was to start from damaged imported weights has no older checkpoint. Only an
        # exploiter after a reset has other weights to start from (`set_aside` gave it those).
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
    """Record that a learner was lost while it worked on an assignment, and return the outcome.

    Args:
        state: State of the controller.
        tx: Transaction that takes the rows.
        learner: Learner that was lost.
        row: Assignment that it worked on.
        reason: Reason for which it counts as lost.
        unreachable: Whether only its network connection may be cut.
    """
    outcome = _outcome(state, tx, learner, row, LOST, reason)
    outcome = structs.replace(outcome, is_outside=unreachable and learner.slot is None)
    _take(state, tx, learner, row, outcome)
    return outcome


def _is_charged(state: ControllerState, learner: Learner, row: AssignmentRow, *, kind: str) -> bool:
    """Return whether a failure is held against its learner.

    It is, unless another place has failed alike, or no other place can try the assignment.

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
    # All learners share the run's disk, so failures of it need not be of the same assignment.
    if kind == STORAGE and any(
        one.is_charge and one.kind == STORAGE and one.place != learner.place
        for one in state.blame.ledger.outcomes
    ):
        return False
    # A charge leaves the assignment to another place, and without one it would wait for ever.
    return next(able_places(state.crew, row, without=learner.place), None) is not None


def finish_row(
    state: ControllerState, tx: Transaction, learner: Learner, row: AssignmentRow
) -> None:
    """Record that an assignment finished, before decisions are made by its result."""
    state.crew.clear_faults(learner)
    blame = state.blame
    if blame.pause is not None:
        blame.pause.failed_s.pop(learner.place, None)
    outcome = _outcome(state, tx, learner, row, FINISHED)
    charges = blame.ledger.charges_of(outcome.learner)
    last = charges[-1].reason if charges else ""
    # Making initial weights needs no environment, so it does not show that assignments can finish.
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
    """Return the policies that may be to blame for a failure, with their generations."""
    # A failure that names frozen weights is held only against the policy that made them.
    if failed is not None and failed.key is not None and kind not in NO_POLICYS:
        # The learner's message may name any key; only weights of its assignment count.
        given = (ref for ref in named_references(row.message) if isinstance(ref, WeightsRef))
        makers = (maker_of(state.league, ref.digest) for ref in given if ref.key == failed.key)
        return tuple(maker for maker in islice(makers, 1) if maker is not None)
    if isinstance(row.message, Train):
        named = None if failed is None else failed.policy
        trainees = [trainee for trainee in row.message.trainees if trainee.policy == named]
        leaders = leaders_of(state.league, trainees or row.message.trainees)
    else:
        # A failed evaluation blames a policy only if it plays alone, against itself; with several
        # pairings any player may be to blame. Weights that a copy has replaced do not count.
        pairings = row.message.pairings
        is_known = len(pairings) == 1 or kind == FINISHED
        found = (validated_generation_of(state.league, pairing) for pairing in pairings if is_known)
        leaders = tuple(leader for leader in found if leader is not None)
    return tuple(one.trainee for one in leaders)


def _take(
    state: ControllerState, tx: Transaction, learner: Learner, row: AssignmentRow, outcome: Outcome
) -> bool:
    """Record a failure in the ledger, and act on it; see `fail_row` for what is returned."""
    ledger = state.blame.ledger
    ledger.add(outcome)
    needs_process = False
    if not outcome.is_charge:
        # Two learners, or the only one, were refused by the disk, so the disk is the cause.
        if outcome.kind == STORAGE:
            pauses.refuse(state.blame, tx, reason=outcome.reason)
            return False
        # The assignment is closed, because its seed may make it fail again and the next one has
        # another seed. It is tried once more if chance or a faulty learner may be the cause.
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
        # A policy whose weights were replaced is not blamed for failures of the old ones.
        if state.tables.policies[policy_id].generation != generation:
            continue
        if outcome.kind == NON_FINITE:
            quarantine.quarantine(state, tx, policy_id, reason=outcome.reason)
        # With a single process so far, a second one must fail, too; the run can start one only in
        # a slot of its launcher.
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
    """Yield the begin or end of the alert that assignments fail now and then.

    Yields nothing between the two limits, so that the alert does not flicker.
    """
    failed = sum(ledger.recent)
    if (failed >= MAX_ALERTED and reason) or not failed:
        what = f"{failed} of the last {len(ledger.recent)} assignments failed; the last: {reason}"
        yield Finding("assignments_failing", "", "run", what if failed else "")


def close(tx: Transaction, row: AssignmentRow, reason: str) -> None:
    """Close an assignment as failed, so that it is not given out again."""
    tx.put(structs.replace(row, status="failed", reason=reason))


def set_aside(state: ControllerState, tx: Transaction, key: str, *, reason: str) -> None:
    """Mark a checkpoint or ghost as corrupt; policies at the checkpoint fall back to older ones."""
    # The key may name an imported player, a ghost, weights to start from, or a checkpoint.
    drop_external_player(state.settings, tx, key, reason=reason)
    for ghost in list(state.tables.ghosts.values()):
        if ghost.key == key and ghost.is_present:
            tx.put(structs.replace(ghost, corrupt=True))
            tx.add_event("ghost_corrupt", ghost.player, key=key, reason=reason)
    without_weights(state, tx, key, reason=reason)
    row = state.tables.checkpoints.get(key)
    # A second learner may have reported the same checkpoint.
    if row is None or row.state == "corrupt":
        return
    tx.put(structs.replace(row, state="corrupt"))
    tx.add_event("checkpoint_corrupt", row.policy, key=key, reason=reason)
    for policy in list(state.tables.policies.values()):
        if policy.checkpoint == key:
            fall_back(state, tx, policy)


def fall_back(state: ControllerState, tx: Transaction, policy: PolicyRow) -> None:
    """Put a policy on its newest older checkpoint that is present, or quarantine its team."""
    # The older checkpoint is not verified here: if it is damaged, its next assignment fails, and it
    # is set aside in turn.
    candidates = state.tables.checkpoints.by("present").get(policy.policy)
    if not candidates:
        reason = f"no checkpoint of {policy.policy} is left that verifies"
        quarantine.quarantine(state, tx, policy.policy, reason=reason)
        return
    # Agent steps alone do not order checkpoints: an immigrant's has as many as the one that it
    # replaced.
    newest = max(candidates.values(), key=newest_last)
    tx.put(structs.replace(policy, checkpoint=newest.key))
    tx.add_event("fell_back", policy.policy, checkpoint=newest.key, agent_steps=newest.agent_steps)
