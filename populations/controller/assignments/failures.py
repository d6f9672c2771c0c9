"""Assignments that failed or were lost: given out again, or held against somebody.

A failure is first its learner's (`populations.controller.assignments.learner_faults`); here is
what follows where it is not.
"""

from __future__ import annotations

from dataclasses import replace

from arena.types import PolicyId
from arena.wire.messages import Evaluate, Failed, Train
from populations.controller.assignments.learner_faults import is_charged
from populations.controller.evaluation.pairings import validated_by
from populations.controller.evolution import quarantine
from populations.controller.evolution.resets import without_weights
from populations.controller.opponents.seatings import drop_external_player
from populations.controller.state import storage_pause
from populations.controller.state.leases import Learner, Suspicion
from populations.controller.state.state import ControllerState
from populations.controller.state.teams import leader_of, leaders_of, team_of
from populations.controller.state.transaction import Transaction
from populations.records.rows import AssignmentRow, PolicyRow
from populations.storage.store import newest_last

MAX_FAILURES = 3
MAX_FAILED_EVALUATIONS = 6
MAX_BROKEN = 6


def fail_row(
    state: ControllerState,
    tx: Transaction,
    learner: Learner,
    row: AssignmentRow,
    failed: Failed,
    *,
    damage: str | None = None,
) -> None:
    """Give the assignment out again, or end it where that cannot help.

    Args:
        state: State of the controller.
        tx: Transaction that takes the rows.
        learner: Learner that failed.
        row: Assignment that failed.
        failed: Message of the learner.
        damage: Fault that the controller found in the checkpoint that the message names.
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
    is_known = failed.kind == "storage" and state.pause is not None
    if is_known or (failed.key is not None and storage_pause.is_unlinked(state, failed.key)):
        storage_pause.refuse(state, tx, reason=failed.reason)
        return
    # The controller has seen the damage itself: the same message would fail on every learner.
    if damage is not None and failed.key is not None:
        close(tx, row, damage)
        set_aside(state, tx, failed.key, reason=damage)
        # Weights of another run have nothing to fall back on.
        for trainee in row.message.trainees if isinstance(row.message, Train) else ():
            if trainee.initial_weights is not None and trainee.initial_weights.key == failed.key:
                blame(state, tx, trainee.policy, reason=damage)
        return
    now_s = tx.now.monotonic_s
    # Left to another learner as it is; a second place tells whose fault it was.
    if is_charged(state, learner, row, kind=failed.kind, reason=failed.reason, now_s=now_s):
        return
    # Refused on two learners, or on the only one: it is the disk.
    if failed.kind == "storage":
        storage_pause.refuse(state, tx, reason=failed.reason)
        return
    if failed.kind == "environment":
        blame_environment(state, tx, row, reason=failed.reason)
        return
    if not isinstance(row.message, Train):
        blame_evaluation(state, tx, row, reason=failed.reason)
        return
    # A failure that names a policy is not held against one that learned against it.
    named = [trainee for trainee in row.message.trainees if trainee.policy == failed.policy]
    for leader in leaders_of(state, named or row.message.trainees):
        if failed.kind == "non_finite":
            quarantine.quarantine(state, tx, leader.policy, reason=failed.reason)
        else:
            blame(state, tx, leader.policy, reason=failed.reason)


def lose_row(
    state: ControllerState, tx: Transaction, learner: Learner, row: AssignmentRow, *, reason: str
) -> Suspicion:
    """Take in that a learner was lost while it worked on an assignment, and return the blame."""
    blamed = Suspicion(assignment_id=row.assignment_id, place=learner.place)
    if is_charged(state, learner, row, kind="lost", reason=reason, now_s=tx.now.monotonic_s):
        return blamed
    if not isinstance(row.message, Train):
        blame_evaluation(state, tx, row, reason=reason, is_lost=True)
        return replace(blamed, is_evaluation=True)
    leaders = tuple(leader.policy for leader in leaders_of(state, row.message.trainees))
    for leader in leaders:
        blame(state, tx, leader, reason=reason)
    return replace(blamed, policies=leaders)


def withdraw(state: ControllerState, tx: Transaction, blamed: Suspicion) -> None:
    """Hold against nobody that a learner was lost: it has spoken again, so its line was cut."""
    state.failed_at.get(blamed.assignment_id, {}).pop(blamed.place, None)
    state.failed_evaluations = max(state.failed_evaluations - blamed.is_evaluation, 0)
    for policy_id in blamed.policies:
        policy = state.tables.policies.get(policy_id)
        # Work that was done meanwhile has cleared it already.
        if policy is not None and policy.failures:
            tx.put(replace(policy, failures=policy.failures - 1))


def blame_environment(
    state: ControllerState, tx: Transaction, row: AssignmentRow, *, reason: str
) -> None:
    """Count an assignment that its environment broke; many in a row fail the run."""
    # Not done again: the same seeds would break the same way. The next assignment has others.
    close(tx, row, reason)
    state.broken_environments += 1
    if state.broken_environments >= MAX_BROKEN:
        state.fail(
            tx,
            reason=f"the environment broke in {state.broken_environments} assignments in a row; "
            f"the last: {reason}",
        )


def clear_environment(state: ControllerState, row: AssignmentRow) -> None:
    """Note that an assignment ended as it should."""
    # An assignment without steps makes initial weights and has no environment.
    if not isinstance(row.message, Train) or row.message.agent_steps:
        state.broken_environments = 0


def blame(state: ControllerState, tx: Transaction, policy_id: PolicyId, *, reason: str) -> None:
    """Count a failed or lost assignment against a policy's team; three in a row quarantine it."""
    policy = leader_of(state, policy_id)
    policy = replace(policy, failures=policy.failures + 1)
    tx.put(policy)
    if policy.failures >= MAX_FAILURES:
        text = (
            f"{policy.failures} assignments in a row failed on one checkpoint; the last: {reason}"
        )
        quarantine.quarantine(state, tx, policy.policy, reason=text)


