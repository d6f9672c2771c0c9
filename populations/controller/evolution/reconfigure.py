"""New start values and bounds of hyperparameters at a resume: policies continue with them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from arena.types import Hyperparameters, Value
from populations.controller.evolution.exploration import values_of
from populations.controller.evolution.generations import explored_on
from populations.controller.evolution.rewind import end_assignments
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.records.rows import Json
from populations.search_space import Dimension


def reconfigure(
    state: ControllerState,
    tx: Transaction,
    population: str,
    changed: Mapping[str, Value | None],
    bounds: Mapping[str, Dimension],
) -> None:
    """Give every policy of a population the start values that were changed, in a new generation.

    Other values stay, explored ones too, but for those outside of bounds that were changed: the
    nearest value in these takes their place. A changed schedule begins with the factor
    1 and has the value of each policy's own agent steps. Open training assignments end, for they
    began with the old values. A decision that waits goes on waiting, about the new ones.

    Args:
        state: The controller of a run that is about to go on.
        tx: Takes the rows.
        population: Name of the population.
        changed: New start values by name, of schedules their first; None: the hyperparameter is
            gone.
        bounds: Ranges and choices that were changed, by name.
    """
    # A new start value may be outside of the bounds, as at a launch.
    bounds = {name: dimension for name, dimension in bounds.items() if name not in changed}
    for policy in list(state.tables.policies.values()):
        if policy.population != population:
            continue
        scheduled = state.settings.scheduled[population]
        kept = {name: factor for name, factor in policy.factors.items() if name not in changed}
        factors = scheduled.completed(kept)
        new = scheduled.values(
            with_changed(policy.hyperparameters, changed, bounds),
            factors=factors,
            agent_steps=policy.agent_steps,
        )
        if new == dict(policy.hyperparameters) and factors == dict(policy.factors):
            continue
        end_assignments(state.tables, tx, policy.policy, reason="hyperparameters were changed")
        after = replace(policy, hyperparameters=new, factors=factors)
        after = explored_on(state.fits, tx, after, cause="reconfigure")
        if policy.pending:
            waiting = values_of(policy.pending["hyperparameters"])
            base: dict[str, Json] = {**with_changed(waiting, changed, bounds)}
            tx.put(replace(after, pending={**policy.pending, "hyperparameters": base}))
        tx.add_event(
            "hyperparameters_changed",
            policy.policy,
            generation=after.generation,
            agent_steps=policy.agent_steps,
            old=dict(policy.hyperparameters),
            new=dict(new),
        )


def with_changed(
    values: Hyperparameters,
    changed: Mapping[str, Value | None],
    bounds: Mapping[str, Dimension],
) -> dict[str, Value]:
    """Return hyperparameters with changed ones replaced, in the bounds, without those gone."""
    fitted = {name: bounds[name].fit(values[name]) for name in bounds if name in values}
    merged = {**values, **fitted, **changed}
    return {name: value for name, value in merged.items() if value is not None}
