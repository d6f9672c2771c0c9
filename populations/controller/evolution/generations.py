"""Generations of policies: rows with the cause, the parent and the gain in rating of each one."""

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
    """Return the rows of the generations with which a run begins."""
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
        fits: Ratings, and the league, whose tables have the policy before the change.
        tx: Transaction that takes the rows.
        policy: Policy with the new checkpoint and hyperparameters.
        cause: Cause of the new generation.
        parent: Entrant that the weights came from; None: they are fresh.
        parent_agent_steps: Agent steps of the parent when they were copied, if it is of this run.

    Returns:
        The policy as it was put.
    """
    # The generation that ends is found by its number, so it is read before the policy is put.
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
    """Put a policy that continues its own weights with other hyperparameters."""
    return begin_generation(
        fits, tx, policy, cause=cause, parent=policy.trainee, parent_agent_steps=policy.agent_steps
    )


def ended_generation(fits: Fits, policy_id: PolicyId) -> GenerationRow | None:
    """Return the row of a policy's present generation as if it ended now; None if it has no row.

    Its ratings are of the nearest rated weights in the policy's line before its begin and end.
    """
    policy = fits.league.tables.policies[policy_id]
    row = fits.league.tables.generations.get(policy.trainee)
    if row is None:
        return None
    ratings, league = fits.ratings(policy.population), fits.league
    # ``lead`` are the steps from the first rated weights to the begin of the generation, ``lag``
    # those from the last rated weights to its end.
    first, lead = _rated(league, ratings, league.first_weights(policy))
    last, lag = _rated(league, ratings, league.weights(policy))
    # ``num_own`` are the steps of this generation between the two ratings. If earlier generations
    # trained as many steps between the ratings, the gain cannot be attributed to this generation.
    num_own = policy.agent_steps - row.agent_steps_begin - lag
    difference = ratings.difference(last, first) if first and last and lead < num_own else None
    return replace(
        row,
        agent_steps_end=policy.agent_steps,
        # Both ratings are of the last fit, because the scale may move between two fits by more
        # than a gain.
        rating_begin=ratings.rating(first),
        rating_end=ratings.rating(last),
        gain_deviation=None if difference is None else difference[1],
        gain_agent_steps=None if difference is None else lead + num_own,
    )


def history(config: RunConfig, fits: Fits, policy: PolicyRow) -> tuple[GenerationRow, ...]:
    """Return all generations in a policy's population and role, in order of beginning.

    The policy's own present generation is given as if it ended now.
    """
    ended = ended_generation(fits, policy.policy)
    tables = fits.league.tables
    rows = dict(tables.generations.by("population").get(policy.population, {}))
    if ended is not None:
        rows[ended.entrant] = ended
    alike = tables.policies.by("role")[policy.population, policy.role]
    # Most populations have a single role, so the filter over all generations can be skipped.
    if len(alike) == config.populations[policy.population].num_policies:
        return tuple(rows.values())
    is_alike = map(alike.__contains__, map(attrgetter("policy"), rows.values()))
    return tuple(compress(rows.values(), is_alike))


def history_now(settings: Settings, fits: Fits, policy: PolicyRow) -> tuple[GenerationRow, ...]:
    """Return `history` with the values that each generation's factors would give now.

    A rule compares generations of different times. For a scheduled hyperparameter only the factor
    can be compared, so all values are computed at the policy's present agent steps.
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
    """Return the nearest rated weights up a line (None: none), and the agent steps since them."""
    agent_steps = 0
    for weights in () if digest is None else chain((digest,), league.ancestors(digest)):
        if ratings.index(weights) is not None:
            return weights, agent_steps
        # These weights are unrated, so the steps that made them count as trained since rated ones.
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
