"""PBT in the run: when a policy is ready for a decision, and how the decision is carried out.

The diagram is the life of a policy. ``PolicyRow.state`` is ``active``, ``quarantined`` or
``retired`` (`halving`); the rest follows from ``checkpoint``, open assignments and ``pending``:

                 first                    leased
    starting ---checkpoint---> free ------------------> training
       ^                       ^ |  <---- Finished ----    |
       |                       | |                         |
       +--- reset to a ghost --+ | ready: new              | it fails alone,
       |    or an immigrant      | hyperparameters         | not finite
       |                       ^ v needed                  v
       |                     pending <--- a donor --- quarantined
       |            explored:  |                        |     no donor, once:
       |            free, generation + 1                +---> free, half the
       |            given up: free, as before                 learning rate

A change of weights or hyperparameters begins a generation (`changes`), and no policy with an open
lease is changed. A decision that needs new hyperparameters waits for them in ``PolicyRow.pending``
and is not trained meanwhile. Quarantine is in `quarantine`, resets and immigrants are in `resets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import get_args

import numpy as np
from msgspec.structs import replace

from arena.types import PolicyId
from arena.users_code import encodable, guarded
from populations.config.run_config import RunConfig
from populations.controller.evolution import halving
from populations.controller.evolution.changes import commit, exploit, explore_own
from populations.controller.evolution.generations import explored_on
from populations.controller.evolution.members import common_scores, members_of, rating_difference
from populations.controller.evolution.quarantine import abandon, is_failing
from populations.controller.evolution.resets import try_immigrate
from populations.controller.indexes.teams import leader_of, team_of
from populations.controller.state.events import HyperparametersExplored
from populations.controller.state.fits import Fits
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import MARKS, Transaction
from populations.decisions import Decision, ExploitDonor, ExploreOwn, NotReady
from populations.pbt.scheduler import num_marks
from populations.records.rows import Json, PolicyRow, PostponedRow
from populations.records.tables import Tables


def evolve(state: ControllerState, tx: Transaction, policy: PolicyRow) -> None:
    """Let PBT decide about a policy and its teammates if the policy's own clock is due.

    If too little is known to decide, the clock stays due: the policy trains on, and the rule is
    called again when its next assignment ends. After training nothing is decided any more.
    """
    # The row is read again, because a ghost made by this event may have reset the policy.
    policy = state.tables.policies[policy.policy]
    team = team_of(state.league, policy)
    # Final matches must rate unchanged policies, and a pending decision is already made.
    if state.phase.name == "evaluating" or any(row.pending for row in team):
        return
    # A policy with a recorded schedule (a replay) follows it instead of PBT.
    if any(state.settings.config.populations[row.population].schedule for row in team):
        for row in team:
            _follow_schedule(state.settings.config, state.fits, tx, row)
        return
    pbt = state.settings.config.pbt_of(policy.population)
    marks = num_marks(policy, pbt)
    if not marks or pbt.exploit == "none":
        return
    decision = _decide(state, tx, policy, marks=marks)
    # The clock stays due, so the rule is called again after the next assignment or fit.
    if isinstance(decision, NotReady):
        _postpone(state.tables, tx, team, decision)
        return
    for row in team:
        tx.put(replace(row, ready_at=row.agent_steps, rescues=0))
    # Without a decision the rule has failed, and the policy waits for its next mark.
    if decision is None:
        return
    places = halving.num_places(state.settings.config, state.crew, policy.population)
    team, data = team_of(state.league, policy), {**_numbers_of(decision), MARKS: marks}
    if halving.num_active(state.settings.config, state.tables, policy.population) > places:
        halving.halve(state.settings.config, tx, team, decision, places=places, data=data)
    else:
        _carry_out(state, tx, team, decision, data=data)


def _follow_schedule(config: RunConfig, fits: Fits, tx: Transaction, policy: PolicyRow) -> None:
    """Change a policy's hyperparameters if it has reached a mark of its recorded schedule.

    If it has passed several marks in one assignment, the last one applies.
    """
    schedule = config.populations[policy.population].schedule
    reached = [
        (index, entry)
        for index, entry in enumerate(schedule)
        # Each applied mark began a generation, so marks up to the generation's begin are done.
        if policy.generation_at < entry.agent_steps <= policy.agent_steps
    ]
    if not reached:
        return
    index, entry = reached[-1]
    new = replace(policy, hyperparameters=dict(entry.hyperparameters))
    after = explored_on(fits, tx, new, cause="replay")
    tx.add_event(
        "replayed",
        policy.policy,
        entry=index,
        num_entries=len(schedule),
        num_skipped=len(reached) - 1,
        mark=entry.agent_steps,
        agent_steps=policy.agent_steps,
        generation=after.generation,
        old=dict(policy.hyperparameters),
        new=dict(entry.hyperparameters),
    )


def evolve_waiting(state: ControllerState, tx: Transaction) -> None:
    """Decide about policies that waited for ratings and are not training now."""
    # A policy with an open lease must not change, because its result is of its present weights.
    in_training = set(state.tables.assignments.by("trained"))
    leaders = {leader_of(state.league, name).policy: None for name in state.tables.postponed}
    for name in leaders:
        team = team_of(state.league, state.tables.policies[name])
        if all(row.state == "active" and row.policy not in in_training for row in team):
            evolve(state, tx, team[0])


def _postpone(
    tables: Tables, tx: Transaction, team: Sequence[PolicyRow], decision: NotReady
) -> None:
    """Record why a due decision cannot be made, with an event for each new reason."""
    # A user's own rule may return any object as the reason.
    reason = encodable(str(decision.reason))
    for row in team:
        waiting = PostponedRow(policy=row.policy, reason=reason)
        if tables.postponed.get(row.policy) != waiting:
            tx.put(waiting)
            # The agent steps come last, as evidence of a user's own rule may use the same name.
            numbers = {**_numbers_of(decision), "agent_steps": row.agent_steps}
            tx.add_event("decision_postponed", row.policy, **numbers)


def _decide(
    state: ControllerState, tx: Transaction, policy: PolicyRow, *, marks: int
) -> Decision | None:
    """Call the population's rule; if it fails, record an event and return None."""
    population = policy.population
    # The draw comes first, so that a failing rule uses up a decision number as well.
    rng = tx.draw()

    def decide() -> Decision:
        decision: Decision = state.settings.exploit[population].decide(
            policy.policy,
            members=members_of(state.settings.config, state.indexes, population, role=policy.role),
            difference=rating_difference(state.fits, population),
            common=common_scores(state.fits, population),
            rng=rng,
        )
        if not any(isinstance(decision, kind) for kind in get_args(Decision)):
            raise TypeError(f"decide must return a Decision, got {decision!r}")
        if isinstance(decision, ExploitDonor):
            _check_donor(state.tables, policy, decision.donor)
            # A copy of a failing donor would probably fail, too.
            if is_failing(state.tables, state.blame.ledger, decision.donor):
                reason = f"{decision.donor} has not finished an assignment since it failed"
                decision = NotReady(reason=reason, evidence=decision.evidence)
        # Evidence is read here already, so that invalid evidence counts as a failure of the rule.
        _numbers_of(decision)
        return decision

    def fail(problem: str) -> None:
        tx.add_decision("exploit_failed", policy.policy, reason=problem, marks=marks)

    return guarded(decide, fail, what=f"deciding about {policy.policy}")


