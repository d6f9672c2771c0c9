"""What a resume with new hyperparameters says of those that policies had."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from populations.config.run_file import RUN_FILE, RunFile, check_resume, with_config
from populations.controller.server.reconfiguration import settle
from populations.controller.server.run_directory import OpenRun
from tests.faults.scenarios import make_small_run

serving: Any = importlib.import_module("populations.commands.launch.serving")


def test_values_that_pbt_found_are_named_before_they_are_gone(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    make_small_run(run_dir)
    settle(run_dir)
    with OpenRun(run_dir, with_sinks=False) as run:
        first, *_ = run.state.tables.policies.values()
        found = {**first.hyperparameters, "learning_rate": 0.00271828}
        run.journal.commit([replace(first, hyperparameters=found)])
    old = RunFile.load(run_dir / RUN_FILE)
    override = "populations.player.hyperparameters.learning_rate=0.001"
    new, changes = check_resume(old, config=None, overrides=[override])
    with OpenRun(run_dir, with_sinks=False, changed=with_config(old, new)) as run:
        (line,) = serving.overwritten_lines(run.reconfigure(changes, utc="now"))
        values = {
            row.hyperparameters["learning_rate"] for row in run.state.tables.policies.values()
        }
    assert line.startswith("learning_rate of player is 0.001 now; ")
    assert "0.002718" in line
    assert values == {0.001}
