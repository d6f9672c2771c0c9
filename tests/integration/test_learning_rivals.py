"""Rivals that learn in one assignment, in real processes: steps, kills, resumes, blame."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena.types import population_of
from arena.wire.messages import Train
from experiments.faults.killing import processes_of
from populations.records.rows import AssignmentRow, EventRow, TallyRow
from populations.storage.journal import JournalReader
from tests.integration.conftest import ARENA, Command
from tests.support import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("processes"),
]

ASSET = Path(__file__).parents[1] / "assets" / "two_sides.py"

SMALL: dict[str, Any] = {
    "size": 2,
    "network": {"hidden_sizes": [16]},
    "hyperparameters": {"rollout_length": 10, "learning_rate": 3e-3},
    "search_space": {},
}
HIDE: dict[str, Any] = {
    "environment": {
        "id": "two_sides:Hide",
        "num_envs": 16,
        "sides": {"seeker": ["seeker_*"], "hiders": ["hider_*"]},
        "outcome": {"threshold": 3.0, "side": "seeker"},
    },
    "populations": {
        "seeker": {"agents": ["seeker_*"], **SMALL},
        "hider": {"agents": ["hider_*"], **SMALL},
    },
    "matchmaking": {"rivals": "learning", "opponents": 4, "latest_ratio": 0.5},
    "assignment": {"agent_steps": 800},
    "ghosts": {"every_agent_steps": 1600},
    "pbt": {
        "ready_agent_steps": 1600,
        "warm_up_agent_steps": 1600,
        "min_matches": 8,
        "min_rating_gap": 0,
        "confidence": 0,
        "fraction": 0.5,
        "reference": False,
    },
    "evaluation": {"share": 0.2},
    "metrics": {"sinks": ["jsonl"]},
    "launcher": "local",
    "learners": 2,
    "stop": {"agent_steps_per_policy": 4000},
}
DETERMINISTIC: dict[str, Any] = {
    "deterministic": True,
    "launcher": "inline",
    "learners": 1,
    "evaluation": {"share": 0.1},
    "stop": {"agent_steps_per_policy": 1600},
}


def command(tmp_path: Path, run: Path, **changes: object) -> list[str]:
    shutil.copy(ASSET, tmp_path)
    # YAML as JSON, which has no anchors for what is there twice.
    (tmp_path / "config.yaml").write_text(json.dumps({**HIDE, **changes}), encoding="utf8")
    return [*ARENA, "launch", "config.yaml", "--run-dir", str(run)]


def launch(tmp_path: Path, run: Path, *, code: int = 0, **changes: object) -> None:
    done = subprocess.run(
        command(tmp_path, run, **changes),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stderr


def trained(run: Path) -> list[AssignmentRow]:
    with JournalReader(run / "journal.db") as reader:
        rows = list(reader.assignments(statuses=("finished",), kind="train"))
    return [row for row in rows if row.agent_steps]


def pairs(run: Path) -> list[Train]:
    messages = (row.message for row in trained(run))
    return [m for m in messages if isinstance(m, Train) and len(m.trainees) == 2]


def tallies(run: Path) -> list[TallyRow]:
    with JournalReader(run / "journal.db") as reader:
        return list(reader.tallies())


def events(run: Path, kind: str) -> list[EventRow]:
    with JournalReader(run / "journal.db") as reader:
        return [row for row in reader.events() if row.kind == kind]


def has_pairs(run: Path, *, number: int) -> bool:
    # Written once the journal has its tables.
    return (run / "status.json").is_file() and len(pairs(run)) >= number


def test_both_learn_in_the_same_assignments(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    launch(tmp_path, run)
    arena("verify", run)
    with JournalReader(run / "journal.db") as reader:
        tables = reader.load()
    made = {(row.assignment_id, row.policy): row.agent_steps for row in tables.checkpoints.values()}
    rows = [row for row in trained(run) if len(row.message.trainees) == 2]  # type: ignore[union-attr]
    assert len(rows) > 4
    for row in rows:
        assert isinstance(row.message, Train)
        # In the order of the populations, and each has steps, metrics and a checkpoint of its own.
        names = [population_of(trainee.policy) for trainee in row.message.trainees]
        assert names == ["seeker", "hider"]
        steps = [made[row.assignment_id, t.policy] - t.agent_steps for t in row.message.trainees]
        assert min(steps) > 0
        assert sum(steps) == row.agent_steps
        for trainee in row.message.trainees:
            assert f"{trainee.policy}/loss/policy" in row.metrics
        live = Counter(
            sum(player.weights is None for player in seating.players)
            for seating in row.message.opponents
        )
        assert live[2] >= 2, "a half of each one's four opponents"
    standings = arena_json("league", run, "standings")["populations"]
    for lines in standings.values():
        steps = [line["agent_steps"] for line in lines if line["kind"] == "policy"]
        assert len(steps) == 2
        assert all(count >= 4000 for count in steps)
    between = [
        row for row in tallies(run) if sum("#" in entrant for entrant in row.tally.entrants) == 2
    ]
    assert between
    assert all(row.kind == "train" for row in between)
    # Views of what trainees did to each other.
    for view in ("payoff", "matches", "lineage", "events", "status"):
        arena("league", run, view)
        arena_json("league", run, view)


def test_a_run_whose_processes_are_killed_goes_on(arena: Command, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(
        command(tmp_path, run, stop={"agent_steps_per_policy": 8000}),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: has_pairs(run, number=2), timeout_s=120.0)
    learners = processes_of(run)
    learners[0].kill()
    wait_until(lambda: events(run, "learner_lost"), timeout_s=60.0)
    before = len(pairs(run))
    wait_until(lambda: has_pairs(run, number=before + 1), timeout_s=120.0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not processes_of(run), timeout_s=30.0)
    before = len(pairs(run))
    done = subprocess.run(
        [*ARENA, "launch", "--resume", "--run-dir", str(run)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    arena("verify", run)
    assert len(pairs(run)) > before
    assert not events(run, "quarantined")
    with JournalReader(run / "journal.db") as reader:
        policies = reader.load().policies.values()
    assert all(row.agent_steps >= 8000 for row in policies)


def test_a_deterministic_run_repeats_and_ends_the_same_after_a_kill(
    arena: Command, tmp_path: Path
) -> None:
    plain, killed = tmp_path / "plain", tmp_path / "killed"
    launch(tmp_path, plain, **DETERMINISTIC)
    process = subprocess.Popen(
        command(tmp_path, killed, **DETERMINISTIC),
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: has_pairs(killed, number=2), timeout_s=120.0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(pairs(killed)) < len(pairs(plain)), "it was killed before its end"
    subprocess.run(
        [*ARENA, "launch", "--resume", "--run-dir", str(killed)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=300,
    )
    assert [row.tally for row in tallies(killed)] == [row.tally for row in tallies(plain)]
    assert [m.trainees for m in pairs(killed)] == [m.trainees for m in pairs(plain)]
    for run in (plain, killed):
        arena("verify", run)


def test_numbers_that_break_are_held_against_their_policy_alone(
    arena: Command, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    exploding = {**SMALL, "hyperparameters": {"rollout_length": 10, "learning_rate": 1e30}}
    launch(
        tmp_path,
        run,
        populations={**HIDE["populations"], "hider": {"agents": ["hider_*"], **exploding}},
        pbt={"exploit": "none", "explore": "none"},
        stop={"agent_steps_per_policy": 3000},
    )
    arena("verify", run)
    failures = events(run, "assignment_failed")
    assert failures
    assert {population_of(str(event.data["policy"])) for event in failures} == {"hider"}
    out = Counter(event.subject for event in events(run, "quarantined"))
    # Once with half the rate, then out.
    assert out == {"hider/p000": 2, "hider/p001": 2}
    with JournalReader(run / "journal.db") as reader:
        rows = reader.load().policies.values()
    assert {row.state for row in rows if row.population == "seeker"} == {"active"}
    assert all(row.agent_steps >= 3000 for row in rows if row.population == "seeker")


def test_a_simulated_league_of_rivals(arena_json: Callable[..., dict[str, Any]]) -> None:
    found = [
        arena_json(
            "simulate",
            "simple_tag",
            f"matchmaking.rivals={rivals}",
            "stop.agent_steps_per_policy=200000",
            "stop.duration_s=null",
        )
        for rivals in ("learning", "learning", "frozen")
    ]
    decisions = [{**document, "decisions_per_s": 0} for document in found]
    assert decisions[0] == decisions[1]
    assert decisions[0] != decisions[2]
    assert found[0]["policies"] == found[2]["policies"] == 4
