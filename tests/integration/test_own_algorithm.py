"""A user's own algorithm learns beside PPO in one league, in learner processes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from arena.checkpoints.files import read_manifest
from arena.checkpoints.tensors import load_checkpoint
from arena.types import CheckpointRef
from tests.integration.conftest import ARENA, Command

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("processes"),
]

ASSET = Path(__file__).parents[1] / "assets" / "dqn.py"

CONFIG: dict[str, object] = {
    "environment": {"id": "classic/tictactoe-v3", "num_envs": 64},
    "populations": {
        "deep_q": {
            "agents": ["player_1"],
            "size": 2,
            "network": {"hidden_sizes": [64], "normalize_observations": False},
            "algorithm": "dqn:Dqn",
            "algorithm_settings": {"capacity": 5000},
        },
        "proximal": {
            "agents": ["player_2"],
            "size": 2,
            "network": {"hidden_sizes": [64], "normalize_observations": False},
            "hyperparameters": {"learning_rate": 2e-3, "rollout_length": 8},
        },
    },
    "learners": 2,
    "assignment": {"agent_steps": 10_000},
    "evaluation": {"share": 0.2},
    "ghosts": {"every_agent_steps": 20_000},
    "metrics": {"sinks": []},
    "stop": {"agent_steps_per_policy": 60_000},
}


def test_dqn_learns_beside_ppo(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copy(ASSET, tmp_path)
    (tmp_path / "both.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf8")
    run = tmp_path / "run"
    subprocess.run(
        [*ARENA, "launch", "both.yaml", "--run-dir", str(run)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=300,
    )
    arena("verify", run)
    for population in ("deep_q", "proximal"):
        standings = arena_json("league", run)["populations"][population]
        policies = [line for line in standings if line["kind"] == "policy"]
        assert len(policies) == 2
        # Both have learned to beat uniformly random play, which is at 0.
        assert max(line["rating"] for line in policies) > 100.0
    checkpoint = max(run.glob("populations/deep_q/*/checkpoints/*/manifest.json")).parent
    manifest = read_manifest(checkpoint)
    key = str(checkpoint.relative_to(run))
    _, weights, state = load_checkpoint(run, CheckpointRef(digest=manifest.digest, key=key))
    # Checkpoints contain the network, the target network and Adam's state, but not the replay
    # buffer.
    assert set(manifest.hyperparameters) >= {"temperature", "target_rate"}
    assert {name.split(".")[0] for name in state} == {"exp_avg", "exp_avg_sq", "step", "target"}
    assert not torch.equal(state["target.head.weight"], weights["head.weight"])
    assert manifest.learner_updates > 0
