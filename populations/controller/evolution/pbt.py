"""PBT in the run: when a policy is ready, what it copies or changes, and who is quarantined.

A decision that needs new hyperparameters waits for them in ``PolicyRow.pending``
(`populations.controller.evolution.exploration`); it is committed, with its event, when they are
there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import get_args

import numpy as np

from arena.types import PolicyId, trainee_entrant
from arena.users_code import named, own_lines
from arena.wire.messages import Train
from populations.controller.evolution import schedules
from populations.controller.evolution.exploration import numbers
from populations.controller.evolution.generations import begin_generation, explored_on
from populations.controller.evolution.immigration import try_immigrate
from populations.controller.evolution.members import (
    common_scores,
    is_reference,
    members_of,
    rating_difference,
    standing_weights,
)
from populations.controller.indexes.pbt_decisions import MARKS, POSTPONED, marks_of
from populations.controller.state.events import HyperparametersExplored
from populations.controller.state.state import ControllerState
from populations.controller.state.teams import leader_of, team_of
from populations.controller.state.transaction import Transaction
from populations.core import Exploration
from populations.decisions import Decision, ExploitDonor, ExploreOwn, NotReady
from populations.records.rows import Json, PolicyRow

logger = logging.getLogger(__name__)

LEARNING_RATE = "learning_rate"


def evolve(state: ControllerState, tx: Transaction, policy: PolicyRow) -> None:
    """Let PBT decide about a policy and its mates if its own clock says that it is ready.

    A policy that is ready but about which too little is known stays ready, trains on, and is asked
    about again when its next assignment ends. In the final matches nobody changes any more.
    """
    policy = state.tables.policies[policy.policy]
    team = team_of(state, policy)
    if state.phase == "evaluating" or any(row.pending for row in team):
        return
    if any(state.config.populations[row.population].schedule for row in team):
        for row in team:
            schedules.follow(state, tx, row)
        return
    pbt = state.pbt(policy.population)
    marks = marks_of(policy, pbt)
    if not marks or pbt.exploit == "none":
        return
    decision = _decide(state, tx, policy, marks=marks)
    if isinstance(decision, NotReady):
        _postpone(state, tx, team, decision)
        return
    for row in team:
        tx.put(replace(row, ready_at=row.agent_steps))
    if decision is not None:
        _carry_out(state, tx, team_of(state, policy), decision, marks=marks)


def evolve_waiting(state: ControllerState, tx: Transaction) -> None:
    """Decide about policies that waited for ratings and are not training now."""
    in_training = {
        trainee.policy
        for row in state.tables.assignments.values()
        if isinstance(row.message, Train)
        for trainee in row.message.trainees
    }
    leaders = {leader_of(state, name).policy: None for name in state.pbt_decisions.waiting}
    for name in leaders:
        team = team_of(state, state.tables.policies[name])
        if all(row.state == "active" and row.policy not in in_training for row in team):
            evolve(state, tx, team[0])


def _postpone(
    state: ControllerState, tx: Transaction, team: Sequence[PolicyRow], decision: NotReady
) -> None:
    """Say why a decision that is due cannot be made, once for each reason."""
    for row in team:
        if state.pbt_decisions.waiting.get(row.policy) != decision.reason:
            tx.add_event(
                POSTPONED, row.policy, agent_steps=row.agent_steps, **_numbers_of(decision)
            )


def _decide(
    state: ControllerState, tx: Transaction, policy: PolicyRow, *, marks: int
) -> Decision | None:
    """What the population's rule says; None, and an event, if the rule fails."""
    population = policy.population
    rng = state.draw(tx)
    try:
        decision: Decision = state.exploit[population].decide(
            policy.policy,
            members=members_of(state, population, role=policy.role),
            difference=rating_difference(state, population),
            common=common_scores(state, population),
            rng=rng,
        )
        if not any(isinstance(decision, kind) for kind in get_args(Decision)):
            raise TypeError(f"decide must return a Decision, got {decision!r}")
        if isinstance(decision, ExploitDonor):
            _check_donor(state, policy, decision.donor)
    except Exception as error:  # the rule may be a user's own
        logger.exception("deciding about %s failed", policy.policy)
        reason = f"{named(error)}{own_lines(error)}"
        tx.add_event("exploit_failed", policy.policy, reason=reason, marks=marks)
        return None
    return decision


def _check_donor(state: ControllerState, policy: PolicyRow, donor_id: PolicyId) -> None:
    donor = state.tables.policies.get(donor_id)
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
    marks: int,
) -> None:
    """Do to each of a team what was decided about its leader."""
    data = {**_numbers_of(decision), MARKS: marks}
    if isinstance(decision, ExploitDonor):
        if not try_immigrate(state, tx, team, data=data):
            _exploit(state, tx, team, decision.donor, explore=decision.explore, data=data)
        return
    for policy in team:
        if isinstance(decision, ExploreOwn) and state.pbt(policy.population).explore != "none":
            _explore(state, tx, policy, data=data)
        else:
            tx.add_event("kept", policy.policy, **data)


