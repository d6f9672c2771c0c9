"""Centralized critics from the command line: learner processes, a resume, an export."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from arena.checkpoints.files import read_manifest
from arena.core import ActorInput
from arena.export.actor import ExportedActor
from tests.integration.conftest import ARENA, Command

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("processes"),
]


@pytest.mark.parametrize("critic", ["joint", "state"])
def test_simple_spread_learns_with_a_critic_that_sees_all(
    critic: str, arena: Command, tmp_path: Path
) -> None:
    pytest.importorskip("mpe2")
    config = {
        "environment": {
            "id": "mpe2/simple_spread_v3",
            "kwargs": {"max_cycles": 8},
            "num_envs": 16,
            "sides": {"team": ["*"]},
        },
        "populations": {
            "agent": {
                "size": 1,
                "network": {"hidden_sizes": [16], "critic": critic},
                "hyperparameters": {"rollout_length": 8},
            }
        },
        "launcher": "local",
        "learners": 1,
        "assignment": {"agent_steps": 600},
        "ghosts": {"every_agent_steps": 1200},
        "metrics": {"sinks": ["jsonl"]},
        "stop": {"agent_steps_per_policy": 1800},
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config), encoding="utf8")
    run = tmp_path / "run"
    launch = [*ARENA, "launch", "--run-dir", str(run)]
    for more in (["config.yaml"], ["--resume", "stop.agent_steps_per_policy=3000"]):
        subprocess.run([*launch, *more], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    arena("verify", run)
    manifests = {
        path.parent: read_manifest(path.parent)
        for path in run.glob("populations/*/*/*/*/manifest.json")
    }
    newest = max(manifests, key=lambda path: manifests[path].agent_steps)
    assert manifests[newest].agent_steps >= 3000
    assert {manifest.network.critic for manifest in manifests.values()} == {critic}
    weights = load_file(newest / "weights.safetensors")
    # Three agents of eighteen numbers, and which of the three.
    assert weights["critic_normalizer.mean"].shape == (54,)
    assert weights["critic.trunk.0.weight"].shape == (16, 57)
    arena("export", run, "--to", tmp_path / "champion")
    exported = ExportedActor(tmp_path / "champion", greedy=True)
    action = exported.act(
        ActorInput(observation=torch.zeros(2, 18)), agent="", generator=torch.Generator()
    ).action
    assert action.shape == (2,)
