"""Quarantine: a policy that broke is taken out, and brought back if there is a way.

`populations.controller.evolution.pbt` draws the life of a policy.
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
    """Take a policy and its mates out of training, ranking, copying and snapshots.

    Their open assignments end. How they come back is said by `rescue`.
    """
    leader = leader_of(state.league, policy_id)
    state.blame.ledger.note_quarantine(leader.trainee)
    team = team_of(state.league, leader)
    for policy in team:
        end_assignments(state.tables, tx, policy.policy, reason=reason)
        # A decision that waited is given up; `pbt.complete` ignores its answer.
        tx.put(replace(policy, state="quarantined", pending={}))
        tx.add_event("quarantined", policy.policy, reason=reason, checkpoint=policy.checkpoint)
    rescue(state, tx, leader)


def rescue(state: ControllerState, tx: Transaction, leader: PolicyRow) -> None:
    """Try to bring a quarantined team back: by a copy, else once by half the learning rate.

    It copies the best rated policy of those that have finished an assignment since its failures
    began, and waits for one where there is none. Only where nobody can be a donor the rate is
    halved. In the final matches nobody changes.
    """
    if state.phase.name != "training" or not _has_weights(state.league, leader):
        return
    team = team_of(state.league, leader)
    donors = donors_of(state.settings.config, state.fits, state.blame.ledger, leader)
    # One that has not finished since may suffer from the same, and then a copy would not help.
    # Equal ratings are told apart by name, so a resumed run finds the same.
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
    """Bring back the quarantined teams for which there is a way by now."""
    for name in sorted(state.tables.policies.by("inactive").get("quarantined", ())):
        row = state.tables.policies[name]
        if leader_of(state.league, name) is row and not row.pending:
            rescue(state, tx, row)


def _has_weights(league: League, leader: PolicyRow) -> bool:
    """Return whether nobody in a team has lost all checkpoints, which no copy makes good."""
    checkpoints = league.tables.checkpoints
    kept = (checkpoints.get(mate.checkpoint or "") for mate in team_of(league, leader))
    return all(checkpoint is None or checkpoint.state == "present" for checkpoint in kept)


def _halve(
    scheduled: Mapping[str, ScheduledValues], fits: Fits, tx: Transaction, team: Sequence[PolicyRow]
) -> None:
    """Let a team go on with half its learning rates."""
    for policy in team:
        old = dict(policy.hyperparameters)
        # A user's own algorithm may have no such hyperparameter.
        rate = old.get(LEARNING_RATE)
        new = old if rate is None else {**old, LEARNING_RATE: number_of(rate) / 2}
        # A scheduled learning rate has its factor halved, and with it all that is to come.
        new, factors = scheduled[policy.population].explored(
            new, old=old, factors=policy.factors, agent_steps=policy.agent_steps
        )
        after = replace(policy, state="active", rescues=1, hyperparameters=new, factors=factors)
        explored_on(fits, tx, after, cause="quarantine")
        tx.add_event("learning_rate_halved", policy.policy, old=dict(old), new=dict(new))


def donors_of(
    config: RunConfig, fits: Fits, ledger: Ledger, policy: PolicyRow
) -> list[tuple[float, PolicyId]]:
    """Return the rated active policies of the same role that do not fail themselves, with ratings.

    None where PBT does not copy at all.
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
    """Give up a decision that waited: what it was about is gone."""
    was_quarantined = policy.state == "quarantined"
    marks = decision_of(policy.pending).get(MARKS)
    tx.put(replace(policy, pending={}))
    tx.add_decision("exploit_abandoned", policy.policy, reason=reason, marks=marks)
    # The rescue has failed: the team is out again as one, whatever mates have copied already.
    if was_quarantined:
        for mate in team_of(state.league, policy):
            tx.put(replace(mate, state="quarantined", pending={}))
        rescue(state, tx, leader_of(state.league, policy.policy))
