"""Generations of policies: rows that say what began each one, from whom, and how it went."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from arena.types import Entrant, PolicyId, trainee_entrant
from populations.controller.state import ControllerState
from populations.controller.transaction import Transaction
from populations.types import GenerationRow, PolicyRow

Cause = Literal["start", "exploit", "explore", "quarantine", "reset", "immigrate", "replay"]


def first_generations(policies: Iterable[PolicyRow]) -> list[GenerationRow]:
    """The rows with which a run begins."""
    return [_row(policy, cause="start", parent=None) for policy in policies]


def begin_generation(
    state: ControllerState,
    tx: Transaction,
    policy: PolicyRow,
    *,
    cause: Cause,
    parent: Entrant | None,
    parent_agent_steps: int | None = None,
) -> PolicyRow:
    """Put a policy whose weights or hyperparameters were replaced, with its next generation.

    Its generation rises and its statistics start anew; its counters stay. The last generation ends.

    Args:
        state: The controller; holds the policy as it was.
        tx: Takes the rows.
        policy: As it goes on: with the new checkpoint and hyperparameters.
        cause: What began the generation.
        parent: Whose weights they are.
        parent_agent_steps: The parent's count when they were copied, if it is of this run.

    Returns:
        The policy as it was put.
    """
    ended = ended_generation(state, policy.policy)
    if ended is not None:
        tx.put(ended)
    policy = replace(
        policy,
        generation=policy.generation + 1,
        generation_at=policy.agent_steps,
        pending={},
    )
    tx.put(policy)
    row = _row(policy, cause=cause, parent=parent)
    tx.put(
        replace(row, parent_agent_steps=parent_agent_steps, rating_begin=line_rating(state, policy))
    )
    return policy


def explored_on(
    state: ControllerState,
    tx: Transaction,
    policy: PolicyRow,
    *,
    cause: Literal["explore", "quarantine", "replay"],
) -> PolicyRow:
    """Put a policy that goes on from its own weights with other hyperparameters."""
    parent = trainee_entrant(policy.policy, generation=policy.generation)
    return begin_generation(
        state, tx, policy, cause=cause, parent=parent, parent_agent_steps=policy.agent_steps
    )


def ended_generation(state: ControllerState, policy_id: PolicyId) -> GenerationRow | None:
    """A policy's present generation as it is if it ends now; None in runs that recorded none."""
    policy = state.tables.policies[policy_id]
    entrant = trainee_entrant(policy_id, generation=policy.generation)
    row = state.tables.generations.get(entrant)
    if row is None:
        return None
    return replace(row, agent_steps_end=policy.agent_steps, rating_end=line_rating(state, policy))


def history(state: ControllerState, policy: PolicyRow) -> tuple[GenerationRow, ...]:
    """All generations of policies of a policy's population and role, in order of beginning.

    Its own last one is ended in it.
    """
    ended = ended_generation(state, policy.policy)
    return state.histories.of(policy, state.tables, instead=ended)


def line_rating(state: ControllerState, policy: PolicyRow) -> float | None:
    """Elo of the newest rated weights in a policy's line; None if none are rated."""
    if policy.checkpoint is None:
        return None
    ratings = state.ratings(policy.population)
    digest = state.tables.checkpoints[policy.checkpoint].weights_digest
    for weights in (digest, *state.league.ancestors(digest)):
        interval = ratings.interval(weights)
        if interval is not None:
            return interval[0]
    return None


def _row(policy: PolicyRow, *, cause: Cause, parent: Entrant | None) -> GenerationRow:
    return GenerationRow(
        entrant=trainee_entrant(policy.policy, generation=policy.generation),
        policy=policy.policy,
        population=policy.population,
        generation=policy.generation,
        cause=cause,
        parent=parent,
        hyperparameters=dict(policy.hyperparameters),
        agent_steps_begin=policy.agent_steps,
    )
