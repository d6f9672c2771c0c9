"""More evaluation of a run that is not going on: real processes, a kill, an interrupt."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.faults.killing import counters, processes_of
from tests.integration.conftest import Command, sigkill, start
from tests.support import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.xdist_group("processes"),
]


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Iterator[Path]:
    """A finished run of its own; no process of it may be left behind."""
    copied = tmp_path / "run"
    shutil.copytree(finished_run, copied)
    yield copied
    wait_until(lambda: not processes_of(copied), timeout_s=5.0)


def num_matches(run: Path) -> int:
    """Matches that a run has committed."""
    row = counters(run)
    return 0 if row is None else row.matches


def test_a_finished_run_is_evaluated_by_its_own_scheduler_and_finished_again(
    arena: Command, arena_json: Callable[..., dict[str, Any]], run: Path
) -> None:
    def trained() -> dict[str, Any]:
        league = {view: arena_json("league", run, view) for view in ("lineage", "checkpoints")}
        ghosts = {row["player"] for row in league["checkpoints"]["ghosts"]}
        return {"ghosts": ghosts, "generations": len(league["lineage"]["generations"])}

    before, league = arena_json("league", run, "status"), trained()
    rated = {row["player"]: row for row in arena_json("league", run)["populations"]["player"]}
    document = arena_json("evaluate", run, "--into", run, "--for", "3s")
    after = arena_json("league", run, "status")
    assert (document["state"], document["reason"]) == (after["state"], after["reason"])
    assert after["state"] == "finished"
    assert after["reason"] == f"{before['reason']}; evaluated for 3 s more"
    assert after["matches"] > before["matches"]
    assert after["agent_steps"] == before["agent_steps"]
    assert trained() == league
    lines = arena_json("league", run)["populations"]["player"]
    assert {line["player"] for line in lines} == set(rated)
    policies = [line for line in lines if line["kind"] == "policy"]
    # Standings count evaluation matches only, but ratings use all matches.
    gained = [line["matches"] - rated[line["player"]]["matches"] for line in policies]
    assert min(gained) >= 0 < max(gained)
    assert any(line["rating"] != rated[line["player"]]["rating"] for line in policies)
    assert after["champion"]["player"]["player"] in rated
    events = arena_json("league", run, "events")["events"]
    (begun,) = [event for event in events if event["kind"] == "evaluation_only"]
    assert (begun["duration_s"], begun["before"]) == (3.0, before["reason"])
    later = {event["kind"] for event in events if event["sequence"] > begun["sequence"]}
    assert "ratings_fitted" in later
    assert not {"train_assigned", "exploited", "ghost_created"} & later
    arena("verify", run)
    # Training continues as if the evaluation had not happened.
    arena("launch", "--resume", "--run-dir", run, "stop.agent_steps_per_policy=7000")
    assert arena_json("league", run, "status")["agent_steps"] > after["agent_steps"]
    arena("verify", run)


def test_a_kill_loses_nothing_and_a_run_that_is_going_on_is_refused(
    arena: Command, arena_json: Callable[..., dict[str, Any]], run: Path
) -> None:
    before = num_matches(run)
    process = start(["evaluate", run, "--into", run, "--for", "1h"])
    wait_until(lambda: num_matches(run) > before, timeout_s=60.0)
    refused = arena("evaluate", run, "--into", run, "--for", "1s", code=4)
    assert str(run) in refused.stderr
    seen = num_matches(run)
    sigkill(process)
    wait_until(lambda: not processes_of(run), timeout_s=5.0)
    status = arena_json("league", run, "status")
    assert status["state"] == "crashed"
    assert status["matches"] >= seen
    arena("verify", run)
    arena("evaluate", run, "--into", run, "--for", "1s")
    after = arena_json("league", run, "status")
    assert (after["state"], after["reason"]) == ("finished", "evaluated for 1 s")
    assert after["matches"] > status["matches"]
    assert after["agent_steps"] == status["agent_steps"]
    arena("verify", run)
