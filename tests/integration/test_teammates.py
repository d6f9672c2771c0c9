"""Mixed teammates from the command line: runs that repeat, resume after a kill, and are viewed."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.assets.teammates import document
from tests.integration.conftest import ARENA, Command
from tests.support import tallies_of, wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("processes"),
]

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
    # Written once the journal has its tables.
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
