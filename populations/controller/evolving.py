"""PBT in the run: when a policy is ready, what it copies or changes, and who is quarantined."""

from __future__ import annotations

from dataclasses import asdict, replace

from arena.types import PolicyId
from arena.wire.messages import Train
from populations.controller.state import ControllerState
from populations.controller.transaction import Transaction
from populations.core import ExploitDonor, Exploration, ExploreOwn, Member, NotReady
from populations.league.standings import Ratings
from populations.pbt.scheduler import is_ready
from populations.types import Json, PolicyRow

LEARNING_RATE = "learning_rate"


def evolve(state: ControllerState, tx: Transaction, policy: PolicyRow) -> None:
    """Let PBT decide about a policy if its own clock says that it is ready.

    A policy that is ready but about which too little is known stays ready, trains on, and is asked
    about again when its next assignment ends. In the final matches nobody changes any more.
    """
    pbt = state.config.pbt
    ready = is_ready(
        policy,
        ready_agent_steps=pbt.ready_agent_steps,
        warm_up_agent_steps=pbt.warm_up_agent_steps,
    )
    if not ready or pbt.exploit == "none" or state.phase == "evaluating":
        return
    policy = state.tables.policies[policy.policy]
    ratings = Ratings(state.tables.ratings.get(policy.population))
    weights = standing_weights(state, policy.population)

    def difference(first: PolicyId, second: PolicyId) -> tuple[float, float] | None:
        return ratings.difference(weights.get(first, ""), weights.get(second, ""))

    decision = state.exploit.decide(
        policy.policy,
        members=_members(state, policy.population, ratings, weights),
        difference=difference,
        rng=state.draw(tx),
    )
    if isinstance(decision, NotReady):
        return
    tx.put(replace(policy, ready_at=policy.agent_steps))
    numbers: dict[str, Json] = {
        key: value for key, value in asdict(decision).items() if key != "evidence"
    }
    numbers.update(asdict(decision.evidence))
    if isinstance(decision, ExploitDonor):
        _exploit(state, tx, policy.policy, decision.donor, explore=decision.explore, data=numbers)
    elif isinstance(decision, ExploreOwn) and pbt.explore != "none":
        _explore(state, tx, policy.policy, data=numbers)
    else:
        tx.add_event("kept", policy.policy, **numbers)


def standing_weights(state: ControllerState, population: str) -> dict[PolicyId, str]:
    """The evaluated weights that each active policy's standing is about."""
    return {
        row.policy: digest
        for row in state.tables.policies.values()
        if row.population == population
        and row.state == "active"
        and (digest := state.league.standing_weights(row, state.tables)) is not None
    }


def _members(
    state: ControllerState, population: str, ratings: Ratings, weights: dict[PolicyId, str]
) -> list[Member]:
    members = []
    for row in state.tables.policies.values():
        if row.population != population or row.state != "active":
            continue
        interval = ratings.interval(weights.get(row.policy))
        members.append(
            Member(
                policy=row.policy,
                index=row.index,
                rating=interval[0] if interval is not None else None,
                num_matches=state.league.matches_in_generation(row),
                is_reference=state.config.pbt.reference and row.index == 0,
            )
        )
    return members


def _explored(
    state: ControllerState, tx: Transaction, population: str, hyperparameters: dict[str, float]
) -> Exploration:
    space = state.config.populations[population].search_space
    return state.explore.explore(hyperparameters, space, rng=state.draw(tx))


