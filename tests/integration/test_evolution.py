"""PBT from the command line: immigrants, a replayed schedule, generations for Optuna."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    # All weights of that run are allowed: its policy may have ended on a donor's weights.
    theirs = {
        row["weights_digest"] for row in arena_json("league", evolved, "checkpoints")["checkpoints"]
    }
    ours = arena_json("league", run, "checkpoints")["checkpoints"]
    came = [row for row in ours if row["weights_digest"] in theirs]
    assert {(row["policy"], row["generation"]) for row in came} >= {
        (event["subject"], event["generation"])
        for event in events
        if event["agent_steps"] < 3000  # later generations may not have been evaluated
    }


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


SMALL_LEAGUE = (
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
    launch_league(run, "stop.agent_steps_per_policy=2500")
    return run


def launch_league(run: Path, *arguments: str) -> None:
    command = [
        *ARENA,
        "launch",
        "tictactoe",
        *SMALL_LEAGUE,
        *arguments,
        "--run-dir",
        str(run),
    ]
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
    launch_league(run, f"roles.reset={player}", "stop.agent_steps_per_policy=2500")
    arena("verify", run)
    events = arena_json("league", run, "events")["events"]
    resets = [event for event in events if event["kind"] == "reset"]
    assert {event["subject"] for event in resets} == {"player/p001", "player/p002"}
    assert any(event["checkpoint"] is None for event in resets)
    if player != reset:
        assert {event["to"] for event in resets} == {player}
