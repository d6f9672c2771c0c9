"""Schedules of hyperparameters, by real processes, with the controller killed on the way."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from arena.wire.messages import Train
from populations.audit.verify import verify_run
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from tests.faults.runs import check_left, document, run_with_kills

pytestmark = [pytest.mark.xdist_group("stops"), pytest.mark.timeout(400)]

OVER = 2000
STEPS = {0: 0.02, 512: 0.01, 1200: 0.0}


def scheduled() -> dict[str, object]:
    """A learning rate that falls on a line, and an entropy that falls in steps."""
    (settings,) = cast("dict[str, dict[str, object]]", document()["populations"]).values()
    fixed = cast("dict[str, object]", settings["hyperparameters"])
    schedules = {
        "learning_rate": {"linear": [1e-3, 1e-5], "over_agent_steps": OVER},
        "entropy_coef": {"steps": STEPS},
    }
    return {
        **document(),
        "populations": {"player": {**settings, "hyperparameters": {**fixed, **schedules}}},
        "stop": {"agent_steps_per_policy": 3000},
    }


def test_every_assignment_has_the_values_of_its_agent_steps_whatever_kills_the_controller(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    run_with_kills(run, scheduled(), (11, 9, 14))
    with JournalReader(run / JOURNAL) as reader:
        messages = [
            row.message
            for row in reader.assignments(statuses=["finished"], kind="train")
            if isinstance(row.message, Train) and row.agent_steps
        ]
    seen = set()
    factors: dict[str, float] = {}
    for message in messages:
        (trainee,) = message.trainees
        done = min(trainee.agent_steps / OVER, 1.0)
        # 1e-3 + (1e-5 - 1e-3) * done, times the factor that the policy was given at the start
        scheduled_rate = 1e-3 - 9.9e-4 * done
        rate = float(trainee.hyperparameters["learning_rate"])
        factor = factors.setdefault(trainee.policy, rate / scheduled_rate)
        # Within the bounds of the search space.
        assert rate == pytest.approx(max(scheduled_rate * factor, 1e-5), rel=1e-9)
        entropy = next(value for at, value in reversed(STEPS.items()) if at <= trainee.agent_steps)
        assert trainee.hyperparameters["entropy_coef"] == entropy
        seen.add(entropy)
    assert factors["player/p000"] == pytest.approx(1.0)
    assert len(set(factors.values())) == 2
    assert seen == set(STEPS.values())
    assert verify_run(run).faults == []
    check_left(run)
