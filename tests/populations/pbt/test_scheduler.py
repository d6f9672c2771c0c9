from __future__ import annotations

import pytest

from populations.pbt.scheduler import decisions_document, next_mark, num_due, num_marks
from populations.pbt.settings import PbtConfig
from populations.records.rows import PolicyRow, PostponedRow, RunRow
from tests.populations.rows import make_policy, tables_with

PBT = PbtConfig(ready_agent_steps=200, warm_up_agent_steps=400)


def policy(*, agent_steps: int, ready_at: int) -> PolicyRow:
    return make_policy("player/p001", index=1, agent_steps=agent_steps, ready_at=ready_at)


@pytest.mark.parametrize(
    ("agent_steps", "ready_at", "remaining"),
    [
        (0, 0, 400),  # the warm-up is longer than the first period
        (250, 0, 150),
        (400, 0, 0),
        (430, 0, 0),  # overdue
        (430, 430, 200),  # just decided
        (629, 430, 1),
        (630, 430, 0),
        (350, 300, 150),  # a period that ends after the warm-up
    ],
)
def test_marks_by_hand(agent_steps: int, ready_at: int, remaining: int) -> None:
    row = policy(agent_steps=agent_steps, ready_at=ready_at)
    assert next_mark(row, PBT) == remaining
    marks = num_marks(row, PBT)
    assert (marks > 0) == (remaining == 0)


@pytest.mark.parametrize(
    ("agent_steps", "ready_at", "marks"),
    [
        (399, 0, 0),
        (400, 0, 1),
        (599, 0, 1),
        (600, 0, 2),  # it waited for a whole interval, so a mark was missed
        (1030, 430, 3),
    ],
)
def test_marks_that_pass_while_a_decision_waits_by_hand(
    agent_steps: int, ready_at: int, marks: int
) -> None:
    row = policy(agent_steps=agent_steps, ready_at=ready_at)
    assert num_marks(row, PBT) == marks


@pytest.mark.parametrize(
    ("agent_steps", "ready_at", "remaining", "marks"),
    [
        (800, 800, 200, 0),  # a tenth of 800 is less than 200
        (4000, 4000, 400, 0),
        (4399, 4000, 1, 0),
        (4400, 4000, 0, 1),
        (4799, 4000, 0, 1),
        (4800, 4000, 0, 2),
    ],
)
def test_intervals_grow_with_age_by_hand(
    agent_steps: int, ready_at: int, remaining: int, marks: int
) -> None:
    row = policy(agent_steps=agent_steps, ready_at=ready_at)
    assert (next_mark(row, PBT), num_marks(row, PBT)) == (remaining, marks)
    # Without growth they stay as they are.
    steady = PBT.model_copy(update={"ready_growth": 0.0})
    assert num_marks(row, steady) == max((agent_steps - ready_at) // 200, 0)


def test_a_decision_that_waits_is_due_and_not_made() -> None:
    waiting = policy(agent_steps=600, ready_at=0)
    # Its weights were replaced while it waited, so its clock begins anew.
    replaced = make_policy("player/p002", agent_steps=600, ready_at=600)
    tables = tables_with(run=RunRow(run="r", pbt_decisions=4, pbt_marks=7))
    for row in (waiting, replaced):
        tables.put(row)
        tables.put(PostponedRow(policy=row.policy, reason="unrated"))
    # It has passed its marks at 400 and 600.
    assert num_due(tables, pbt={"player": PBT}) == 7 + 2
    assert decisions_document(tables, pbt={"player": PBT}) == {
        "due": 9,
        "made": 4,
        "waiting": {waiting.policy: "unrated"},
    }
