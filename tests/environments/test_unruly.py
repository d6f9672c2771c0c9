"""Environments with the habits of others' simulators: checked, and trained in by a whole run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from populations.audit.verify import verify_run
from populations.records.rows import EventRow
from populations.records.tables import Tables
from populations.storage.journal import JournalReader
from tests.conftest import processes_with
from tests.integration.conftest import ARENA
from tests.support import run_process, wait_until

ASSETS = Path(__file__).parents[1] / "assets"
STEPS = 2000
TIMEOUT_S = 150.0
TEST = "UNRULY_TEST"
"""Marks, in the environment of processes, which test has started them."""
LOG_BYTES = 1_000_000
"""A log of some seconds is smaller, whatever an environment prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """An environment, and what must come of it.

    Attributes:
        name: Of the test.
        game: Of `tests/assets/unruly.py`.
        environment: Further keys of the section.
        variables: Of the processes.
        checked: Exit code of `arena envs check`.
        said: Text that the check prints.
        void: Whether the run has void episodes.
    """

    name: str
    game: str
    environment: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    checked: int = 0
    said: str = ""
    void: bool = False


IN_A_WORKER = {"num_env_workers": 1}
HABITS = (
    Habit(name="many-in-turn", game="Routes"),
    Habit(name="two-hundred-sides", game="Naming", environment={"kwargs": {"num_agents": 200}}),
    Habit(name="exit", game="Exits", checked=3, said="SystemExit", void=True),
    Habit(
        name="interrupt-in-a-worker",
        game="Exits",
        environment={"kwargs": {"by": "interrupt"}, **IN_A_WORKER},
        checked=3,
        said="KeyboardInterrupt",
        void=True,
    ),
    Habit(
        name="births",
        game="Grass",
        environment={"sides": {"all": ["*"]}},
    ),
    Habit(name="torch", game="Torch"),
    Habit(name="one-view", game="Prison"),
    Habit(name="bare", game="Bare"),
    Habit(name="prints", game="Prints"),
    Habit(name="simulator", game="Simulated", environment=IN_A_WORKER),
    Habit(name="wanders", game="Wanders"),
    Habit(name="licensed", game="Licensed", variables={"UNRULY_LICENCE": "1"}),
)


def test_there_are_twelve_of_them() -> None:
    assert len({habit.name for habit in HABITS}) == len(HABITS) == 12


def document(habit: Habit) -> dict[str, object]:
    """Two policies, trained by one learner for a few seconds."""
    return {
        "environment": {"id": f"unruly:{habit.game}", "num_envs": 4, **habit.environment},
        "populations": {
            "player": {
                "agents": ["*"],
                "size": 2,
                "network": {"hidden_sizes": [8]},
                "hyperparameters": {"rollout_length": 8, "num_epochs": 1, "num_minibatches": 1},
            }
        },
        "assignment": {"agent_steps": 500},
        "pbt": {"exploit": "none"},
        "metrics": {"sinks": []},
        "learners": 1,
        "stop": {"agent_steps_per_policy": STEPS},
    }


def arena(habit: Habit, tmp_path: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command where the environment is, as its author would; all it starts ends with it."""
    done = run_process(
        [*ARENA, *arguments],
        cwd=ASSETS,
        env={**os.environ, **habit.variables, TEST: str(tmp_path)},
        timeout_s=TIMEOUT_S,
    )
    marker = f"{TEST}={tmp_path}".encode()
    wait_until(lambda: not processes_with(marker), timeout_s=5.0)
    return done


def read(run: Path) -> tuple[Tables, list[EventRow]]:
    with JournalReader(run / "journal.db") as reader:
        return reader.load(), reader.events()


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.timeout(2 * TIMEOUT_S)
@pytest.mark.parametrize("habit", HABITS, ids=lambda habit: habit.name)
def test_a_check_tells_of_it_and_a_run_trains(habit: Habit, tmp_path: Path) -> None:
    kwargs = habit.environment.get("kwargs", {})
    keys = [f"environment.kwargs.{key}={value}" for key, value in kwargs.items()]
    checked = arena(habit, tmp_path, "envs", "check", f"unruly:{habit.game}", *keys, "--json")
    assert checked.returncode == habit.checked, (checked.stdout, checked.stderr)
    assert json.loads(checked.stdout)["schema"] == 1
    assert habit.said in checked.stdout

    config, run = tmp_path / "config.yaml", tmp_path / "run"
    config.write_text(json.dumps(document(habit)))
    launched = arena(habit, tmp_path, "launch", config, "--run-dir", run)
    assert launched.returncode == 0, launched.stderr
    assert "Traceback" not in launched.stderr
    assert sum(log.stat().st_size for log in (run / "logs").iterdir()) < LOG_BYTES

    tables, events = read(run)
    kinds = {event.kind for event in events}
    assert not kinds & {"quarantined", "exploited", "learner_lost", "learner_dismissed"}
    assert not kinds & {"assignment_failed", "learning_rate_halved", "run_failed"}
    alerts = {str(event.data["name"]) for event in events if event.kind == "alert"}
    assert ("void_episodes" in alerts) == habit.void
    for row in tables.policies.values():
        assert (row.state, row.generation) == ("active", 0)
        assert row.agent_steps >= STEPS
        assert row.learner_updates > 0
    assert verify_run(run).faults == []
