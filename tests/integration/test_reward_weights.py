"""Reward weights from the command line: explored, trained with, recorded, shown."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from arena.checkpoints.files import read_manifest
from arena.environment_spec import EnvironmentRequest
from arena.envs.inspect import inspect_environment
from arena.metrics.jsonl import SEAL
from arena.wire.messages import Train
from docs.generate.metrics import patterns
from populations.config.run_config import validate_config
from populations.config.run_file import new_run_file
from populations.controller.server.run_directory import OpenRun, create_run
from populations.controller.server.server import Server, utc_now
from populations.launchers.make import make_launcher
from populations.storage.journal import JournalReader
from populations.storage.lock import RunLock
from tests.integration.conftest import ARENA, Command

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]

ASSET = Path(__file__).parents[1] / "assets" / "reward_parts.py"
GENE = "reward_weights.near"

CONFIG: dict[str, object] = {
    "environment": {
        "id": "reward_parts:PartsAtOnce",
        "num_envs": 16,
        "reward_weights": {"win": 1.0, "near": 0.1},
    },
    "populations": {
        "player": {
            "agents": ["a", "b"],
            "size": 3,
            "network": {"hidden_sizes": [16]},
            "hyperparameters": {"rollout_length": 8},
            "search_space": {GENE: {"low": 0.01, "high": 1.0, "log": True}},
        }
    },
    "launcher": "inline",
    "deterministic": True,
    "assignment": {"agent_steps": 500},
    "pbt": {
        "ready_agent_steps": 1000,
        "warm_up_agent_steps": 1000,
        "min_matches": 20,
        "min_rating_gap": 0,
        "confidence": 0,
        "fraction": 0.5,
        "reference": False,
    },
    "evaluation": {"share": 0.4},
    "ghosts": {"every_agent_steps": 2000},
    "metrics": {"sinks": []},
    "stop": {"agent_steps_per_policy": 2500},
}


@pytest.mark.slow
def test_weights_are_genes_of_a_real_run(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copy(ASSET, tmp_path)
    (tmp_path / "parts.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf8")
    run = tmp_path / "run"
    subprocess.run(
        [*ARENA, "launch", "parts.yaml", "--run-dir", str(run)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    arena("verify", run)
    lineage = arena_json("league", run, "lineage")
    assert any(row["generation"] for row in lineage["generations"])
    shown = arena_json("league", run, "hyperparameters")["policies"]
    weights = [row[GENE] for row in shown.values()]
    assert len(weights) == 3
    assert all(0.01 <= weight <= 1.0 for weight in weights)
    assert {row["reward_weights.win"] for row in shown.values()} == {1.0}
    with JournalReader(run / "journal.db") as reader:
        rows = reader.assignments(statuses=("finished",), kind="train")
    told = {
        trainee.hyperparameters[GENE]
        for row in rows
        if isinstance(row.message, Train)
        for trainee in row.message.trainees
    }
    assert len(told) > 3  # more than the three that the policies began with
    recorded = {
        read_manifest(path.parent).hyperparameters[GENE]
        for path in run.glob("populations/player/*/checkpoints/*/manifest.json")
    }
    assert recorded <= told


ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "tests" / "assets"
CURVES_CONFIG: dict[str, object] = {
    "environment": {"id": "own_figures:FiguresInTurns", "num_envs": 8},
    "populations": {
        "player": {
            "agents": ["a", "b"],
            "size": 2,
            "network": {"hidden_sizes": [8]},
            "hyperparameters": {"rollout_length": 8, "num_epochs": 1, "num_minibatches": 1},
        }
    },
    "assignment": {"agent_steps": 256},
    "ghosts": {"every_agent_steps": 512},
    "pbt": {"exploit": "none"},
    "evaluation": {"share": 0.2},
    "metrics": {"sinks": ["tensorboard", "jsonl", "sinks:Kept", "sinks:Broken"]},
    "launcher": "inline",
    "device": "cpu",
    "stop": {"agent_steps_per_policy": 1024},
}


def serve(run: Path) -> None:
    with RunLock(run), OpenRun(run) as opened, make_launcher(opened) as made:
        Server(
            run_dir=run,
            state=opened.state,
            journal=opened.journal,
            transport=made[0],
            launcher=made[1],
            sinks=opened.sinks,
        ).run()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two policies in an environment that reports figures and never pays."""
    run = tmp_path_factory.mktemp("curves") / "run"
    run.mkdir()
    spec = inspect_environment(
        EnvironmentRequest("own_figures:FiguresInTurns", launch_directory=str(ASSETS))
    )
    run_file = new_run_file(
        validate_config(CURVES_CONFIG), spec, name="curves", launch_directory=str(ASSETS)
    )
    create_run(run, run_file, initial_weights={}, utc=utc_now())
    serve(run)
    return run


def curves(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """All curves of a directory, as TensorBoard reads them."""
    reader = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    reader.Reload()
    return {
        tag: [(point.step, point.value) for point in reader.Scalars(tag)]
        for tag in reader.Tags()["scalars"]
    }


def unexplained(names: Iterable[str]) -> list[str]:
    known = patterns()
    return [name for name in names if not any(pattern.fullmatch(name) for pattern in known)]


def test_tensorboards_reader_lists_the_curves_of_a_run(run: Path) -> None:
    for policy in ("player/p000", "player/p001"):
        found = curves(run / "tensorboard" / policy)
        assert {
            "loss/policy", "policy/entropy", "episode/count", "reward/max", "observation/spread",
            "environment/sum_mean", "environment/sum_deviation", "environment/lucky_max",
            "hyperparameter/learning_rate", "hyperparameter/gamma", "pbt/generation_count",
            "pbt/copies_count", "league/ghosts_count", "rating/mean_elo", "rating/low_elo",
            "rating/high_elo", "evaluation/score_mean", "evaluation/return_mean",
        } <= set(found)  # fmt: skip
        assert "episode/return_mean" not in found or 0.0 not in dict(found["episode/return_mean"])
        assert found["loss/policy"][-1][0] >= 1024
        for points in found.values():
            steps = [step for step, _ in points]
            assert steps == sorted(steps)
            assert all(math.isfinite(value) for _, value in points)
        assert dict(found["environment/sum_max"]).popitem()[1] == 2.0
        assert unexplained(found) == []
    of_run = curves(run / "tensorboard" / "run")
    assert unexplained(of_run) == []
    assert of_run["run/ghosts_count"][-1][1] >= 3.0
    assert "champion/player_low_elo" in of_run
    against_random = {
        tag
        for directory in ("player/p000", "player/p001", "run")
        for tag in curves(run / "tensorboard" / directory)
        if tag.endswith("_vs_random")
    }
    assert {"evaluation/score_vs_random", "evaluation/return_vs_random"} <= against_random


@pytest.mark.slow
def test_every_sink_is_told_the_same(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    told = [
        [line["policy"], line["agent_steps"], sorted(set(line) - {"policy", "agent_steps", SEAL})]
        for line in lines
    ]
    *kept, last, _ = (run / "kept.txt").read_text().splitlines()
    assert [json.loads(line) for line in kept] == told
    assert last == "closed"
    assert {policy for policy, _, _ in told} == {"player/p000", "player/p001", "run"}
