"""PBT from the command line: immigrants, a replayed schedule, generations for Optuna."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from arena.wire.messages import Train
from populations.league.lineage import schedule_of
from populations.records.rows import AssignmentRow
from populations.storage.journal import JournalReader
from tests.integration.conftest import ARENA, Command

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]

SMALL = (
    "environment.num_envs=16",
    "environment.random_openings.share=0",
    "populations.player.network.hidden_sizes=[16]",
    "populations.player.hyperparameters.rollout_length=8",
    "ghosts.every_agent_steps=2000",
    "metrics.sinks=[]",
    "launcher=inline",
    "stop.duration_s=null",
    "seed=3",
)
EVOLVING = (
    "deterministic=true",
    "assignment.agent_steps=500",
    "populations.player.size=3",
    "pbt.ready_agent_steps=1000",
    "pbt.warm_up_agent_steps=1000",
    "pbt.min_matches=20",
    "pbt.min_rating_gap=0",
    "pbt.confidence=0",
    "pbt.fraction=0.5",
    "pbt.reference=false",
    "evaluation.share=0.4",
    "populations.player.pbt.immigration.probability=0.5",
    "stop.agent_steps_per_policy=8000",
)
"""Whoever is behind copies, or is replaced by an immigrant."""


def launch(run: Path, *arguments: str | Path) -> None:
    command = [*ARENA, "launch", "tictactoe", *SMALL, *arguments, "--run-dir", run]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in which policies exploited, explored and immigrated."""
    run = tmp_path_factory.mktemp("evolved") / "run"
    launch(run, *EVOLVING)
    return run


def training(run: Path) -> list[AssignmentRow]:
    with JournalReader(run / "journal.db") as reader:
        return reader.assignments(statuses=("finished",), kind="train")


@pytest.mark.slow
def test_a_fresh_immigrant_is_trained_on_with_the_policys_counters(
    arena: Command, arena_json: Callable[..., dict[str, Any]], evolved: Path
) -> None:
    arena("verify", evolved)
    lineage = arena_json("league", evolved, "lineage")
    immigrated = lineage["immigrants"]
    assert immigrated
    assert {event["from"] for event in immigrated} == {"fresh"}
    starts = [row.message for row in training(evolved) if not row.agent_steps]
    anew = {
        (trainee.policy, trainee.generation): trainee
        for message in starts
        if isinstance(message, Train)
        for trainee in message.trainees
        if trainee.agent_steps
    }
    assert set(anew) <= {(event["subject"], event["generation"]) for event in immigrated}
    assert anew
    assert all(trainee.checkpoint is None and trainee.learner_updates for trainee in anew.values())
    for policy in lineage["policies"]:
        assert policy["agent_steps"] >= 8000
        own = [row for row in lineage["generations"] if row["policy"] == policy["policy"]]
        assert [row["generation"] for row in own] == list(range(policy["generation"] + 1))


@pytest.mark.slow
@pytest.mark.long
def test_a_foreign_immigrant_brings_another_runs_weights(
    arena_json: Callable[..., dict[str, Any]], evolved: Path, tmp_path: Path
) -> None:
    foreign = f"{evolved}:player/p001"
    immigration = f"pbt.immigration={{probability: 1, from: ['{foreign}']}}"
    run = tmp_path / "run"
    launch(run, *EVOLVING, f"populations.player.{immigration}")
    events = arena_json("league", run, "lineage")["immigrants"]
    assert events
    assert {event["from"] for event in events} == {foreign}
    # All of that run's: its policy may have ended on a donor's weights.
    theirs = {
        row["weights_digest"] for row in arena_json("league", evolved, "checkpoints")["checkpoints"]
    }
    ours = arena_json("league", run, "checkpoints")["checkpoints"]
    came = [row for row in ours if row["weights_digest"] in theirs]
    assert {(row["policy"], row["generation"]) for row in came} >= {
        (event["subject"], event["generation"])
        for event in events
        if event["agent_steps"] < 3000  # later ones may not have had a turn any more
    }


@pytest.mark.slow
def test_a_replay_changes_hyperparameters_at_the_marks_of_the_lineage(
    arena: Command, arena_json: Callable[..., dict[str, Any]], evolved: Path, tmp_path: Path
) -> None:
    with JournalReader(evolved / "journal.db") as reader:
        tables = reader.load()
    schedules = {name: schedule_of(tables, name) for name in tables.policies}
    policy = max(schedules, key=lambda name: len(schedules[name]))
    expected = [entry.agent_steps for entry in schedules[policy]]
    assert len(expected) >= 2
    run = tmp_path / "run"
    launch(run, "stop.agent_steps_per_policy=8000", "--schedule-of", f"{evolved}:{policy}")
    arena("verify", run)
    rows = arena_json("league", run, "lineage")["generations"]
    replayed = arena_json("league", run, "hyperparameters")["changes"]
    marks = [event["mark"] for event in replayed if event["kind"] == "replayed"]
    assert [0, *marks] == expected
    reached = [row["agent_steps_begin"] for row in rows[1:]]
    assert {row["cause"] for row in rows} == {"start", "replay"}
    # A rollout has 16 x 8 decisions or fewer: so far beyond a mark it may end.
    assert all(0 <= begin - mark < 128 for mark, begin in zip(marks, reached, strict=True))
    wanted = {row["agent_steps_begin"]: row["hyperparameters"] for row in rows}
    for assignment in training(run):
        assert isinstance(assignment.message, Train)
        (trainee,) = assignment.message.trainees
        begin = max(mark for mark in wanted if mark <= trainee.agent_steps)
        assert trainee.hyperparameters == wanted[begin]
        if assignment.agent_steps:
            rate = assignment.metrics["optimizer/learning_rate"]
            assert rate == pytest.approx(wanted[begin]["learning_rate"], rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tictactoe", "--replay", "RUN:player/p009"], "player/p00"),
        (["tictactoe", "--replay", "RUN:prey/p000"], "player/p000"),
        (["tictactoe", "--replay", "RUN"], "RUN:POLICY"),
        (["connect_four", "--replay", "RUN:player/p000"], "classic/tictactoe-v3"),
        (["tictactoe", "pbt.immigration={probability: 0.1, from: [RUN:player/p009]}"], "p009"),
        (["tictactoe", "populations.player.pbt.fractoin=0.1"], "populations.player.pbt.fraction"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_replayed_or_imported_is_refused(
    arena: Command, evolved: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    filled = [argument.replace("RUN:player", f"{evolved}:player") for argument in arguments]
    filled = [argument.replace("RUN:prey", f"{evolved}:prey") for argument in filled]
    refused = arena("launch", *filled, "--run-dir", tmp_path / "run", code=2)
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_generations_are_written_as_an_optuna_study(
    arena: Command, arena_json: Callable[..., dict[str, Any]], evolved: Path, tmp_path: Path
) -> None:
    file = tmp_path / "study.db"
    document = arena_json("league", evolved, "hyperparameters", "--optuna", file)
    ((name, num_trials),) = document["studies"].items()
    storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
    try:
        study = optuna.load_study(study_name=name, storage=storage)
        assert len(study.trials) == num_trials
    finally:
        storage.remove_session()
        storage.engine.dispose()
    generations = arena_json("league", evolved, "hyperparameters")["generations"]
    assert len(generations) == num_trials
    refused = arena("league", evolved, "standings", "--optuna", tmp_path / "other.db", code=2)
    assert "belongs to the view hyperparameters" in refused.stderr
