"""A league with roles, in real runs: exploiters of both kinds start again while it goes on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ARENA, Command

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]

SMALL = (
    "launcher=inline",
    "environment.num_envs=16",
    "environment.random_openings.share=0",
    "populations.player.size=3",
    "populations.player.roles={main_exploiter: 1, league_exploiter: 1}",
    "populations.player.network.hidden_sizes=[16]",
    "populations.player.hyperparameters.rollout_length=8",
    "matchmaking.kind=alphastar",
    "ghosts.every_agent_steps=500",
    "checkpoints.keep=1",
    "roles.reset_probability=1.0",
    "pbt.exploit=none",
    "pbt.explore=none",
    "assignment.agent_steps=250",
    "evaluation.share=0.2",
    "metrics.sinks=[]",
    "stop.duration_s=null",
    "seed=3",
)


@pytest.fixture(scope="module")
def league_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose exploiters start again from their first checkpoints."""
    run = tmp_path_factory.mktemp("roles") / "run"
    launch(run, "stop.agent_steps_per_policy=2500")
    return run


def launch(run: Path, *arguments: str) -> None:
    command = [*ARENA, "launch", "tictactoe", *SMALL, *arguments, "--run-dir", str(run)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.slow
def test_exploiters_start_again_in_a_league_that_verifies(
    arena: Command, arena_json: Callable[..., dict[str, Any]], league_run: Path
) -> None:
    arena("verify", league_run)
    events = arena_json("league", league_run, "events")["events"]
    resets = [event for event in events if event["kind"] == "reset"]
    assert {event["subject"] for event in resets} == {"player/p001", "player/p002"}
    assert {event["to"] for event in resets} == {
        "player/p001@000000000000",
        "player/p002@000000000000",
    }
    assert all(event["reason"] for event in events if event["kind"] == "ghost_created")
    standings = arena_json("league", league_run)["populations"]["player"]
    roles = {line["player"]: line["role"] for line in standings if line["kind"] == "policy"}
    assert roles == {
        "player/p000": "main",
        "player/p001": "main_exploiter",
        "player/p002": "league_exploiter",
    }
    ghosts = [line for line in standings if line["kind"] == "ghost"]
    assert all(line["role"] == roles[line["parent"]] for line in ghosts)
    assert "main_exploiter" in arena("league", league_run).stdout


@pytest.mark.slow
@pytest.mark.parametrize("reset", ["nearest_even", "{run}:player/p000"])
@pytest.mark.slow
@pytest.mark.long
def test_exploiters_start_again_from_weights_alone(
    arena: Command,
    arena_json: Callable[..., dict[str, Any]],
    league_run: Path,
    tmp_path: Path,
    reset: str,
) -> None:
    run, player = tmp_path / "run", reset.format(run=league_run)
    launch(run, f"roles.reset={player}", "stop.agent_steps_per_policy=2500")
    arena("verify", run)
    events = arena_json("league", run, "events")["events"]
    resets = [event for event in events if event["kind"] == "reset"]
    assert {event["subject"] for event in resets} == {"player/p001", "player/p002"}
    assert any(event["checkpoint"] is None for event in resets)
    if player != reset:
        assert {event["to"] for event in resets} == {player}
