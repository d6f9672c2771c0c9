"""Lessons of a run of real processes, with the controller killed on the way."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from arena.wire.messages import Train
from populations.audit.verify import verify_run
from populations.controller.evolution.curriculum import LESSON_BEGAN
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from tests.faults.runs import check_left, document, events, run_with_kills

pytestmark = [pytest.mark.xdist_group("stops"), pytest.mark.timeout(400)]


def lessons(*, deterministic: bool) -> dict[str, object]:
    """Episodes of two, four and six steps, in cooperation; six in matches."""
    (settings,) = cast("dict[str, object]", document()["populations"]).values()
    return {
        **document(),
        "environment": {
            "id": "lessons:parallel_env",
            "num_envs": 4,
            "sides": {"all": ["a", "b"]},
            "curriculum": [
                {"until": {"agent_steps": 800}, "kwargs": {"length": 2}},
                {"until": {"return": 3.5}, "kwargs": {"length": 4}},
                {"kwargs": {"length": 6}},
            ],
        },
        "populations": {"player": settings},
        "deterministic": deterministic,
        "stop": {"agent_steps_per_policy": 4000},
    }


@pytest.mark.parametrize("deterministic", [False, True])
def test_each_lesson_begins_once_whatever_kills_the_controller(
    tmp_path: Path, deterministic: bool
) -> None:
    run = tmp_path / "run"
    # In each epoch, a lesson may have begun or be about to.
    run_with_kills(run, lessons(deterministic=deterministic), (16, 12, 9, 14))
    began = events(run, LESSON_BEGAN)
    assert [event.subject for event in began] == ["2", "3"]
    (_, second) = (event.data["values"] for event in began)
    assert second == {"player/p000": 4.0, "player/p001": 4.0}
    with JournalReader(run / JOURNAL) as reader:
        lesson_of = {
            row.assignment_id: row.message.lesson
            for row in reader.assignments(statuses=["finished"], kind="train")
            if isinstance(row.message, Train) and row.agent_steps
        }
        tallies = [(row.kind, row.assignment_id, row.tally) for row in reader.tallies()]
    assert set(lesson_of.values()) == {0, 1, 2}
    for kind, assignment, tally in tallies:
        # Episodes carried over assignments end in their own lesson; in cooperation each side of a
        # match plays an episode of its own.
        length = 2 * 6 if kind == "evaluate" else (2, 4, 6)[lesson_of[assignment]]
        assert tally.length_sum == tally.matches * length
    assert verify_run(run).faults == []
    check_left(run)
