"""What a resume with new hyperparameters or bounds says of those that policies had."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from arena.types import Hyperparameters
from populations.config.run_file import RUN_FILE, RunFile, check_resume, with_config
from populations.controller.server.reconfiguration import settle
from populations.controller.server.run_directory import OpenRun
from tests.faults.scenarios import make_small_run

serving: Any = importlib.import_module("populations.commands.launch.serving")


def resumed(
    run_dir: Path, rates: Sequence[float], override: str
) -> tuple[list[str], list[Hyperparameters]]:
    """What a resume says, and what policies have that had these learning rates and gamma 0.95."""
    run_dir.mkdir()
    make_small_run(run_dir)
    settle(run_dir)
    with OpenRun(run_dir, with_sinks=False) as run:
        for row, rate in zip(run.state.tables.policies.values(), rates, strict=False):
            found = {**row.hyperparameters, "learning_rate": rate, "gamma": 0.95}
            run.journal.commit([replace(row, hyperparameters=found)])
    old = RunFile.load(run_dir / RUN_FILE)
    new, changes = check_resume(old, config=None, overrides=[override])
    with OpenRun(run_dir, with_sinks=False, changed=with_config(old, new)) as run:
        lines = [*serving.overwritten_lines(run.reconfigure(changes, utc="now"))]
        return lines, [row.hyperparameters for row in run.state.tables.policies.values()]


def test_values_that_pbt_found_are_named_before_they_are_gone(tmp_path: Path) -> None:
    override = "populations.player.hyperparameters.learning_rate=0.001"
    (line,), values = resumed(tmp_path / "run", [0.00271828], override)
    assert line.startswith("learning_rate of player is 0.001 now; ")
    assert "0.002718" in line
    assert {row["learning_rate"] for row in values} == {0.001}


def test_values_outside_of_new_bounds_are_moved_into_them(tmp_path: Path) -> None:
    override = "populations.player.search_space.learning_rate={low: 1e-4, high: 1e-3, log: true}"
    lines, values = resumed(tmp_path / "run", [5e-3, 5e-4], override)
    assert lines == ["learning_rate of player is 0.001 now; 1 policies had 0.005"]
    assert [row["learning_rate"] for row in values][:2] == [1e-3, 5e-4]
    # Its bounds were not changed, and it may have begun outside of them.
    assert values[0]["gamma"] == 0.95


def test_bounds_that_leave_all_inside_change_no_policy(tmp_path: Path) -> None:
    override = "populations.player.search_space.learning_rate.factors=[0.5, 2.0]"
    lines, values = resumed(tmp_path / "run", [0.5], override)
    assert (lines, values[0]["learning_rate"]) == ([], 0.5)
