"""Runs with many agents, each a side of its own, from the command line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from populations.storage.journal import JournalReader
from tests.integration.conftest import Command, launch_config

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("processes"),
]

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
        # One player is alone, and is compared with all others in each match.
        assert pair.wins + pair.draws + pair.losses == tally.matches * (num_sides - 1)
    (lines,) = arena_json("league", run, "standings")["populations"].values()
    rated = {line["player"]: line for line in lines}
    best = max(
        (line for line in lines if line["kind"] == "policy"), key=lambda line: line["rating"]
    )
    # It takes the largest number nearly always, where random play takes each as often.
    assert best["rating_low"] > rated["bot:random"]["rating"]
    assert best["matches"] <= sum(tally.matches for tally in evaluated)
    (home, away) = arena_json("evaluate", run, "bot:random", "--matches", "8")["pairs"]
    # Against random play it wins two comparisons of three and draws the third.
    assert home["score"] > 0.7
    assert away["score"] < 0.3
    arena("export", run, "--to", tmp_path / "exported", "--matches", "4")
