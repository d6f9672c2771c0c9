"""Sums over a run's details, of which only the sums are in memory.

Tests: `tests/populations/audit/test_verify.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from arena.types import AssignmentId, Entrant, PolicyId
from arena.wire.messages import Train
from populations.audit.adoption import ADOPTED
from populations.league.removed_rows import removed_checkpoints, removed_generations
from populations.records.rows import AssignmentRow, CheckpointRow, EventRow, GenerationRow

Made = tuple[AssignmentId, PolicyId]
"""A checkpoint, by the assignment that made it and the policy."""


@dataclass(slots=True, kw_only=True)
class AssignmentSums:
    """Sums over assignments.

    Attributes:
        finished: Number of finished ones.
        training: Number of finished training assignments with agent steps.
        evaluation: Number of finished evaluation assignments.
        agent_steps: Agent steps of finished ones.
        matches: Matches of finished ones.
        trained: Agent steps of each policy in finished ones.
        matches_of: Matches of each assignment.
        last: Highest id; 0 without one.
    """

    finished: int = 0
    training: int = 0
    evaluation: int = 0
    agent_steps: int = 0
    matches: int = 0
    trained: Counter[PolicyId] = field(default_factory=Counter)
    matches_of: dict[AssignmentId, int] = field(default_factory=dict)
    last: int = 0


def add_assignments(
    rows: Iterable[AssignmentRow],
    checkpoints: Mapping[str, CheckpointRow],
    *,
    removed: Mapping[Made, int],
) -> AssignmentSums:
    """Return the sums over all assignments.

    Args:
        rows: All assignments.
        checkpoints: Recorded checkpoints.
        removed: Agent steps of those whose rows were removed.
    """
    # An assignment with several trainees stores only the sum of their steps, so the steps of each
    # are the difference between its checkpoint and its counter at the start.
    made = {(row.assignment_id, row.policy): row.agent_steps for row in checkpoints.values()}
    made.update(removed)
    sums = AssignmentSums()
    for row in rows:
        sums.matches_of[row.assignment_id] = row.matches
        sums.last = max(sums.last, row.assignment_id)
        if row.status != "finished":
            continue
        sums.finished += 1
        sums.agent_steps += row.agent_steps
        sums.matches += row.matches
        if not isinstance(row.message, Train):
            sums.evaluation += 1
            continue
        # Assignments that only published an initial checkpoint are not counted.
        sums.training += row.agent_steps > 0
        trainees = row.message.trainees
        for trainee in trainees:
            after = made.get((row.assignment_id, trainee.policy), trainee.agent_steps)
            alone = len(trainees) == 1
            sums.trained[trainee.policy] += (
                row.agent_steps if alone else after - trainee.agent_steps
            )
    return sums


@dataclass(slots=True, kw_only=True)
class EventSums:
    """Sums over events.

    Attributes:
        number: Number of events.
        has_gap: Whether their sequence numbers have gaps.
        donors: Donor of each event ``exploited``, by its sequence.
        adopted: Agent steps of each policy in assignments of which only a checkpoint is left.
        removed: Agent steps of checkpoints whose rows were removed.
        generations: Generations whose rows were removed.
    """

    number: int = 0
    has_gap: bool = False
    donors: dict[int, object] = field(default_factory=dict)
    adopted: Counter[PolicyId] = field(default_factory=Counter)
    removed: dict[Made, int] = field(default_factory=dict)
    generations: dict[Entrant, GenerationRow] = field(default_factory=dict)


def add_events(rows: Iterable[EventRow]) -> EventSums:
    """Return the sums over all events."""
    sums = EventSums()
    for row in rows:
        sums.number += 1
        sums.has_gap = sums.has_gap or row.sequence != sums.number
        if row.kind == "exploited":
            sums.donors[row.sequence] = row.data.get("donor")
        before, after = row.data.get("agent_steps_before"), row.data.get("agent_steps")
        if row.kind == ADOPTED and isinstance(before, int) and isinstance(after, int):
            sums.adopted[PolicyId(row.subject)] += after - before
        for gone in removed_checkpoints([row]):
            sums.removed[gone.assignment_id, gone.policy] = gone.agent_steps
        sums.generations.update(removed_generations([row]))
    return sums
