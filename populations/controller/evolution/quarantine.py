"""Quarantine: a policy that broke is taken out, and brought back if there is a way.

`populations.controller.evolution.pbt` draws the life of a policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from arena.types import PolicyId, trainee_entrant
from arena.wire.messages import Train
from populations.controller.evolution.changes import decision_of, exploit
from populations.controller.evolution.generations import explored_on
from populations.controller.evolution.members import is_reference, standing_weights
from populations.controller.indexes.pbt_decisions import MARKS
from populations.controller.state.state import ControllerState
from populations.controller.state.teams import leader_of, team_of
from populations.controller.state.transaction import Transaction
from populations.records.rows import PolicyRow

LEARNING_RATE = "learning_rate"
MAX_RESCUES = 3
"""Copies in a row that bring a policy back, without a decision of PBT in between."""


def quarantine(
    state: ControllerState, tx: Transaction, policy_id: PolicyId, *, reason: str
) -> None:
    """Take a policy and its mates out of training, ranking, copying and snapshots.

    Their open assignments end. With PBT they then exploit the best rated policy, once that has
    finished an assignment since their failures began; without a donor they go on once with half
    their learning rate, and stay out the next time.
    """
    leader = leader_of(state, policy_id)
    state.ledger.note_quarantine(trainee_entrant(leader.policy, generation=leader.generation))
    team = team_of(state, leader)
    names = {row.policy for row in team}
    for row in list(state.tables.assignments.values()):
        message = row.message
        if isinstance(message, Train) and any(t.policy in names for t in message.trainees):
            # Closed: a late result finds no open assignment and changes nothing.
            tx.put_assignment(replace(row, status="failed", reason=reason))
    for policy in team:
        # A decision that waited is given up; `pbt.complete` ignores its answer.
        tx.put(replace(policy, state="quarantined", pending={}))
        tx.add_event("quarantined", policy.policy, reason=reason, checkpoint=policy.checkpoint)
    rescue(state, tx, leader)


def rescue(state: ControllerState, tx: Transaction, leader: PolicyRow) -> None:
    """Try to bring a quarantined team back: by a copy, else once by half the learning rate."""
    team = team_of(state, leader)
    donor = _best_donor(state, leader)
    if donor is None:
        if all(row.rescues == 0 and row.checkpoint is not None for row in team):
            _halve(state, tx, team)
        return
    # A donor that has not finished since may suffer from the same, and then a copy would not help.
    if leader.rescues < MAX_RESCUES and state.ledger.has_recovered(donor, since=leader.policy):
        for row in team:
            tx.put(replace(row, rescues=row.rescues + 1))
        reason = "it was quarantined; the donor is the best rated policy"
        explore = not is_reference(state, leader)
        exploit(state, tx, team_of(state, leader), donor, explore=explore, data={"reason": reason})


def rescue_waiting(state: ControllerState, tx: Transaction) -> None:
    """Bring back the quarantined teams whose donor has finished an assignment meanwhile."""
    # Sorted, for a set has no order.
    for name in sorted(state.quarantined):
        row = state.tables.policies[name]
        is_lead = leader_of(state, name) is row
        if is_lead and not row.pending and _best_donor(state, row) and _has_weights(state, row):
            rescue(state, tx, row)


def _has_weights(state: ControllerState, leader: PolicyRow) -> bool:
    """Return whether nobody in a team has lost all checkpoints, which no copy makes good."""
    kept = (state.tables.checkpoints.get(mate.checkpoint or "") for mate in team_of(state, leader))
    return all(checkpoint is None or checkpoint.state == "present" for checkpoint in kept)


def _halve(state: ControllerState, tx: Transaction, team: Sequence[PolicyRow]) -> None:
    """Let a team go on with half its learning rates."""
    for policy in team:
        old = dict(policy.hyperparameters)
        # A user's own algorithm may have no such hyperparameter.
        new = {**old, LEARNING_RATE: old[LEARNING_RATE] / 2} if LEARNING_RATE in old else old
        # Of a schedule the factor is halved, and with it all that is to come.
        new, factors = state.scheduled[policy.population].explored(
            new, old=old, factors=policy.factors, agent_steps=policy.agent_steps
        )
        after = replace(policy, state="active", rescues=1, hyperparameters=new, factors=factors)
        explored_on(state, tx, after, cause="quarantine")
        tx.add_event("learning_rate_halved", policy.policy, old=dict(old), new=dict(new))


def _best_donor(state: ControllerState, policy: PolicyRow) -> PolicyId | None:
    """Return the best rated active policy of the same role that does not fail itself.

    None where there is none, or PBT does not copy at all.
    """
    if state.pbt(policy.population).exploit == "none":
        return None
    ratings = state.ratings(policy.population)
    rated = [
        (interval[0], name)
        for name, digest in standing_weights(state, policy.population).items()
        if name != policy.policy
        and state.tables.policies[name].role == policy.role
        and not is_failing(state, name)
        and (interval := ratings.interval(digest)) is not None
    ]
    # Equal ratings are told apart by name, so a resumed run finds the same.
    return max(rated)[1] if rated else None


def is_failing(state: ControllerState, name: PolicyId) -> bool:
    """Return whether a policy has not finished training since it last failed."""
    entrant = trainee_entrant(name, generation=state.tables.policies[name].generation)
    return bool(state.ledger.in_a_row(entrant, is_evaluation=False))


def abandon(state: ControllerState, tx: Transaction, policy: PolicyRow, *, reason: str) -> None:
    """Give up a decision that waited: what it was about is gone."""
    was_quarantined = policy.state == "quarantined"
    marks = decision_of(policy.pending).get(MARKS)
    tx.put(replace(policy, pending={}))
    tx.add_event("exploit_abandoned", policy.policy, reason=reason, marks=marks)
    # The rescue has failed: the team is out again as one, whatever mates have copied already.
    if was_quarantined:
        for mate in team_of(state, policy):
            tx.put(replace(mate, state="quarantined", pending={}))
        rescue(state, tx, leader_of(state, policy.policy))
