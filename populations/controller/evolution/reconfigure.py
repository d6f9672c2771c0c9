"""New start values of hyperparameters at a resume: policies continue with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from populations.controller.evolution.generations import explored_on
from populations.controller.evolution.rewind import end_assignments
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.records.rows import Json, PolicyRow


def reconfigure(
    state: ControllerState,
    tx: Transaction,
    population: str,
    changed: Mapping[str, float | None],
) -> None:
    """Give every policy of a population the start values that were changed, in a new generation.

    Values that were not changed stay, explored ones too. A changed schedule begins with the factor
    1 and has the value of each policy's own agent steps. Open training assignments end, for they
    began with the old values. A decision that waits goes on waiting, about the new ones.

    Args:
        state: The controller of a run that is about to go on.
        tx: Takes the rows.
        population: Name of the population.
        changed: New start values by name, of schedules their first; None: the hyperparameter is
            gone.
    """
    for policy in list(state.tables.policies.values()):
        if policy.population != population:
            continue
        scheduled = state.scheduled[population]
        kept = {name: factor for name, factor in policy.factors.items() if name not in changed}
        factors = scheduled.completed(kept)
        new = scheduled.values(
            with_changed(policy.hyperparameters, changed),
            factors=factors,
            agent_steps=policy.agent_steps,
        )
        if new == dict(policy.hyperparameters) and factors == dict(policy.factors):
            continue
        end_assignments(state, tx, policy.policy, reason="hyperparameters were changed")
        after = replace(policy, hyperparameters=new, factors=factors)
        after = explored_on(state, tx, after, cause="reconfigure")
        if policy.pending:
            tx.put(replace(after, pending=_pending(policy, changed)))
        tx.add_event(
            "hyperparameters_changed",
            policy.policy,
            generation=after.generation,
            agent_steps=policy.agent_steps,
            old=dict(policy.hyperparameters),
            new=dict(new),
        )


def with_changed(
    values: Mapping[str, float], changed: Mapping[str, float | None]
) -> dict[str, float]:
    """Return hyperparameters with changed ones replaced, and those that are gone left out."""
    merged = {**values, **changed}
    return {name: value for name, value in merged.items() if value is not None}


def _pending(policy: PolicyRow, changed: Mapping[str, float | None]) -> dict[str, Json]:
    base = policy.pending.get("hyperparameters")
    assert isinstance(base, Mapping), "a decision is about hyperparameters"
    new: dict[str, Json] = {**base, **changed}
    values = {name: value for name, value in new.items() if value is not None}
    return {**policy.pending, "hyperparameters": values}
