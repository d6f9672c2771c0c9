"""Lineage of a policy's weights by generations, and the schedule that follows from it.

A run of weeks makes very many checkpoints and generations, so old rows are removed. What views,
replays and `arena verify` need of them is in the events of the removal, in the journal or in its
archive.

Tests: `tests/populations/league/test_lineage.py`, `tests/populations/audit/test_verify.py`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec import ValidationError, convert
from msgspec.structs import asdict

from arena.errors import ConfigError
from arena.rules import nearest
from arena.types import (
    AssignmentId,
    Digest,
    Entrant,
    PolicyId,
    Value,
    policy_of_trainee,
    trainee_entrant,
)
from populations.config.sections import ScheduleEntry
from populations.hyperparameter_schedules import ScheduledValues
from populations.league.payoff import Payoff
from populations.records.rows import CheckpointRow, EventRow, GenerationRow, Json
from populations.records.tables import Table, Tables

Stretch = tuple[GenerationRow, int, int]
"""Part of the training behind some weights that one generation did: the generation, the agent steps
along the lineage before this part, and the agent steps of this part."""


def _in_order(
    removed: Mapping[Entrant, GenerationRow], kept: Mapping[Entrant, GenerationRow]
) -> dict[Entrant, GenerationRow]:
    """Merge removed and kept generations, so that each policy's are in order of beginning."""
    waiting: defaultdict[PolicyId, deque[GenerationRow]] = defaultdict(deque)
    for row in kept.values():
        waiting[row.policy].append(row)
    found: dict[Entrant, GenerationRow] = {}
    for row in removed.values():
        own = waiting[row.policy]
        while own and own[0].generation < row.generation:
            first = own.popleft()
            found[first.entrant] = first
        found[row.entrant] = row
    return {**found, **kept}


def lineage(
    generations: Mapping[Entrant, GenerationRow], entrant: Entrant, *, agent_steps: int
) -> list[Stretch]:
    """Return the training behind some weights, oldest first.

    A copy continues from its donor's weights, so the donor's training until the copy counts, and
    the copying policy's own earlier training does not.

    Args:
        generations: All generations of a run.
        entrant: Policy and generation of the weights.
        agent_steps: Policy's agent steps when these weights were made.

    Raises:
        KeyError: If there is no such generation.
    """
    found: list[tuple[GenerationRow, int]] = []
    row: GenerationRow | None = generations[entrant]
    until = agent_steps
    while row is not None:
        # A generation counts only until its weights were copied: what a donor trained later is not
        # in the copy.
        found.append((row, max(until - row.agent_steps_begin, 0)))
        # A parent counts its own agent steps, so the copy is located in the parent's count.
        until = row.parent_agent_steps if row.parent_agent_steps is not None else 0
        row = generations.get(row.parent) if row.parent is not None else None
    # The loop has found parts from the newest to the oldest, but beginnings count from the oldest.
    stretches: list[Stretch] = []
    begin = 0
    for row, trained in reversed(found):
        stretches.append((row, begin, trained))
        begin += trained
    return stretches


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Generations of a run, including those whose rows were removed.

    Attributes:
        generations: All generations, by entrant; each policy's are in order of beginning.
        checkpoints: Agent steps of the checkpoints that each generation has made.
    """

    generations: Mapping[Entrant, GenerationRow]
    checkpoints: Mapping[Entrant, Collection[int]]

    @classmethod
    def of(cls, tables: Tables, events: Iterable[EventRow] = ()) -> History:
        """Return the history of a run, from its rows and from the events of removed rows.

        Args:
            tables: Rows of the run.
            events: Events of the run; only the kinds `REMOVED_KINDS` matter.
        """
        events = list(events)
        generations = _in_order(removed_generations(events), tables.generations)
        made: defaultdict[Entrant, set[int]] = defaultdict(set)
        for checkpoint in tables.checkpoints.values():
            entrant = checkpoint.trainee
            made[entrant].add(checkpoint.agent_steps)
        for policy, agent_steps, _, generation in removed_checkpoints(events):
            made[trainee_entrant(policy, generation=generation)].add(agent_steps)
        return cls(generations=generations, checkpoints=made)


def steps_since_parent(
    row: CheckpointRow,
    *,
    origins: Mapping[Digest, CheckpointRow],
    generations: Mapping[Entrant, GenerationRow],
    unknown: int = 0,
) -> int:
    """Return the agent steps trained between a checkpoint's parent and the checkpoint.

    Args:
        row: The checkpoint.
        origins: Checkpoints by their weights.
        generations: All generations.
        unknown: Answer for the first checkpoint of a generation that was not recorded.
    """
    if row.since_parent is not None:
        return row.since_parent
    parent = None if row.parent is None else origins.get(row.parent)
    if parent is not None and (parent.policy, parent.generation) == (row.policy, row.generation):
        return row.agent_steps - parent.agent_steps
    # The first checkpoint of a generation may have a donor as parent, whose agent steps are counted
    # apart, so the beginning of the generation is used.
    began = generations.get(row.trainee)
    return unknown if began is None else row.agent_steps - began.agent_steps_begin


def first_of_line(generations: Mapping[Entrant, GenerationRow], entrant: Entrant) -> int:
    """Return the number of the generation since which a policy's weights were not replaced.

    If the generation is not recorded, the answer is its own number.

    Args:
        generations: Generations of a run.
        entrant: Policy and generation.
    """
    row = generations.get(entrant)
    return policy_of_trainee(entrant)[1] if row is None else row.line_begin


def num_copies(generations: Table[Entrant, GenerationRow], policy: PolicyId) -> int:
    """Return how many copies of other policies' weights a policy has made."""
    rows = generations.by("policy").get(policy)
    # The count in the newest generation includes all earlier ones.
    return 0 if rows is None else next(reversed(rows.values())).copies


