"""Changes of policies that a user requests between two epochs.

A policy that is rewound goes on from one of its retained checkpoints or ghosts, with the weights,
optimizer, normalizers and hyperparameters of that time; a ghost has no optimizer, so the policy
gets a fresh one. Identity, counters, ghosts and results stay; the generation rises, so statistics
start anew.

If a resume changes start values or bounds of hyperparameters, policies continue with the new ones
(`reconfigure`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from arena.types import Hyperparameters, PolicyId, Value
from populations.controller.evolution.changes import values_of
from populations.controller.evolution.generations import begin_generation, explored_on
from populations.controller.state.epoch import Settings
from populations.controller.state.fits import Fits
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.records.rows import CheckpointRow, GhostRow, Json, PolicyRow
from populations.records.tables import Tables
from populations.search_space import Dimension


def rewind(
    settings: Settings, fits: Fits, tx: Transaction, then: CheckpointRow | GhostRow
) -> PolicyRow:
    """Put a policy back on one of its retained checkpoints or ghosts.

    A pending decision about it is cancelled, and its open assignments end. A quarantined policy
    becomes active again.

    Args:
        settings: Settings of the run.
        fits: Fits of ratings.
        tx: Transaction that takes the rows.
        then: Retained checkpoint or ghost, which the caller has verified.

    Returns:
        The policy after the change.
    """
    policy = tx.tables.policies[then.policy]
    ghost = then if isinstance(then, GhostRow) else None
    end_assignments(tx.tables, tx, policy.policy, reason=f"{policy.policy} was rewound")
    old, factors = hyperparameters_of(tx.tables, then)
    scheduled = settings.scheduled[policy.population]
    factors = scheduled.completed(factors)
    # A scheduled value has the factor of that time at the policy's present agent steps.
    new = scheduled.values(old, factors=factors, agent_steps=policy.agent_steps)
    after = begin_generation(
        fits,
        tx,
        replace(
            policy,
            state="active",
            checkpoint=None if ghost else then.key,
            # The next assignment makes a checkpoint of a ghost's weights.
            initial_weights=ghost.key if ghost else None,
            # The policy's own former weights are not a copy of another policy.
            parent=None,
            hyperparameters=new,
            factors=factors,
            ready_at=policy.agent_steps,
        ),
        cause="rewind",
        parent=then.trainee,
        parent_agent_steps=then.agent_steps,
    )
    tx.add_event(
        "rewound",
        policy.policy,
        checkpoint=after.checkpoint,
        ghost=ghost.player if ghost else None,
        checkpoint_agent_steps=then.agent_steps,
        checkpoint_generation=then.generation,
        weights=then.weights_digest,
        instead_of=policy.checkpoint,
        generation=after.generation,
        agent_steps=policy.agent_steps,
        was=policy.state,
        old=dict(policy.hyperparameters),
        new=dict(new),
    )
    return after


def end_assignments(tables: Tables, tx: Transaction, policy: PolicyId, *, reason: str) -> None:
    """End the open training assignments of a policy, because they began before its change."""
    for row in list(tables.assignments.by("trained").get(policy, {}).values()):
        # A late result finds the assignment closed, so it changes nothing.
        tx.put(replace(row, status="failed", reason=reason))


def hyperparameters_of(
    tables: Tables, then: CheckpointRow | GhostRow
) -> tuple[Hyperparameters, Mapping[str, float]]:
    """Return the hyperparameters that weights were trained with, and factors of schedules."""
    # The row of an old generation may be removed (`populations.controller.result_merging`); then
    # the policy's present values are used.
    row = tables.generations.get(then.trainee, tables.policies[then.policy])
    return row.hyperparameters, row.factors


def reconfigure(
    state: ControllerState,
    tx: Transaction,
    population: str,
    changed: Mapping[str, Value | None],
    bounds: Mapping[str, Dimension],
) -> None:
    """Give every policy of a population the changed start values, in a new generation.

    Other values stay, including explored ones, but values outside of changed bounds become the
    nearest value inside. A changed schedule begins with the factor 1, at each policy's own agent
    steps. Open training assignments end, because they began with the old values. A pending decision
    stays pending, with the new values.

    Args:
        state: The controller of a run that is being resumed.
        tx: Transaction that takes the rows.
        population: Name of the population.
        changed: New start values by name, for schedules the first value; None: the hyperparameter
            was removed.
        bounds: Changed ranges and choices by name.
    """
    # As at a launch, a new start value may be outside of the bounds, so it is not moved into them.
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
    """Return hyperparameters moved into the bounds, with changed ones replaced or removed."""
    fitted = {name: bounds[name].fit(values[name]) for name in bounds if name in values}
    merged = {**values, **fitted, **changed}
    return {name: value for name, value in merged.items() if value is not None}