def _numbers_of(decision: Decision) -> dict[str, Json]:
    """A decision's numbers as plain data, those of its evidence beside its own."""
    numbers = {name: _plain(value) for name, value in asdict(decision).items()}
    evidence = numbers.pop("evidence")
    assert isinstance(evidence, Mapping)
    return {**numbers, **evidence}


def _plain(value: object) -> Json:
    """As JSON has it: what is read back from the journal must equal what is in memory."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str) else None


def _exploit(
    state: ControllerState,
    tx: Transaction,
    team: Sequence[PolicyRow],
    donor_id: PolicyId,
    *,
    explore: bool,
    data: Mapping[str, Json],
) -> None:
    """Put each of a team on the checkpoint of the one in its donor's team that plays its part."""
    donors = team_of(state, state.tables.policies[donor_id])
    for policy, donor in zip(team, donors, strict=True):
        _copy(state, tx, policy, donor, explore=explore, data={**data, "donor": donor.policy})


def _copy(
    state: ControllerState,
    tx: Transaction,
    policy: PolicyRow,
    donor: PolicyRow,
    *,
    explore: bool,
    data: Mapping[str, Json],
) -> None:
    """Put a policy on its donor's checkpoint, at once or when its hyperparameters are explored."""
    pending: dict[str, Json] = {
        "kind": "exploit",
        "donor": donor.policy,
        "donor_generation": donor.generation,
        "donor_agent_steps": donor.agent_steps,
        "checkpoint": donor.checkpoint,
        "hyperparameters": dict(donor.hyperparameters),
        "decision": dict(data),
    }
    if explore and state.pbt(policy.population).explore != "none":
        _wait(state, tx, policy, pending)
    else:
        same = Exploration(old=donor.hyperparameters, new=donor.hyperparameters, moves={})
        _commit_exploit(state, tx, policy, pending, same)


def _explore(
    state: ControllerState, tx: Transaction, policy: PolicyRow, *, data: Mapping[str, Json]
) -> None:
    """Change a policy's own hyperparameters when they are explored; its weights stay."""
    pending: dict[str, Json] = {
        "kind": "explore",
        "hyperparameters": dict(policy.hyperparameters),
        "decision": dict(data),
    }
    _wait(state, tx, policy, pending)


def _wait(
    state: ControllerState, tx: Transaction, policy: PolicyRow, pending: dict[str, Json]
) -> None:
    seed: list[Json] = list(state.draw_words(tx))
    tx.put(replace(policy, pending={**pending, "seed": seed}))
    state.waiting.append(policy.policy)


def complete(state: ControllerState, tx: Transaction, event: HyperparametersExplored) -> None:
    """Commit the decision that waited for these hyperparameters."""
    state.exploring.discard(event.policy)
    policy = state.tables.policies[event.policy]
    if not policy.pending:
        return
    if event.problem is not None:
        tx.add_event("explore_failed", policy.policy, reason=event.problem, instead="perturb")
    if policy.pending["kind"] == "exploit":
        _commit_exploit(state, tx, policy, policy.pending, event.exploration)
    else:
        _commit_explore(state, tx, policy, policy.pending, event.exploration)


def _commit_exploit(
    state: ControllerState,
    tx: Transaction,
    policy: PolicyRow,
    pending: Mapping[str, Json],
    exploration: Exploration,
) -> None:
    """Put a policy on its donor's checkpoint, as it was when that was decided.

    The donor may have trained on, or be quarantined by now: its checkpoint was kept for this. The
    next assignment loads the checkpoint first and applies the hyperparameters after. Identity and
    counters stay the policy's own; its generation rises, so its statistics start anew.
    """
    donor = PolicyId(str(pending["donor"]))
    checkpoint = state.tables.checkpoints[str(pending["checkpoint"])]
    if checkpoint.state != "present":
        _abandon(state, tx, policy, reason=f"{checkpoint.key} of {donor} is {checkpoint.state}")
        return
    generation, agent_steps = pending["donor_generation"], pending["donor_agent_steps"]
    assert isinstance(generation, int)
    assert isinstance(agent_steps, int)
    after = begin_generation(
        state,
        tx,
        replace(
            policy,
            state="active",
            checkpoint=checkpoint.key,
            parent=donor,
            hyperparameters=dict(exploration.new),
            ready_at=policy.agent_steps,
            failures=0,
        ),
        cause="exploit",
        parent=trainee_entrant(donor, generation=generation),
        parent_agent_steps=agent_steps,
    )
    tx.count(exploits=1)
    tx.add_event(
        "exploited",
        policy.policy,
        **{
            **_decision(pending),
            "donor": donor,
            "donor_generation": generation,
            "donor_agent_steps": agent_steps,
            "checkpoint": checkpoint.key,
            "weights": checkpoint.weights_digest,
            "generation": after.generation,
            "agent_steps": policy.agent_steps,
            "old": dict(policy.hyperparameters),
            "donor_hyperparameters": dict(numbers(pending["hyperparameters"])),
            "new": dict(exploration.new),
            "moves": dict(exploration.moves),
        },
    )


