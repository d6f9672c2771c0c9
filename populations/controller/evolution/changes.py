"""Changes that PBT has decided: a policy copies a donor, or explores its own hyperparameters.

A change that needs new hyperparameters is stored in ``PolicyRow.pending`` until the worker thread
has explored them (`populations.controller.evolution.exploring`), and is then carried out with its
event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from arena.types import PolicyId, Value, trainee_entrant
from populations.choices import number_of
from populations.controller.evolution.generations import begin_generation, explored_on
from populations.controller.indexes.teams import team_of
from populations.controller.state.fits import Fits
from populations.controller.state.state import ControllerState
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
    """Let each policy of a team copy the policy of its own population in the donor's team.

    It copies checkpoint and hyperparameters at once, or after an exploration with ``explore``.
    """
    scheduled = state.settings.scheduled
    donors = team_of(state.league, state.tables.policies[donor_id])
    # Both teams are in the order of their populations (`team_of`), so they correspond.
    for policy, donor in zip(team, donors, strict=True):
        # Schedules give values by the donor's factors at the policy's own agent steps.
        copied = scheduled[policy.population].values(
            donor.hyperparameters, factors=donor.factors, agent_steps=policy.agent_steps
        )
        pending: dict[str, Json] = {
            # These describe the donor now, as it may train on before the exploration ends.
            "kind": "exploit",
            "donor": donor.policy,
            "donor_generation": donor.generation,
            "donor_agent_steps": donor.agent_steps,
            "checkpoint": donor.checkpoint,
            "hyperparameters": copied,
            **_told(donor.factors),
            "decision": {**data, "donor": donor.policy},
        }
        if explore and state.settings.config.pbt_of(policy.population).explore != "none":
            _wait(tx, policy, pending)
        else:
            same = Exploration(old=copied, new=copied, moves={})
            commit(scheduled, state.fits, tx, replace(policy, pending=pending), same)


def explore_own(tx: Transaction, policy: PolicyRow, *, data: Mapping[str, Json]) -> None:
    """Request an exploration of a policy's own hyperparameters; its weights stay."""
    pending: dict[str, Json] = {
        "kind": "explore",
        "hyperparameters": dict(policy.hyperparameters),
        **_told(policy.factors),
        "decision": dict(data),
    }
    _wait(tx, policy, pending)


def _wait(tx: Transaction, policy: PolicyRow, pending: dict[str, Json]) -> None:
    # The seed is drawn and journaled now, so that the exploration is repeatable after a crash.
    seed: list[Json] = list(tx.draw_words())
    tx.put(replace(policy, pending={**pending, "seed": seed}))


def commit(
    scheduled: Mapping[str, ScheduledValues],
    fits: Fits,
    tx: Transaction,
    policy: PolicyRow,
    exploration: Exploration,
) -> None:
    """Carry out a policy's pending decision with the explored hyperparameters.

    The policy's identity and counters stay; its generation rises, so its statistics start anew.
    """
    pending, is_copy = policy.pending, policy.pending["kind"] == "exploit"
    base = values_of(pending["hyperparameters"])
    new, factors = scheduled[policy.population].explored(
        exploration.new,
        old=base,
        # A decision stores factors only if there are any.
        factors=numbers(pending.get("factors", {})),
        agent_steps=policy.agent_steps,
    )
    changed = replace(policy, hyperparameters=new, factors=factors)
    if is_copy:
        after, about = _copied(fits, tx, changed)
        tx.count(exploits=1)
    else:
        after, about = explored_on(fits, tx, changed, cause="explore"), {}
    tx.add_decision(
        "exploited" if is_copy else "explored",
        policy.policy,
        **{
            # The decision comes first, so that values of the copy replace its values of equal name.
            **decision_of(pending),
            **about,
            "generation": after.generation,
            "agent_steps": policy.agent_steps,
            "old": dict(policy.hyperparameters if is_copy else exploration.old),
            **({"donor_hyperparameters": base} if is_copy else {}),
            "new": dict(new),
            "moves": dict(exploration.moves),
            **_told(factors),
        },
    )


def _copied(fits: Fits, tx: Transaction, policy: PolicyRow) -> tuple[PolicyRow, dict[str, Json]]:
    """Put a policy on the checkpoint that its donor had when the pending decision was made.

    Returns:
        The policy as it was put, and the donor's data for the event.
    """
    pending = policy.pending
    # The donor may have trained on since, or be quarantined, but retention has kept the checkpoint.
    checkpoint = tx.tables.checkpoints[str(pending["checkpoint"])]
    donor = PolicyId(str(pending["donor"]))
    generation, agent_steps = pending["donor_generation"], pending["donor_agent_steps"]
    assert isinstance(generation, int)
    assert isinstance(agent_steps, int)
    after = begin_generation(
        fits,
        tx,
        # The state is set because a quarantined or retired policy is active again by the copy.
        replace(
            policy,
            state="active",
            checkpoint=checkpoint.key,
            parent=donor,
            ready_at=policy.agent_steps,
        ),
        cause="exploit",
        parent=trainee_entrant(donor, generation=generation),
        parent_agent_steps=agent_steps,
    )
    return after, {
        "donor": donor,
        "donor_generation": generation,
        "donor_agent_steps": agent_steps,
        "checkpoint": checkpoint.key,
        "weights": checkpoint.weights_digest,
    }


def _told(factors: Mapping[str, float]) -> dict[str, Json]:
    """Return factors for an event or a decision; empty if no hyperparameter has a schedule."""
    return {"factors": dict(factors)} if factors else {}


def decision_of(pending: Mapping[str, Json]) -> dict[str, Json]:
    """Return the numbers that led to a pending decision, by name, as its event has them."""
    decision = pending["decision"]
    assert isinstance(decision, Mapping), f"a decision's numbers are a mapping, got {decision!r}"
    return dict(decision)


def values_of(value: Json) -> dict[str, Value]:
    """Return hyperparameters from plain data of the journal."""
    assert isinstance(value, Mapping), f"hyperparameters are a mapping, got {value!r}"
    return {name: one for name, one in value.items() if isinstance(one, int | float | str)}


def numbers(value: Json) -> dict[str, float]:
    """Return factors of hyperparameters from plain data of the journal."""
    return {name: number_of(one) for name, one in values_of(value).items()}
