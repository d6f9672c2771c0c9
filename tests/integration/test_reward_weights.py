"""Reward weights from the command line: explored, trained with, recorded, shown."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.checkpoints.files import read_manifest
from arena.wire.messages import Train
from populations.storage.journal import JournalReader
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
