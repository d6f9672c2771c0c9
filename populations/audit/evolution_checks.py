"""Invariants of PBT's rows: generations without gaps, decisions that can be carried out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from operator import attrgetter

from arena.types import Entrant, PolicyId
from arena.wire.messages import Train
from populations.choices import is_known
from populations.records.rows import GenerationRow, PolicyRow
from populations.records.tables import Tables
from populations.roles import MAIN

BEGINS_ANEW = ("immigrate", "reset", "rewind")
"""Causes after which a policy that has trained has no checkpoint for a while."""

KINDS = ("exploit", "explore")
"""Kinds of pending decisions."""


def check_evolution(
    tables: Tables, removed: Mapping[Entrant, GenerationRow] | None = None
) -> Iterator[str]:
    """Yield faults in generations and in decisions that wait for new hyperparameters.

    Args:
        tables: Rows of the run.
        removed: Generations whose rows were removed, in order of beginning; None: none were.
    """
    in_training = {
        trainee.policy
        for row in tables.assignments.values()
        if isinstance(row.message, Train)
        for trainee in row.message.trainees
    }
    generations: dict[PolicyId, list[GenerationRow]] = {}
    for row in {**(removed or {}), **tables.generations}.values():
        generations.setdefault(row.policy, []).append(row)
    for rows in generations.values():
        # Rows of gone generations stand between those that stay.
        rows.sort(key=attrgetter("generation"))
    for policy in tables.policies.values():
        for problem in _problems_of_pending(policy, tables, in_training=in_training):
            yield f"{policy.policy}: {problem}"
        for problem in _problems_of_generations(policy, generations.get(policy.policy, [])):
            yield f"{policy.policy}: {problem}"
    for unknown in generations.keys() - tables.policies.keys():
        yield f"generations of {unknown!r}, which is no policy"


def begins_anew(policy: PolicyRow, tables: Tables) -> bool:
    """Return whether a policy waits for the first checkpoint of new weights."""
    row = tables.generations.get(policy.trainee)
    # Training since then would have recorded a checkpoint.
    is_at_its_begin = row is not None and row.agent_steps_begin == policy.agent_steps
    return row is not None and is_at_its_begin and row.cause in BEGINS_ANEW


def _problems_of_pending(
    policy: PolicyRow, tables: Tables, *, in_training: set[PolicyId]
) -> Iterator[str]:
    pending = policy.pending
    if not pending:
        return
    if pending.get("kind") not in KINDS:
        yield f"its pending decision is of the kind {pending.get('kind')!r}"
    # The decision will replace what the training started from.
    if policy.policy in in_training:
        yield "it is in training, though a decision about it is pending"
    if tables.run.state == "finished":
        yield "a decision about it is pending, though the run is finished"
    if pending.get("kind") != "exploit":
        return
    donor, key = pending.get("donor"), pending.get("checkpoint")
    if donor == policy.policy or donor not in tables.policies:
        yield f"the donor of its pending decision is {donor!r}"
    if key not in tables.checkpoints:
        yield f"the checkpoint of its pending decision, {key}, was never recorded"
    # Retention keeps it until the decision is carried out (`store.named_by`).
    elif tables.checkpoints[str(key)].state in ("doomed", "deleted"):
        yield f"the checkpoint of its pending decision, {key}, was given up"


def _problems_of_generations(policy: PolicyRow, rows: list[GenerationRow]) -> Iterator[str]:
    numbers = [row.generation for row in rows]
    # Numbers are compared without a list of as many as the policy's row says.
    is_complete = all(number == index for index, number in enumerate(numbers))
    if len(numbers) != policy.generation + 1 or not is_complete:
        yield f"it is in generation {policy.generation}, but those recorded are {numbers}"
        return
    for row, following in pairwise(rows):
        if row.agent_steps_end != following.agent_steps_begin:
            yield (
                f"{row.entrant} ended at {row.agent_steps_end} agent steps, but the next one began "
                f"at {following.agent_steps_begin}"
            )
    if policy.role == MAIN and any(row.cause == "reset" for row in rows):
        yield "it is a main agent, but was reset"
    last = rows[-1]
    if last.agent_steps_end is not None or last.agent_steps_begin != policy.generation_at:
        yield f"{last.entrant} is recorded otherwise than as lasting since {policy.generation_at}"
    # Those with a schedule change within a generation; their factors do not.
    names = (last.hyperparameters.keys() | policy.hyperparameters.keys()) - policy.factors.keys()
    if dict(last.factors) != dict(policy.factors) or any(
        last.hyperparameters.get(name) != policy.hyperparameters.get(name) for name in names
    ):
        yield f"{last.entrant} is recorded with other hyperparameters than are in use"
    for row in rows:
        for name, value in (*row.hyperparameters.items(), *row.factors.items()):
            if not is_known(value):
                yield f"{row.entrant}: {name} is {value}"