def _exploit(
    state: ControllerState,
    tx: Transaction,
    policy_id: PolicyId,
    donor_id: PolicyId,
    *,
    explore: bool,
    data: dict[str, Json],
) -> None:
    """Put a policy on its donor's checkpoint; hyperparameters follow, explored.

    The next assignment loads the checkpoint first and applies the hyperparameters after. Identity
    and counters stay the policy's own; its generation rises, so its statistics start anew.
    """
    policy = state.tables.policies[policy_id]
    donor = state.tables.policies[donor_id]
    new = dict(donor.hyperparameters)
    moves: dict[str, Json] = {}
    if explore and state.config.pbt.explore != "none":
        exploration = _explored(state, tx, policy.population, new)
        new, moves = dict(exploration.new), dict(exploration.moves)
    tx.put(
        replace(
            policy,
            state="active",
            checkpoint=donor.checkpoint,
            parent=donor.policy,
            hyperparameters=new,
            generation=policy.generation + 1,
            generation_at=policy.agent_steps,
            ready_at=policy.agent_steps,
            failures=0,
        )
    )
    tx.count(exploits=1)
    checkpoint = state.tables.checkpoints[donor.checkpoint or ""]
    tx.add_event(
        "exploited",
        policy_id,
        **{
            **data,
            "donor": donor.policy,
            "donor_generation": donor.generation,
            "donor_agent_steps": donor.agent_steps,
            "checkpoint": checkpoint.key,
            "weights": checkpoint.weights_digest,
            "generation": policy.generation + 1,
            "agent_steps": policy.agent_steps,
            "old": dict(policy.hyperparameters),
            "donor_hyperparameters": dict(donor.hyperparameters),
            "new": new,
            "moves": moves,
        },
    )


def _explore(
    state: ControllerState, tx: Transaction, policy_id: PolicyId, *, data: dict[str, Json]
) -> None:
    """Change a policy's own hyperparameters; its weights stay."""
    policy = state.tables.policies[policy_id]
    exploration = _explored(state, tx, policy.population, dict(policy.hyperparameters))
    tx.put(
        replace(
            policy,
            hyperparameters=dict(exploration.new),
            generation=policy.generation + 1,
            generation_at=policy.agent_steps,
        )
    )
    tx.add_event(
        "explored",
        policy_id,
        **{
            **data,
            "generation": policy.generation + 1,
            "agent_steps": policy.agent_steps,
            "old": dict(exploration.old),
            "new": dict(exploration.new),
            "moves": dict(exploration.moves),
        },
    )


def quarantine(
    state: ControllerState, tx: Transaction, policy_id: PolicyId, *, reason: str
) -> None:
    """Take a policy out of training, ranking, copying and snapshots, and try to bring it back.

    Its open assignments end. With PBT it exploits the best rated policy at once; without anybody to
    copy from it goes on once with half its learning rate, and stays out the next time.
    """
    for row in list(state.tables.assignments.values()):
        message = row.message
        if isinstance(message, Train) and any(t.policy == policy_id for t in message.trainees):
            tx.put_assignment(replace(row, status="failed", reason=reason))
    policy = state.tables.policies[policy_id]
    tx.put(replace(policy, state="quarantined"))
    tx.add_event("quarantined", policy_id, reason=reason, checkpoint=policy.checkpoint)
    donor = _best_donor(state, policy)
    if donor is not None:
        data: dict[str, Json] = {"reason": "it was quarantined; the donor is the best rated policy"}
        _exploit(state, tx, policy_id, donor, explore=True, data=data)
    elif policy.halvings == 0 and policy.checkpoint is not None:
        old = dict(policy.hyperparameters)
        new = {**old, LEARNING_RATE: old[LEARNING_RATE] / 2} if LEARNING_RATE in old else old
        tx.put(replace(policy, state="active", failures=0, halvings=1, hyperparameters=new))
        tx.add_event("learning_rate_halved", policy_id, old=dict(old), new=dict(new))


def _best_donor(state: ControllerState, policy: PolicyRow) -> PolicyId | None:
    """The best rated active policy, if PBT copies at all."""
    if state.config.pbt.exploit == "none":
        return None
    ratings = Ratings(state.tables.ratings.get(policy.population))
    rated = [
        (interval[0], name)
        for name, digest in standing_weights(state, policy.population).items()
        if name != policy.policy and (interval := ratings.interval(digest)) is not None
    ]
    return max(rated)[1] if rated else None