def _check_donor(tables: Tables, policy: PolicyRow, donor_id: PolicyId) -> None:
    donor = tables.policies.get(donor_id)
    if donor is None or donor.policy == policy.policy or donor.population != policy.population:
        raise ValueError(f"a donor must be another policy of {policy.population}, got {donor_id!r}")
    if donor.role != policy.role:
        raise ValueError(f"a donor must be a {policy.role} too, {donor_id!r} is a {donor.role}")
    if donor.state != "active" or donor.checkpoint is None:
        raise ValueError(f"a donor must be active and have a checkpoint, {donor_id!r} is not")


def _carry_out(
    state: ControllerState,
    tx: Transaction,
    team: Sequence[PolicyRow],
    decision: Decision,
    *,
    data: Mapping[str, Json],
) -> None:
    """Apply the decision about a team's leader to each policy of the team."""
    if isinstance(decision, ExploitDonor):
        # With some probability an immigrant replaces the policy instead of a copy.
        if not try_immigrate(state, tx, team, data=data):
            exploit(state, tx, team, decision.donor, explore=decision.explore, data=data)
        return
    for policy in team:
        pbt = state.settings.config.pbt_of(policy.population)
        if isinstance(decision, ExploreOwn) and pbt.explore != "none":
            explore_own(tx, policy, data=data)
        else:
            tx.add_decision("kept", policy.policy, **data)


def _numbers_of(decision: Decision) -> dict[str, Json]:
    """Return the fields of a decision and of its evidence, merged, as plain data."""
    numbers = {name: _plain(value) for name, value in asdict(decision).items()}
    evidence = numbers.pop("evidence")
    if not isinstance(evidence, Mapping):
        raise TypeError(f"a decision's evidence must be an Evidence, got {decision.evidence!r}")
    return {**numbers, **evidence}


def _plain(value: object) -> Json:
    """Return a value in the form in which the journal, as JSON, gives it back.

    Objects without a form in JSON become null.
    """
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    # JSON has no NaN and no infinity.
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str) else None


def complete(state: ControllerState, tx: Transaction, event: HyperparametersExplored) -> None:
    """Carry out the pending decision that waited for these hyperparameters."""
    state.indexes.members.exploring.discard(event.policy)
    policy = state.tables.policies[event.policy]
    # A quarantine may have cancelled the decision while the rule worked.
    if not policy.pending:
        return
    if event.problem is not None:
        tx.add_event("explore_failed", policy.policy, reason=event.problem, instead="perturb")
    # A decision to explore the policy's own hyperparameters names no checkpoint.
    checkpoint = state.tables.checkpoints.get(str(policy.pending.get("checkpoint")))
    # Retention keeps a pending decision's checkpoint, so it can only be missing through damage.
    if checkpoint is None or checkpoint.state == "present":
        commit(state.settings.scheduled, state.fits, tx, policy, event.exploration)
    else:
        donor = policy.pending["donor"]
        abandon(state, tx, policy, reason=f"{checkpoint.key} of {donor} is {checkpoint.state}")
