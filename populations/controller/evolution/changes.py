"""Changes that PBT has decided: a policy copies a donor, or explores its own hyperparameters.

A change that needs new hyperparameters waits for them in ``PolicyRow.pending``
(`populations.controller.evolution.exploration`); it is committed, with its event, when they are
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from arena.types import PolicyId, Value, trainee_entrant
from populations.controller.evolution.exploration import numbers, values_of
from populations.controller.evolution.generations import begin_generation, explored_on
from populations.controller.state.fits import Fits
from populations.controller.state.state import ControllerState
from populations.controller.state.teams import team_of
from populations.controller.state.transaction import Transaction
from populations.core import Exploration
from populations.hyperparameter_schedules import ScheduledValues
from populations.records.rows import Json, PolicyRow


def exploit(
    state: ControllerState,
    tx: Transaction,
    team: Sequence[PolicyRow],
    donor_id: PolicyId,
    *,
    explore: bool,
    data: Mapping[str, Json],
) -> None:
    """Put each of a team on the checkpoint of the one in its donor's team that plays its part."""
    donors = team_of(state.league, state.tables.policies[donor_id])
    # Both are in the order of their populations (`team_of`).
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
    # The donor's factors, but the values of the policy's own clock.
    copied = state.settings.scheduled[policy.population].values(
        donor.hyperparameters, factors=donor.factors, agent_steps=policy.agent_steps
    )
    pending: dict[str, Json] = {
        # The donor as it is now; it may train on before the answer comes.
        "kind": "exploit",
        "donor": donor.policy,
        "donor_generation": donor.generation,
        "donor_agent_steps": donor.agent_steps,
        "checkpoint": donor.checkpoint,
        "hyperparameters": copied,
        **_told(donor.factors),
        "decision": dict(data),
    }
    if explore and state.settings.config.pbt_of(policy.population).explore != "none":
        _wait(tx, policy, pending)
    else:
        same = Exploration(old=copied, new=copied, moves={})
        commit_exploit(
            state.settings.scheduled, state.fits, tx, replace(policy, pending=pending), same
        )


def explore_own(tx: Transaction, policy: PolicyRow, *, data: Mapping[str, Json]) -> None:
    """Change a policy's own hyperparameters when they are explored; its weights stay."""
    pending: dict[str, Json] = {
        "kind": "explore",
        "hyperparameters": dict(policy.hyperparameters),
        **_told(policy.factors),
        "decision": dict(data),
    }
    _wait(tx, policy, pending)


def _wait(tx: Transaction, policy: PolicyRow, pending: dict[str, Json]) -> None:
    # Drawn and journaled now: the question after a crash has the same seed.
    seed: list[Json] = list(tx.draw_words())
    tx.put(replace(policy, pending={**pending, "seed": seed}))


def commit_exploit(
    scheduled: Mapping[str, ScheduledValues],
    fits: Fits,
    tx: Transaction,
    policy: PolicyRow,
    exploration: Exploration,
) -> None:
    """Put a policy on its donor's checkpoint, as it was when its pending decision was made.

    Identity and counters stay the policy's own; its generation rises, so its statistics start anew.
    """
    pending = policy.pending
    # The donor may have trained on, or be quarantined by now: retention kept its checkpoint.
    donor = PolicyId(str(pending["donor"]))
    checkpoint = tx.tables.checkpoints[str(pending["checkpoint"])]
    generation, agent_steps = pending["donor_generation"], pending["donor_agent_steps"]
    assert isinstance(generation, int)
    assert isinstance(agent_steps, int)
    new, factors = _explored(scheduled, policy, pending, exploration)
    after = begin_generation(
        fits,
        tx,
        replace(
            policy,
            # A quarantined policy comes back by its donor's weights.
            state="active",
            checkpoint=checkpoint.key,
            parent=donor,
            hyperparameters=new,
            factors=factors,
            ready_at=policy.agent_steps,
        ),
        cause="exploit",
        parent=trainee_entrant(donor, generation=generation),
        parent_agent_steps=agent_steps,
    )
    tx.count(exploits=1)
    tx.add_decision(
        "exploited",
        policy.policy,
        **{
            # The decision comes first: where names are equal, the values of the copy replace its
            # own.
            **decision_of(pending),
            "donor": donor,
            "donor_generation": generation,
            "donor_agent_steps": agent_steps,
            "checkpoint": checkpoint.key,
            "weights": checkpoint.weights_digest,
            "generation": after.generation,
            "agent_steps": policy.agent_steps,
            "old": dict(policy.hyperparameters),
            "donor_hyperparameters": values_of(pending["hyperparameters"]),
            "new": dict(new),
            "moves": dict(exploration.moves),
            **_told(factors),
        },
    )


def _explored(
    scheduled: Mapping[str, ScheduledValues],
    policy: PolicyRow,
    pending: Mapping[str, Json],
    exploration: Exploration,
) -> tuple[dict[str, Value], dict[str, float]]:
    """Return the hyperparameters in use and the factors that an exploration leads to."""
    return scheduled[policy.population].explored(
        exploration.new,
        old=values_of(pending["hyperparameters"]),
        # A decision without any has none.
        factors=numbers(pending.get("factors", {})),
        agent_steps=policy.agent_steps,
    )


def _told(factors: Mapping[str, float]) -> dict[str, Json]:
    """Return factors for an event or a decision: nothing where no hyperparameter has a schedule."""
    return {"factors": dict(factors)} if factors else {}


def commit_explore(
    scheduled: Mapping[str, ScheduledValues],
    fits: Fits,
    tx: Transaction,
    policy: PolicyRow,
    exploration: Exploration,
) -> None:
    """Change a policy's own hyperparameters as its pending decision says; its weights stay."""
    new, factors = _explored(scheduled, policy, policy.pending, exploration)
    changed = replace(policy, hyperparameters=new, factors=factors)
    after = explored_on(fits, tx, changed, cause="explore")
    tx.add_decision(
        "explored",
        policy.policy,
        **{
            **decision_of(policy.pending),
            "generation": after.generation,
            "agent_steps": policy.agent_steps,
            "old": dict(exploration.old),
            "new": dict(new),
            "moves": dict(exploration.moves),
            **_told(factors),
        },
    )


def decision_of(pending: Mapping[str, Json]) -> dict[str, Json]:
    """Return the numbers of the decision that waits."""
    decision = pending["decision"]
    assert isinstance(decision, Mapping), f"a decision's numbers are a mapping, got {decision!r}"
    return dict(decision)
