"""Quarantine: policies that fail leave the run, and come back by a copy or a lower learning rate.

`populations.controller.evolution.pbt` has a diagram of a policy's life.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from arena.types import PolicyId
from populations.choices import number_of
from populations.config.run_config import RunConfig
from populations.controller.evolution.changes import decision_of, exploit
from populations.controller.evolution.generations import explored_on
from populations.controller.evolution.members import is_reference, standing_weights_of
from populations.controller.evolution.rewind import end_assignments
from populations.controller.indexes.teams import leader_of, team_of
from populations.controller.state.fits import Fits
from populations.controller.state.ledger import Ledger
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import MARKS, Transaction
from populations.hyperparameter_schedules import ScheduledValues
from populations.league.league import League
from populations.records.rows import PolicyRow
from populations.records.tables import Tables

LEARNING_RATE = "learning_rate"
MAX_RESCUES = 3
"""Copies in a row that bring a policy back, without a decision of PBT in between."""


def quarantine(
    state: ControllerState, tx: Transaction, policy_id: PolicyId, *, reason: str
) -> None:
    """Exclude a policy and its teammates from training, ranking, copying and snapshots.

    Their open assignments end. `rescue` may bring them back.
    """
    leader = leader_of(state.league, policy_id)
    state.blame.ledger.note_quarantine(leader.trainee)
    team = team_of(state.league, leader)
    for policy in team:
        end_assignments(state.tables, tx, policy.policy, reason=reason)
        # A pending decision is cancelled, and `pbt.complete` ignores its late answer.
        tx.put(replace(policy, state="quarantined", pending={}))
        tx.add_event("quarantined", policy.policy, reason=reason, checkpoint=policy.checkpoint)
    rescue(state, tx, leader)


def rescue(state: ControllerState, tx: Transaction, leader: PolicyRow) -> None:
    """Try to bring a quarantined team back: by a copy, else once by half the learning rate.

    The donor is the best rated policy that has finished an assignment since the team's failures
    began; the team waits until there is one. The learning rate is halved only if no other policy
    could be a donor at all. After training nothing changes.
    """
    if state.phase.name != "training" or not _has_weights(state.league, leader):
        return
    team = team_of(state.league, leader)
    donors = donors_of(state.settings.config, state.fits, state.blame.ledger, leader)
    # A policy that has finished nothing since may have the same fault, so it cannot be the donor.
    # Among equal ratings the name decides, so that a resumed run chooses the same donor.
    _, donor = max(
        (one for one in donors if state.blame.ledger.has_recovered(one[1], since=leader.policy)),
        default=(0.0, None),
    )
    if not donors and all(row.rescues == 0 and row.checkpoint is not None for row in team):
        _halve(state.settings.scheduled, state.fits, tx, team)
    elif donor is not None and leader.rescues < MAX_RESCUES:
        for row in team:
            tx.put(replace(row, rescues=row.rescues + 1))
        reason = "it was quarantined; the donor is the best rated policy that has trained since"
        explore = not is_reference(state.settings.config, leader)
        team = team_of(state.league, leader)
        exploit(state, tx, team, donor, explore=explore, data={"reason": reason})


def rescue_waiting(state: ControllerState, tx: Transaction) -> None:
    """Try again to bring back each quarantined team."""
    for name in sorted(state.tables.policies.by("inactive").get("quarantined", ())):
        row = state.tables.policies[name]
        if leader_of(state.league, name) is row and not row.pending:
            rescue(state, tx, row)


def _has_weights(league: League, leader: PolicyRow) -> bool:
    """Return whether no policy of a team has lost its checkpoint, which excludes a rescue."""
    checkpoints = league.tables.checkpoints
    kept = (checkpoints.get(mate.checkpoint or "") for mate in team_of(league, leader))
    return all(checkpoint is None or checkpoint.state == "present" for checkpoint in kept)


def _halve(
    scheduled: Mapping[str, ScheduledValues], fits: Fits, tx: Transaction, team: Sequence[PolicyRow]
) -> None:
    """Make a team active again with half its learning rates."""
    for policy in team:
        old = dict(policy.hyperparameters)
        # A user's own algorithm may have no such hyperparameter.
        rate = old.get(LEARNING_RATE)
        new = old if rate is None else {**old, LEARNING_RATE: number_of(rate) / 2}
        # If the learning rate has a schedule, its factor is halved, and so are all later values.
        new, factors = scheduled[policy.population].explored(
            new, old=old, factors=policy.factors, agent_steps=policy.agent_steps
        )
        after = replace(policy, state="active", rescues=1, hyperparameters=new, factors=factors)
        explored_on(fits, tx, after, cause="quarantine")
        tx.add_event("learning_rate_halved", policy.policy, old=dict(old), new=dict(new))


def donors_of(
    config: RunConfig, fits: Fits, ledger: Ledger, policy: PolicyRow
) -> list[tuple[float, PolicyId]]:
    """Return pairs (rating, policy) of the possible donors for a policy.

    They are active, rated, of the same role and do not fail. Empty if PBT never copies.
    """
    if config.pbt_of(policy.population).exploit == "none":
        return []
    ratings, tables = fits.ratings(policy.population), fits.league.tables
    return [
        (interval[0], row.policy)
        for row in tables.policies.by("role")[policy.population, policy.role].values()
        if row.state == "active"
        and row.policy != policy.policy
        and not is_failing(tables, ledger, row.policy)
        and (interval := ratings.interval(standing_weights_of(fits, row))) is not None
    ]


def is_failing(tables: Tables, ledger: Ledger, name: PolicyId) -> bool:
    """Return whether a policy has not finished training since it last failed."""
    return bool(ledger.in_a_row(tables.policies[name].trainee, is_evaluation=False))


def abandon(state: ControllerState, tx: Transaction, policy: PolicyRow, *, reason: str) -> None:
    """Cancel a policy's pending decision, because the checkpoint that it names was lost."""
    was_quarantined = policy.state == "quarantined"
    marks = decision_of(policy.pending).get(MARKS)
    tx.put(replace(policy, pending={}))
    tx.add_decision("exploit_abandoned", policy.policy, reason=reason, marks=marks)
    # The rescue has failed, so the whole team is quarantined again, even teammates that have
    # copied already.
    if was_quarantined:
        for mate in team_of(state.league, policy):
            tx.put(replace(mate, state="quarantined", pending={}))
        rescue(state, tx, leader_of(state.league, policy.policy))