def blame_evaluation(
    state: ControllerState,
    tx: Transaction,
    row: AssignmentRow,
    *,
    reason: str,
    is_lost: bool = False,
) -> None:
    """Count a failed or lost evaluation; many in a row fail the run.

    A newcomer that fails alone against itself is to blame. Else the fault cannot be attributed.
    """
    assert isinstance(row.message, Evaluate), "it is an evaluation"
    validated = list(validated_by(state, iter([row.message])))
    # The first time that a learner is lost, its evaluation is done again all the same: most are
    # lost by no fault of those who play.
    if validated and not (is_lost and state.failed_evaluations == 0):
        close(tx, row, reason)
    state.failed_evaluations += 1
    limit = MAX_FAILED_EVALUATIONS
    # From the first failure on newcomers are validated one at a time, so one is found alone soon.
    if len(validated) == 1:
        _blame_alone(state, tx, validated[0], reason=reason)
        # Every policy may use up its tries before; beyond that no policy can play any more.
        limit = max(limit, 2 * MAX_FAILURES * (len(state.tables.policies) + 1))
    if state.failed_evaluations >= limit:
        number = state.failed_evaluations
        state.fail(tx, reason=f"{number} evaluations in a row failed; the last: {reason}")


def _blame_alone(
    state: ControllerState, tx: Transaction, policy_id: PolicyId, *, reason: str
) -> None:
    """Count a validation that failed; training in between does not make up for it."""
    state.failed_validations[policy_id] += 1
    if state.failed_validations[policy_id] >= MAX_FAILURES:
        del state.failed_validations[policy_id]
        text = f"it cannot play against itself, {MAX_FAILURES} times in a row; the last: {reason}"
        quarantine.quarantine(state, tx, policy_id, reason=text)


def close(tx: Transaction, row: AssignmentRow, reason: str) -> None:
    """End an assignment as failed: it will not be given out again."""
    tx.put_assignment(replace(row, status="failed", reason=reason))


def set_aside(state: ControllerState, tx: Transaction, key: str, *, reason: str) -> None:
    """Take a corrupt checkpoint or ghost out of use; its policy falls back."""
    # The key may name an imported player, a ghost, weights to start from, or a checkpoint.
    drop_external_player(state, tx, key, reason=reason)
    for ghost in list(state.tables.ghosts.values()):
        if ghost.key == key and ghost.is_present:
            tx.put(replace(ghost, corrupt=True))
            tx.add_event("ghost_corrupt", ghost.player, key=key, reason=reason)
    without_weights(state, tx, key, reason=reason)
    row = state.tables.checkpoints.get(key)
    # A second learner may have called it corrupt, too.
    if row is None or row.state == "corrupt":
        return
    tx.put(replace(row, state="corrupt"))
    tx.add_event("checkpoint_corrupt", row.policy, key=key, reason=reason)
    for policy in list(state.tables.policies.values()):
        if policy.checkpoint == key:
            fall_back(state, tx, policy)


def fall_back(state: ControllerState, tx: Transaction, policy: PolicyRow) -> None:
    """Put a policy on its newest older checkpoint that is still there, or quarantine its team."""
    # Not read back here: a damaged one fails its next assignment and is set aside in turn.
    candidates = [
        row
        for row in state.tables.checkpoints.values()
        if row.policy == policy.policy and row.state == "present"
    ]
    if not candidates:
        reason = f"no checkpoint of {policy.policy} is left that verifies"
        # A team is quarantined as one: its members are evaluated only together.
        for mate in team_of(state, policy):
            tx.put(replace(mate, state="quarantined"))
            tx.add_event("quarantined", mate.policy, reason=reason)
        return
    # By steps alone an immigrant's checkpoint is as old as the one that it replaced.
    newest = max(candidates, key=newest_last)
    tx.put(replace(policy, checkpoint=newest.key))
    tx.add_event("fell_back", policy.policy, checkpoint=newest.key, agent_steps=newest.agent_steps)
