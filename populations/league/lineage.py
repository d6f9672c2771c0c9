"""Where a policy's weights come from, generation by generation, and the schedule that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from arena.errors import ConfigError
from arena.types import Entrant, PolicyId, trainee_entrant
from populations.config.sections import ScheduleEntry
from populations.records.rows import GenerationRow
from populations.records.tables import Tables
from populations.yaml_documents import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Training that is in some weights: a part of one generation.

    Attributes:
        generation: Whose hyperparameters were in use.
        begin: Agent steps that were in the weights before it, counted along the lineage.
        agent_steps: Trained in it.
    """

    generation: GenerationRow
    begin: int
    agent_steps: int


def lineage(
    generations: Mapping[Entrant, GenerationRow], entrant: Entrant, *, agent_steps: int
) -> list[Stretch]:
    """The training behind some weights, oldest first.

    A copy goes on from its donor's weights as they were then, so of the donor only what it had
    trained until then counts, and of the copier nothing from before.

    Args:
        generations: All of a run.
        entrant: Whose weights: policy and generation.
        agent_steps: The policy's count when they were made.

    Raises:
        KeyError: If there is no such generation.
    """
    found: list[tuple[GenerationRow, int]] = []
    row: GenerationRow | None = generations[entrant]
    until = agent_steps
    while row is not None:
        found.append((row, max(until - row.agent_steps_begin, 0)))
        until = row.parent_agent_steps if row.parent_agent_steps is not None else 0
        row = generations.get(row.parent) if row.parent is not None else None
    stretches, begin = [], 0
    for row, trained in reversed(found):
        stretches.append(Stretch(generation=row, begin=begin, agent_steps=trained))
        begin += trained
    return stretches


KEPT = ("explore", "quarantine", "replay")
"""Causes of generations that go on from the policy's own weights."""


def line_of(generations: Mapping[Entrant, GenerationRow], entrant: Entrant) -> list[Entrant]:
    """Return the generations of a policy since its weights were last replaced, oldest first.

    What is known of its play in them is about the weights that it goes on from. The last one is
    ``entrant`` itself, the only one where a run has not recorded its generations.
    """
    line = [entrant]
    while (row := generations.get(line[-1])) is not None and row.cause in KEPT:
        if row.parent is None:
            break
        line.append(row.parent)
    return line[::-1]


def schedule_of(tables: Tables, policy_id: str) -> tuple[ScheduleEntry, ...]:
    """Which hyperparameters a policy's weights were trained with, and from when on.

    Generations in which nothing was trained are left out.

    Args:
        tables: A run's rows.
        policy_id: One of its policies.

    Raises:
        ConfigError: If there is no such policy, it has not trained, or the run recorded no
            generations.
    """
    policy = tables.policies.get(PolicyId(policy_id))
    if policy is None:
        raise ConfigError(
            f"the run has no policy {policy_id!r}{nearest(policy_id, tables.policies)}"
        )
    entrant = trainee_entrant(policy.policy, generation=policy.generation)
    if entrant not in tables.generations:
        raise ConfigError(f"{policy_id}: the run has not recorded its generations")
    stretches = lineage(tables.generations, entrant, agent_steps=policy.agent_steps)
    trained = [stretch for stretch in stretches if stretch.agent_steps > 0]
    if not trained:
        raise ConfigError(f"{policy_id} has not trained yet: there is no schedule to replay")
    return tuple(
        ScheduleEntry(
            agent_steps=stretch.begin, hyperparameters=dict(stretch.generation.hyperparameters)
        )
        for stretch in trained
    )
