"""Other ways into a run: a learner from outside, a learner inside, another run's weights."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from experiments.faults.killing import processes_of
from populations.config.run_file import RUN_FILE, RunFile
from tests.integration.conftest import ARENA, Command, launch_arguments, start
from tests.support import run_process, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]


def live(run: Path) -> dict[str, Any]:
    """The live figures of a run; empty before there are any."""
    path = run / "status.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


@pytest.mark.slow
def test_a_learner_joins_from_outside_works_and_leaves_with_the_run(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    goal = ("stop.agent_steps_per_policy=100000000", "--learners", "1")
    process = start(launch_arguments(run, *goal))
    wait_until(lambda: len(live(run).get("learners", [])) == 1, timeout_s=60.0)
    guest = start(["learner", run / "run.yaml", "--connect", live(run)["endpoint"]])

    def works() -> bool:
        slots = {row["slot"]: row for row in live(run)["learners"]}
        return None in slots and slots[None]["progress"] > 0

    wait_until(works, timeout_s=60.0)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    guest.communicate(timeout=30)
    assert (process.returncode, guest.returncode) == (130, 0)
    arena("verify", run)
    wait_until(lambda: not processes_of(run), timeout_s=2.0)
    finished = [
        event
        for event in arena_json("league", run, "events")["events"]
        if event["kind"] == "train_assigned" and event["slot"] is None
    ]
    assert finished


@pytest.mark.slow
@pytest.mark.long
def test_inline_is_the_same_run_in_one_process(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    steps = "stop.agent_steps_per_policy=3000"
    process = start(launch_arguments(run, "launcher=inline", steps))
    wait_until(lambda: bool(live(run).get("learners")), timeout_s=60.0)
    (pid,) = {row["pid"] for row in live(run)["learners"]}
    # The command's process and another one only guard the process that does the work.
    assert process.pid in {one.pid for one in psutil.Process(pid).parents()}
    process.communicate(timeout=100)
    assert process.returncode == 0
    assert arena_json("league", run, "status")["state"] == "finished"
    arena("verify", run)


@pytest.mark.slow
def test_policies_start_from_another_runs_weights_with_counters_at_zero(
    arena: Command,
    arena_json: Callable[..., dict[str, Any]],
    finished_run: Path,
    tmp_path: Path,
) -> None:
    first, second = finished_run, tmp_path / "second"
    source = f"{first}:player/p001"
    line = next(
        row
        for row in arena_json("league", first)["populations"]["player"]
        if row["player"] == "player/p001"
    )
    steps = "stop.agent_steps_per_policy=2000"
    done = arena(*launch_arguments(second, steps, "--init-from", source))
    agent_steps, digest = line["evaluated_agent_steps"] or line["agent_steps"], line["weights"]
    assert (
        f"player starts from {source}: player/p001 at {agent_steps:,} agent steps, "
        f"weights {digest[:12]}"
    ) in done.stderr
    (event,) = [
        event
        for event in arena_json("league", second, "events")["events"]
        if event["kind"] == "weights_imported"
    ]
    assert (event["subject"], event["origin"], event["player"]) == ("player", source, "player/p001")
    assert (event["agent_steps"], event["weights"]) == (agent_steps, digest)
    rows = arena_json("league", second, "checkpoints")["ghosts"]
    zero = [row for row in rows if row["agent_steps"] == 0]
    assert {row["weights_digest"] for row in zero} == {line["weights"]}
    assert len(zero) == 3
    assert source in (second / "run.yaml").read_text()
    arena("verify", second)


@pytest.mark.slow
def test_policies_start_from_a_players_hyperparameters_on_request(
    arena: Command,
    arena_json: Callable[..., dict[str, Any]],
    finished_run: Path,
    tmp_path: Path,
) -> None:
    first, second = finished_run, tmp_path / "second"
    source = f"{first}:player/p001"
    options = ("--init-from", source, "--with-hyperparameters")
    schedule = (
        "populations.player.hyperparameters.entropy_coef="
        "{linear: [0.02, 0.01], over_agent_steps: 1000000}"
    )
    steps = "stop.agent_steps_per_policy=2000"
    done = arena(*launch_arguments(second, steps, schedule, *options))
    assert "with its hyperparameters" in done.stderr
    events = arena_json("league", second, "events")["events"]
    (event,) = [event for event in events if event["kind"] == "weights_imported"]
    rows = arena_json("league", first, "checkpoints")["checkpoints"]
    (row,) = [row for row in rows if row["weights_digest"] == event["weights"]]
    manifest = json.loads((first / row["key"] / "manifest.json").read_text())
    trained = manifest["hyperparameters"]
    # The value was explored, so it differs from the preset's.
    assert trained["learning_rate"] != 3e-4
    assert event["hyperparameters"] == trained
    assert event["factors"] == {}
    (created,) = [
        event
        for event in events
        if event["kind"] == "policy_created" and event["subject"] == "player/p000"
    ]
    # All values are those of the other run but this one, which this run's schedule sets.
    assert created["hyperparameters"] == {**trained, "entropy_coef": 0.02}
    arena("verify", second)
    # run.yaml has the exact values and the schedule, so a resume changes nothing.
    more = "stop.agent_steps_per_policy=3000"
    arena("launch", "--resume", "--run-dir", second, more)
    kinds = {event["kind"] for event in arena_json("league", second, "events")["events"]}
    assert "hyperparameters_changed" not in kinds


@pytest.mark.slow
def test_each_population_starts_from_a_player_of_its_own(
    arena: Command, arena_json: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    first, second, config = tmp_path / "first", tmp_path / "second", tmp_path / "sides.yaml"
    network = "network: {hidden_sizes: [16]}, size: 2, hyperparameters: {rollout_length: 8}"
    config.write_text(
        "environment: {id: classic/tictactoe-v3, num_envs: 64}\n"
        "populations:\n"
        f"  cross: {{agents: [player_1], {network}}}\n"
        f"  nought: {{agents: [player_2], {network}}}\n"
        "assignment: {agent_steps: 1000}\n"
        "metrics: {sinks: [jsonl]}\n"
    )
    small = ("stop={agent_steps_per_policy: 1000, duration_s: null}", "--learners", "2")
    arena("launch", config, *small, "--run-dir", first)
    sources = {"cross": f"{first}:cross/p001", "nought": f"{first}:nought/p000"}
    options = [
        option for name, player in sources.items() for option in ("--init-from", f"{name}={player}")
    ]
    arena("launch", config, *small, *options, "--run-dir", second)
    imported = {
        event["subject"]: event
        for event in arena_json("league", second, "events")["events"]
        if event["kind"] == "weights_imported"
    }
    assert {name: event["origin"] for name, event in imported.items()} == sources
    for row in arena_json("league", second, "checkpoints")["ghosts"]:
        if row["agent_steps"] == 0:
            assert row["weights_digest"] == imported[row["population"]]["weights"]
    said = ", ".join(f"{name}={player}" for name, player in sources.items())
    assert RunFile.load(second / RUN_FILE).init_from == said
    # A player of the other population has no weights for this one, and two players are one too
    # many.
    for arguments, message in (
        ((f"cross={sources['nought']}",), "it has no weights for cross"),
        ((sources["cross"], sources["nought"]), "one player for all populations"),
    ):
        given = [option for player in arguments for option in ("--init-from", player)]
        refused = arena("launch", config, *given, "--run-dir", tmp_path / "third", code=2)
        assert message in refused.stderr
        assert not (tmp_path / "third").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["checkpoints", "ghosts"])
def test_a_rewound_policy_goes_on_from_then(
    kind: str,
    arena: Command,
    arena_json: Callable[..., dict[str, Any]],
    finished_run: Path,
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    rows = arena_json("league", run, "checkpoints")[kind]
    kept = [row for row in rows if row["policy"] == "player/p001" and row["player"]]
    oldest = min(kept, key=lambda row: row["agent_steps"])
    assert len({row["agent_steps"] for row in kept}) > 1
    arena("rewind", run / oldest["key"])
    arena("verify", run)
    before = arena_json("league", run, "status")
    arena("launch", "--resume", "--run-dir", run, "stop.agent_steps_per_policy=8000")
    arena("verify", run)
    assert arena_json("league", run, "status")["agent_steps"] > before["agent_steps"]
    generations = arena_json("league", run, "lineage")["generations"]
    (rewound,) = [row for row in generations if row["cause"] == "rewind"]
    assert rewound["policy"] == "player/p001"
    after = arena_json("league", run, "checkpoints")["checkpoints"]
    made = (rewound["policy"], rewound["generation"])
    first = next(row for row in after if (row["policy"], row["generation"]) == made)
    # Each line descends from the weights of that time, or has a ghost's, and continues the new
    # counters.
    assert (
        first["parent" if kind == "checkpoints" else "weights_digest"] == oldest["weights_digest"]
    )
    assert first["agent_steps"] > max(row["agent_steps"] for row in kept)


@pytest.mark.slow
def test_init_from_a_player_that_does_not_fit_creates_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = run_process(
        [*ARENA, "launch", "tictactoe", "--init-from", "bot:random", "--run-dir", str(run)]
    )
    assert done.returncode == 2
    assert "has no weights" in done.stderr
    assert not run.exists()
