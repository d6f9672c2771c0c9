"""Lessons of ``environment.curriculum``, through which all policies of a run go together.

Tests: `tests/populations/controller/evolution/test_curriculum.py`.
"""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from arena.config import LessonEnd
from populations.controller.state import goals
from populations.controller.state.epoch import Phase, Settings
from populations.controller.state.state import Indexes
from populations.controller.state.transaction import Transaction
from populations.records.rows import Json, PolicyRow

LESSON_BEGAN = "lesson_began"


def advance(settings: Settings, indexes: Indexes, phase: Phase, tx: Transaction) -> None:
    """Begin the next lesson if every policy in training has reached the end of the present one."""
    curriculum, run = settings.config.environment.curriculum, tx.tables.run
    if phase.name != "training" or run.lesson >= len(curriculum) - 1:
        return
    until = curriculum[run.lesson].until
    assert until is not None, "each lesson but the last has an end"
    # A quarantined policy with a pending copy counts, because it becomes active again.
    rows = [row for row in tx.tables.policies.values() if row.state == "active" or row.pending]
    # This runs at every event, so `all` ends at the first policy that has not reached the end.
    if not rows or not all(_has_reached(indexes, row, until) for row in rows):
        return
    # Values are measured before the lesson changes, because they are about the one that ends.
    values: Json = {row.policy: measure(indexes, row, until) for row in rows}
    lesson = run.lesson + 1
    tx.put(replace(run, lesson=lesson))
    tx.add_event(
        LESSON_BEGAN,
        # Events are for users, so they count lessons from 1.
        str(lesson + 1),
        lessons=len(curriculum),
        agent_steps=run.agent_steps,
        kwargs=cast("Json", dict(settings.setup.spec.lessons[lesson])),
        reason=_said(until),
        values=values,
    )


def measure(indexes: Indexes, policy: PolicyRow, until: LessonEnd) -> float | None:
    """Return a policy's value of the quantity that ends the present lesson; None: not known yet."""
    if until.agent_steps is not None:
        return policy.agent_steps
    if until.rating is not None:
        return goals.bound_at_any_time(indexes.fits, policy)
    return indexes.goals.mean_return(policy, lesson=indexes.tables.run.lesson)


def _has_reached(indexes: Indexes, policy: PolicyRow, until: LessonEnd) -> bool:
    value = measure(indexes, policy, until)
    return value is not None and value >= until.value


def _said(until: LessonEnd) -> str:
    """Return a sentence about what every active policy has reached."""
    if until.agent_steps is not None:
        return f"every active policy has done {until.agent_steps} agent steps"
    if until.rating is not None:
        return f"every active policy's rating is above {until.rating:g}, by a lower bound"
    return f"every active policy's mean return in the lesson is {until.value:g} or more"
