"""Generations of policies: rows that say what began each one, from whom, and how it went."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, compress
from operator import attrgetter
from typing import Literal

from msgspec.structs import replace

from arena.types import Digest, Entrant, PolicyId
from populations.config.run_config import RunConfig
from populations.controller.state.epoch import Settings
from populations.controller.state.fits import Fits
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.league.lineage import first_of_line, num_copies, steps_since_parent
from populations.league.ratings import Ratings
from populations.records.rows import Cause, GenerationRow, PolicyRow

KEPT = ("explore", "quarantine", "replay", "reconfigure")
"""Causes of generations that continue from the policy's own weights."""


def first_generations(policies: Iterable[PolicyRow]) -> list[GenerationRow]:
    """Return the rows with which a run begins."""
    return [_row(policy, cause="start", parent=None) for policy in policies]


def begin_generation(
    fits: Fits,
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
        fits: Ratings, and the league, which holds the policy as it was.
        tx: Takes the rows.
        policy: As it goes on: with the new checkpoint and hyperparameters.
        cause: Cause of the generation's beginning.
        parent: Entrant that the weights came from.
        parent_agent_steps: The parent's count when they were copied, if it is of this run.

    Returns:
        The policy as it was put.
    """
    # The generation that ends is found by its old number, so look before the policy is put.
    ended = ended_generation(fits, policy.policy)
    if ended is not None:
        tx.put(ended)
    line_begin = policy.generation + 1
    if cause in KEPT:
        line_begin = first_of_line(fits.league.tables.generations, policy.trainee)
    policy = replace(
        policy,
        generation=policy.generation + 1,
        generation_at=policy.agent_steps,
        pending={},
    )
    tx.put(policy)
    row, ratings = _row(policy, cause=cause, parent=parent), fits.ratings(policy.population)
    first, _ = _rated(fits.league, ratings, fits.league.weights(policy))
    tx.put(
        replace(
            row,
            parent_agent_steps=parent_agent_steps,
            rating_begin=ratings.rating(first),
            line_begin=line_begin,
            copies=num_copies(fits.league.tables.generations, policy.policy) + (cause == "exploit"),
        )
    )
    return policy


def explored_on(
    fits: Fits,
    tx: Transaction,
    policy: PolicyRow,
    *,
    cause: Literal["explore", "quarantine", "replay", "reconfigure"],
) -> PolicyRow:
    """Put a policy that goes on from its own weights with other hyperparameters."""
    return begin_generation(
        fits, tx, policy, cause=cause, parent=policy.trainee, parent_agent_steps=policy.agent_steps
    )


def ended_generation(fits: Fits, policy_id: PolicyId) -> GenerationRow | None:
    """Say what a policy's present generation is if it ends now; None in runs that recorded none.

    Its ratings are those of the nearest rated weights in the policy's line before its beginning and
    before its end.
    """
    policy = fits.league.tables.policies[policy_id]
    row = fits.league.tables.generations.get(policy.trainee)
    if row is None:
        return None
    ratings, league = fits.ratings(policy.population), fits.league
    # lead: steps from the first rated weights to the beginning; lag: from the last ones to the end
    first, lead = _rated(league, ratings, league.first_weights(policy))
    last, lag = _rated(league, ratings, league.weights(policy))
    # steps of the generation itself between the two ratings
    num_own = policy.agent_steps - row.agent_steps_begin - lag
    # If earlier generations trained more between the two, or this one nothing, its gain is not
    # known.
    difference = ratings.difference(last, first) if first and last and lead < num_own else None
    return replace(
        row,
        agent_steps_end=policy.agent_steps,
        # Both ratings are of the last fit: the scale of another one may have moved by more than a
        # gain.
        rating_begin=ratings.rating(first),
        rating_end=ratings.rating(last),
        gain_deviation=None if difference is None else difference[1],
        gain_agent_steps=None if difference is None else lead + num_own,
    )


def history(config: RunConfig, fits: Fits, policy: PolicyRow) -> tuple[GenerationRow, ...]:
    """Return all generations of policies of a policy's population and role, in order of beginning.

    Its own last one is ended in it.
    """
    ended = ended_generation(fits, policy.policy)
    tables = fits.league.tables
    rows = dict(tables.generations.by("population").get(policy.population, {}))
    if ended is not None:
        rows[ended.entrant] = ended
    alike = tables.policies.by("role")[policy.population, policy.role]
    # Most populations have one role, and a long run has many generations.
    if len(alike) == config.populations[policy.population].num_policies:
        return tuple(rows.values())
    is_alike = map(alike.__contains__, map(attrgetter("policy"), rows.values()))
    return tuple(compress(rows.values(), is_alike))


def history_now(settings: Settings, fits: Fits, policy: PolicyRow) -> tuple[GenerationRow, ...]:
    """Return `history` with the values that its factors would give now.

    A rule compares generations of different times, and moves the value in use of this one: what it
    learns about a scheduled hyperparameter is about the factor.
    """
    scheduled, rows = settings.scheduled[policy.population], history(settings.config, fits, policy)
    if not scheduled.schedules:
        return rows
    return tuple(
        replace(
            row,
            hyperparameters=scheduled.values(
                row.hyperparameters, factors=row.factors, agent_steps=policy.agent_steps
            ),
        )
        for row in rows
    )


def _rated(league: League, ratings: Ratings, digest: Digest | None) -> tuple[Digest | None, int]:
    """Find the nearest rated weights in a line, and the agent steps trained since them."""
    agent_steps = 0
    for weights in () if digest is None else chain((digest,), league.ancestors(digest)):
        if ratings.index(weights) is not None:
            return weights, agent_steps
        # The weights are unrated: the steps that made them were trained since the rated ones
        # further up.
        made = league.checkpoints.get(weights)
        if made is not None:
            agent_steps += steps_since_parent(
                made, origins=league.checkpoints, generations=league.tables.generations
            )
    return None, agent_steps


def _row(policy: PolicyRow, *, cause: Cause, parent: Entrant | None) -> GenerationRow:
    return GenerationRow(
        entrant=policy.trainee,
        policy=policy.policy,
        population=policy.population,
        generation=policy.generation,
        cause=cause,
        parent=parent,
        hyperparameters=dict(policy.hyperparameters),
        factors=dict(policy.factors),
        agent_steps_begin=policy.agent_steps,
        line_begin=policy.generation,
        copies=0,
    )
