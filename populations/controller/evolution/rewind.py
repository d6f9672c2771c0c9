"""A policy goes on from one of its kept checkpoints or ghosts, because its user wants it to.

Weights, optimizer, normalizers and hyperparameters are those of then; a ghost has no optimizer, so
it is a fresh one. Identity and counters go on, and ghosts and results stay; the generation rises,
so statistics start anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from arena.types import Hyperparameters, PolicyId
from populations.controller.evolution.generations import begin_generation
from populations.controller.state.fits import Fits
from populations.controller.state.settings import Settings
from populations.controller.state.transaction import Transaction
from populations.records.rows import CheckpointRow, GhostRow, PolicyRow
from populations.records.tables import Tables


def rewind(
    settings: Settings, fits: Fits, tx: Transaction, then: CheckpointRow | GhostRow
) -> PolicyRow:
    """Put a policy back on one of its kept checkpoints or ghosts.

    A decision about it that waits is given up, and its open assignments end. A quarantined policy
    is active again.

    Args:
        settings: Settings of the run.
        fits: Fits of ratings.
        tx: Takes the rows.
        then: Kept checkpoint or ghost, whose bytes are right.

    Returns:
        The policy as it goes on.
    """
    policy = tx.tables.policies[then.policy]
    ghost = then if isinstance(then, GhostRow) else None
    end_assignments(tx.tables, tx, policy.policy, reason=f"{policy.policy} was rewound")
    old, factors = hyperparameters_of(tx.tables, then)
    scheduled = settings.scheduled[policy.population]
    factors = scheduled.completed(factors)
    # A scheduled value has the factor of that time, but agent steps go on.
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
            # Its own weights are no copy of another policy.
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
    """End the open training assignments of a policy, which began from what it is no more."""
    for row in list(tables.assignments.by("trained").get(policy, {}).values()):
        # Closed: a late result finds no open assignment and changes nothing.
        tx.put(replace(row, status="failed", reason=reason))


def hyperparameters_of(
    tables: Tables, then: CheckpointRow | GhostRow
) -> tuple[Hyperparameters, Mapping[str, float]]:
    """Return the hyperparameters that weights were trained with, and factors of schedules."""
    # Rows of old generations are removed (`populations.controller.generation_rows`).
    row = tables.generations.get(then.trainee, tables.policies[then.policy])
    return row.hyperparameters, row.factors
