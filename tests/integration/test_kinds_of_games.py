"""Runs with critics, with many sides and with mixed teammates, from the command line."""

from __future__ import annotations

import csv
import io
import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from arena.checkpoints.files import read_manifest
from arena.core import ActorInput
from arena.export.actor import ExportedActor
from populations.storage.journal import JournalReader
from tests.assets.teammates import document
from tests.integration.conftest import ARENA, Command, launch_config
from tests.support import tallies_of, wait_until

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
    # The critic sees three agents of eighteen numbers, and which of the three decides.
    assert weights["critic_normalizer.mean"].shape == (54,)
    assert weights["critic.trunk.0.weight"].shape == (16, 57)
    arena("export", run, "--to", tmp_path / "champion")
    exported = ExportedActor(tmp_path / "champion", greedy=True)
    action = exported.act(
        ActorInput(observation=torch.zeros(2, 18)), agent="", generator=torch.Generator()
    ).action
    assert action.shape == (2,)


ASSET = Path(__file__).parents[1] / "assets" / "many_sides.py"


def launch(directory: Path, environment: str, *, agent_steps: int) -> Path:
    """Run until each policy has so many agent steps, and return the run's directory."""
    shutil.copy(ASSET, directory)
    config = {
        "environment": {"id": f"many_sides:{environment}", "num_envs": 8},
        "populations": {
            "p": {
                "agents": ["*"],
                "size": 2,
                "network": {"hidden_sizes": [8]},
                "hyperparameters": {"rollout_length": 8, "learning_rate": 0.01},
            }
        },
        "launcher": "local",
        "learners": 1,
        "evaluation": {"share": 0.4},
        "metrics": {"sinks": ["jsonl"]},
        "assignment": {"agent_steps": agent_steps // 4},
        "ghosts": {"every_agent_steps": agent_steps // 2},
        "stop": {"agent_steps_per_policy": agent_steps},
    }
    return launch_config(config, directory)


@pytest.mark.parametrize(
    ("environment", "num_sides", "agent_steps"), [("InTurn", 22, 8000), ("AtOnce", 200, 40000)]
)
def test_a_run_of_many_sides_trains_evaluates_and_is_exported(
    arena: Command,
    arena_json: Callable[..., dict[str, Any]],
    tmp_path: Path,
    environment: str,
    num_sides: int,
    agent_steps: int,
) -> None:
    run = launch(tmp_path, environment, agent_steps=agent_steps)
    arena("verify", run)
    with JournalReader(run / "journal.db") as reader:
        assert not list(reader.assignments(statuses=("failed",)))
        evaluated = [row.tally for row in reader.tallies() if row.kind == "evaluate"]
    assert {len(tally.entrants) for tally in evaluated} == {num_sides}
    between = [tally for tally in evaluated if len(set(tally.entrants)) == 2]
    assert between
    for tally in between:
        (pair,) = tally.pairs
        # A player on a side of its own is compared with all other sides in each match.
        assert pair.wins + pair.draws + pair.losses == tally.matches * (num_sides - 1)
    (lines,) = arena_json("league", run, "standings")["populations"].values()
    rated = {line["player"]: line for line in lines}
    best = max(
        (line for line in lines if line["kind"] == "policy"), key=lambda line: line["rating"]
    )
    # It takes the largest number nearly always, while random play chooses uniformly.
    assert best["rating_low"] > rated["bot:random"]["rating"]
    assert best["matches"] <= sum(tally.matches for tally in evaluated)
    (home, away) = arena_json("evaluate", run, "bot:random", "--matches", "8")["pairs"]
    # Against random play it wins two comparisons of three and draws the third.
    assert home["score"] > 0.7
    assert away["score"] < 0.3
    arena("export", run, "--to", tmp_path / "exported", "--matches", "4")


ROOT = Path(__file__).parents[2]


def command(tmp_path: Path, run: Path, *, teammates: str = "mixed") -> list[str]:
    config = document(teammates, seed=1, size=2, agent_steps=5000)
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(config), encoding="utf8")
    return [*ARENA, "launch", str(file), "assignment.agent_steps=1000", "--run-dir", str(run)]


def test_a_killed_run_ends_as_one_that_was_not(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    plain, killed = tmp_path / "plain", tmp_path / "killed"
    subprocess.run(command(tmp_path, plain), cwd=ROOT, check=True, capture_output=True, timeout=300)
    process = subprocess.Popen(
        command(tmp_path, killed),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # The status file is written once the journal has its tables.
    wait_until(lambda: (killed / "status.json").is_file(), timeout_s=120.0)
    wait_until(lambda: len(tallies_of(killed)) > 20, timeout_s=120.0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(tallies_of(killed)) < len(tallies_of(plain)), "it was killed before its end"
    arena("launch", "--resume", "--run-dir", killed)
    assert [row.tally for row in tallies_of(killed)] == [row.tally for row in tallies_of(plain)]
    for run in (plain, killed):
        arena("verify", run)
    shown = arena_json("league", plain, "cross-play")["cross_play"]
    assert {row["player"] for row in shown} == {"player/p000", "player/p001"}
    assert all(0.0 <= row["score"] <= 1.0 for row in shown)
    rows = list(csv.DictReader(io.StringIO(arena("league", plain, "cross-play", "--csv").stdout)))
    assert [row["partner"] for row in rows] == [row["partner"] for row in shown]
    assert "partner" in arena("league", plain, "cross-play").stdout
    (line,) = (
        row for row in arena_json("league", plain, "matches")["tallies"][-1:] if row["seats"]
    )
    assert set(line["seats"]) == {"red", "blue"}, "the last match is one of evaluation"
