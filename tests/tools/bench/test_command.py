from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import exit_code, run_process

Command = Callable[..., dict[str, Any]]

QUICK = ("--rounds", "1", "--seconds", "0.01")
SMALL = (
    "environment.num_envs=8",
    "populations.player.network.hidden_sizes=[8]",
    "populations.player.hyperparameters.rollout_length=4",
)


TERMINATED = """
import os, signal, sys
from tools.bench.whole_run import WholeRuns
from tools.main import main
WholeRuns.run = lambda runs: os.kill(os.getpid(), signal.SIGTERM)
sys.argv = ["arena", "bench", "--only", "run"]
main()
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture
def document(command: Command) -> dict[str, Any]:
    return command("bench", *SMALL, *QUICK, "--json")


def test_every_stage_is_a_ratio_to_its_bound(document: dict[str, Any]) -> None:
    assert document["schema"] == 1
    machine = document["machine"]
    assert {"cpu", "cores", "torch", "bfloat16"} <= machine.keys()
    names = [measurement["name"] for measurement in document["measurements"]]
    updates = ["update/float32", "update/bfloat16"][: 1 + machine["bfloat16"]]
    assert names == [
        *("environment", "inference/frozen", "inference/learning"),
        *updates,
        *("learner/self_play", "learner/league"),
    ]
    for measurement in document["measurements"]:
        assert measurement["rounds"] == 1
        assert measurement["ratio_low"] == measurement["ratio"] == measurement["ratio_high"]
        faster = measurement["value"] / measurement["bound_value"]
        ratio = 1 / faster if measurement["unit"] == "us/decision" else faster
        assert measurement["ratio"] == pytest.approx(ratio)
    bounds = {m["name"]: m["bound_name"] for m in document["measurements"]}
    assert bounds["environment"] == "the bare game"
    assert bounds["learner/league"] == "hand-written float32 loop"


def test_the_shares_of_the_stages_add_up(document: dict[str, Any]) -> None:
    stages = document["stages"]
    assert stages.keys() == {"learner/self_play", "learner/league"}
    for name, shares in stages.items():
        assert sum(shares.values()) == pytest.approx(1.0)
        expected = {"environment", "inference", "storing", "advantages", "update", "other"}
        assert shares.keys() == expected | ({"opponents"} if name == "learner/league" else set())


@pytest.mark.parametrize("config", ["simple_tag", "simple_spread", "tictactoe"])
@pytest.mark.slow
def test_other_environments_are_bound_by_their_parts(command: Command, config: str) -> None:
    document = command(
        "bench", "--config", config, "environment.num_envs=2", *QUICK, "--only", "environment",
        "--only", "learner", "--json",
    )  # fmt: skip
    bounds = {m["name"]: m["bound_name"] for m in document["measurements"]}
    assert bounds.pop("environment") == (
        "the bare game" if config == "tictactoe" else "environments stepped one by one"
    )
    assert set(bounds.values()) == {"environment, inference and update alone"}
    learners = {"learner/self_play", "learner/league"}
    # A policy that trains only with its own side has no opponents.
    assert bounds.keys() == learners - ({"learner/league"} if config == "simple_spread" else set())


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("bench", *SMALL, *QUICK, "--only", "environment") == 0
    said = capsys.readouterr()
    assert "lowest-highest" in said.out
    assert "the bare game" in said.out
    assert said.err.splitlines() == ["bench: the environment's facts", "bench: environment"]


@pytest.mark.slow
def test_the_guard_finds_what_fell(command: Command, directory: Path) -> None:
    path = directory / "table.json"
    arguments = ("bench", *SMALL, *QUICK, "--only", "environment")
    stored = command(*arguments, "--save", path, "--json")
    saved = json.loads(path.read_text())
    assert saved == stored
    (measurement,) = saved["measurements"]

    def store(ratio: float) -> None:
        changed = measurement | dict.fromkeys(("ratio", "ratio_low", "ratio_high"), ratio)
        path.write_text(json.dumps(saved | {"measurements": [changed]}))

    store(1e-9)
    assert command(*arguments, "--against", path, "--json")["fell"] == []
    store(1e9)
    said = command(*arguments, "--against", path, "--json", code=3)["error"]
    assert "environment fell: " in said
    assert "was 1000000000.000" in said


def test_the_guard_refuses_a_table_of_something_else(command: Command) -> None:
    said = command("bench", *SMALL, *QUICK, "--only", "environment", "--guard", code=2)["error"]
    assert "equal settings" in said


def test_an_unknown_name_is_refused(command: Command) -> None:
    said = command("bench", "--only", "speed", code=2)["error"]
    assert "--only speed: must be one of environment, inference, update, learner, run" in said


@pytest.mark.slow
def test_a_terminated_measurement_ends_with_the_code_of_the_signal() -> None:
    ended = run_process([sys.executable, "-c", TERMINATED])
    assert (ended.returncode, ended.stdout) == (143, "")
    assert "interrupted by SIGTERM" in ended.stderr