def _commit_explore(
    state: ControllerState,
    tx: Transaction,
    policy: PolicyRow,
    pending: Mapping[str, Json],
    exploration: Exploration,
) -> None:
    """Change a policy's own hyperparameters; its weights stay."""
    new = replace(policy, hyperparameters=dict(exploration.new))
    after = explored_on(state, tx, new, cause="explore")
    tx.add_event(
        "explored",
        policy.policy,
        **{
            **_decision(pending),
            "generation": after.generation,
            "agent_steps": policy.agent_steps,
            "old": dict(exploration.old),
            "new": dict(exploration.new),
            "moves": dict(exploration.moves),
        },
    )


def _decision(pending: Mapping[str, Json]) -> dict[str, Json]:
    decision = pending["decision"]
    assert isinstance(decision, Mapping), f"a decision's numbers are a mapping, got {decision!r}"
    return dict(decision)


def _abandon(state: ControllerState, tx: Transaction, policy: PolicyRow, *, reason: str) -> None:
    """Give up a decision that waited: what it was about is gone."""
    was_quarantined = policy.state == "quarantined"
    marks = _decision(policy.pending).get(MARKS)
    tx.put(replace(policy, pending={}))
    tx.add_event("exploit_abandoned", policy.policy, reason=reason, marks=marks)
    if was_quarantined:
        for mate in team_of(state, policy):
            tx.put(replace(mate, state="quarantined", pending={}))
        _rescue(state, tx, leader_of(state, policy.policy))


def quarantine(
    state: ControllerState, tx: Transaction, policy_id: PolicyId, *, reason: str
) -> None:
    """Take a policy and its mates out of training, ranking, copying and snapshots.

    Their open assignments end. Then it is tried to bring them back: with PBT they exploit the best
    rated policy at once; without anybody to copy from they go on once with half their learning
    rate, and stay out the next time.
    """
    leader = leader_of(state, policy_id)
    team = team_of(state, leader)
    names = {row.policy for row in team}
    for row in list(state.tables.assignments.values()):
        message = row.message
        if isinstance(message, Train) and any(t.policy in names for t in message.trainees):
            tx.put_assignment(replace(row, status="failed", reason=reason))
    for policy in team:
        tx.put(replace(policy, state="quarantined", pending={}))
        tx.add_event("quarantined", policy.policy, reason=reason, checkpoint=policy.checkpoint)
    _rescue(state, tx, leader)


def _rescue(state: ControllerState, tx: Transaction, leader: PolicyRow) -> None:
    team = team_of(state, leader)
    donor = _best_donor(state, leader)
    if donor is not None:
        reason = "it was quarantined; the donor is the best rated policy"
        explore = not is_reference(state, leader)
        _exploit(state, tx, team, donor, explore=explore, data={"reason": reason})
    elif all(row.halvings == 0 and row.checkpoint is not None for row in team):
        _halve(state, tx, team)


def _halve(state: ControllerState, tx: Transaction, team: Sequence[PolicyRow]) -> None:
    """Let a team go on with half its learning rates."""
    for policy in team:
        old = dict(policy.hyperparameters)
        new = {**old, LEARNING_RATE: old[LEARNING_RATE] / 2} if LEARNING_RATE in old else old
        after = replace(policy, state="active", failures=0, halvings=1, hyperparameters=new)
        explored_on(state, tx, after, cause="quarantine")
        tx.add_event("learning_rate_halved", policy.policy, old=dict(old), new=dict(new))


def _best_donor(state: ControllerState, policy: PolicyRow) -> PolicyId | None:
    """The best rated active policy of the same role, if PBT copies at all."""
    if state.pbt(policy.population).exploit == "none":
        return None
    ratings = state.ratings(policy.population)
    rated = [
        (interval[0], name)
        for name, digest in standing_weights(state, policy.population).items()
        if name != policy.policy
        and state.tables.policies[name].role == policy.role
        and (interval := ratings.interval(digest)) is not None
    ]
    return max(rated)[1] if rated else None