def line_of(
    generations: Mapping[Entrant, GenerationRow], payoff: Payoff, entrant: Entrant
) -> list[Entrant]:
    """Return the generations of a policy's line that have training results, oldest first.

    A line is the generations since the weights were last replaced, so their results are about
    ancestors of the current weights. The last one is ``entrant`` itself, with or without results.
    """
    policy, number = policy_of_trainee(entrant)
    first = first_of_line(generations, entrant)
    # Only generations with results are read, because a line of weeks has very many others.
    before = [one for one in payoff.generations(policy) if first <= one < number]
    return [*(trainee_entrant(policy, generation=one) for one in before), entrant]


def schedule_of(
    tables: Tables,
    policy_id: str,
    *,
    scheduled: ScheduledValues | None = None,
    history: History | None = None,
) -> tuple[ScheduleEntry, ...]:
    """Return the hyperparameters that a policy's weights were trained with, by agent steps.

    Agent steps count along the lineage. Generations without training are left out.

    Args:
        tables: Rows of a run.
        policy_id: Policy of the run.
        scheduled: Hyperparameters of its population that follow agent steps; None: none do.
        history: Generations, removed ones included; None: the tables have all.

    Raises:
        ConfigError: If there is no such policy, it has not trained, or the run recorded no
            generations.
    """
    policy = tables.policies.get(PolicyId(policy_id))
    if policy is None:
        raise ConfigError(
            f"the run has no policy {policy_id!r}{nearest(policy_id, tables.policies)}"
        )
    entrant = policy.trainee
    if entrant not in tables.generations:
        raise ConfigError(f"{policy_id}: the run has not recorded its generations")
    history = history or History.of(tables)
    stretches = lineage(history.generations, entrant, agent_steps=policy.agent_steps)
    trained = [stretch for stretch in stretches if stretch[-1] > 0]
    if not trained:
        raise ConfigError(f"{policy_id} has not trained yet: there is no schedule to replay")
    entries: list[ScheduleEntry] = []
    for stretch in trained:
        for agent_steps, values in _values(history, stretch, scheduled or ScheduledValues()):
            # A new entry is needed only where the values change.
            if agent_steps == stretch[1] or entries[-1].hyperparameters != values:
                entry = ScheduleEntry(agent_steps=agent_steps, hyperparameters=values)
                entries.append(entry)
    return tuple(entries)


def _values(
    history: History, stretch: Stretch, scheduled: ScheduledValues
) -> Iterator[tuple[int, dict[str, Value]]]:
    """Yield the hyperparameters of a stretch's assignments, with agent steps along the lineage."""
    row, begin, agent_steps = stretch
    yield begin, dict(row.hyperparameters)
    if not row.factors:
        return
    # Scheduled values change with each assignment, and an assignment begins at a checkpoint.
    for steps in sorted(history.checkpoints.get(row.entrant, ())):
        trained = steps - row.agent_steps_begin
        if 0 < trained < agent_steps:
            values = scheduled.values(row.hyperparameters, factors=row.factors, agent_steps=steps)
            yield begin + trained, values


CHECKPOINTS_REMOVED = "checkpoint_rows_removed"
"""Kind of event that names checkpoints whose rows were removed."""

GENERATIONS_REMOVED = "generation_rows_removed"
"""Kind of event that has the rows of generations which were removed."""

REMOVED_KINDS = (CHECKPOINTS_REMOVED, GENERATIONS_REMOVED)


def checkpoint_data(row: CheckpointRow) -> Json:
    """Return the data about a removed checkpoint's row that its event stores."""
    return [row.policy, row.agent_steps, row.assignment_id, row.generation]


def generation_data(row: GenerationRow) -> Json:
    """Return the data about a removed generation's row that its event stores: the whole row."""
    return asdict(row)


def removed_checkpoints(
    events: Iterable[EventRow],
) -> Iterator[tuple[PolicyId, int, AssignmentId, int]]:
    """Yield the removed checkpoints that events name; a damaged entry is skipped.

    Yields:
        As in `checkpoint_data`: the policy, its agent steps, the assignment that made the
        checkpoint, and the policy's generation.
    """
    for event in events:
        named = event.data.get("checkpoints") if event.kind == CHECKPOINTS_REMOVED else None
        for one in named if isinstance(named, list | tuple) else ():
            match one:
                case [str(policy), int(agent_steps), int(assignment), int(generation)]:
                    yield PolicyId(policy), agent_steps, AssignmentId(assignment), generation


def removed_generations(events: Iterable[EventRow]) -> dict[Entrant, GenerationRow]:
    """Return the removed generations that events store, in order of beginning.

    Raises:
        ValueError: If the data of a generation are damaged.
    """
    found: dict[Entrant, GenerationRow] = {}
    for event in events:
        rows = event.data.get("generations") if event.kind == GENERATIONS_REMOVED else None
        for data in rows if isinstance(rows, list | tuple) else ():
            try:
                row = convert(data, GenerationRow)
            except ValidationError as error:
                raise ValueError(str(error)) from None
            found[row.entrant] = row
    return found
