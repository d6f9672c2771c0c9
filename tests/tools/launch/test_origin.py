"""Players that a run starts from, by the populations that they are named for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from arena.errors import ConfigError
from arena.types import Hyperparameters
from populations.config.run_file import RUN_FILE, RunFile, check_resume, with_config
from populations.controller.server.run_directory import OpenRun, settle
from tests.faults.scenarios import make_small_run

origin: Any = importlib.import_module("populations.commands.launch.origin")
weights: Any = importlib.import_module("populations.commands.launch.imported_weights")


@pytest.mark.parametrize(
    ("init_from", "expected"),
    [
        ([], {}),
        (["runs/a"], {None: "runs/a"}),
        (["walker=runs/a:walker/p001", "wolf=runs/b"],
         {"walker": "runs/a:walker/p001", "wolf": "runs/b"}),
        (["runs/a", "wolf=runs/b"], {None: "runs/a", "wolf": "runs/b"}),
        # Equals signs in a path or in a bot's arguments do not name a population.
        (["runs/lr=3:wolf/p000"], {None: "runs/lr=3:wolf/p000"}),
        (["./lr=3"], {None: "./lr=3"}),
        (["bot:package:Class(depth=3)"], {None: "bot:package:Class(depth=3)"}),
        (["wolf=runs/lr=3"], {"wolf": "runs/lr=3"}),
    ],
)  # fmt: skip
def test_a_player_is_for_the_population_before_the_equals_sign_or_for_the_others(
    init_from: Sequence[str], expected: object
) -> None:
    assert weights.players_by_population(init_from, ("walker", "wolf")) == expected


@pytest.mark.parametrize(
    ("init_from", "message"),
    [
        (["runs/a", "runs/b"], "one player for all populations, got runs/a and runs/b"),
        (["wolf=a", "wolf=b"], "one player for population wolf, got a and b"),
        (["wulf=a"], "must be one of walker, wolf, got 'wulf'"),
    ],
)
def test_players_that_are_for_the_same_or_for_no_population_are_refused(
    init_from: Sequence[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        weights.players_by_population(init_from, ("walker", "wolf"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"with_hyperparameters": True}, "--with-hyperparameters needs --init-from"),
        ({"with_hyperparameters": True, "init_from": ("a",), "replay": "b:player/p000"},
         "exclude each other: .* got --schedule-of b:player/p000"),
    ],
)  # fmt: skip
def test_hyperparameters_without_a_player_or_beside_a_schedule_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        origin.Origin(**options).check()


def test_options_that_go_together_pass_and_are_said_as_they_were_given() -> None:
    both = origin.Origin(init_from=("wolf=a", "b"), with_hyperparameters=True)
    both.check()
    assert (both.said, both.is_empty) == ("wolf=a, b", False)
    assert (origin.Origin().said, origin.Origin().is_empty) == (None, True)


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
    # The bounds were not changed, so the value may have started outside of them.
    assert values[0]["gamma"] == 0.95


def test_bounds_that_leave_all_inside_change_no_policy(tmp_path: Path) -> None:
    override = "populations.player.search_space.learning_rate.factors=[0.5, 2.0]"
    lines, values = resumed(tmp_path / "run", [0.5], override)
    assert (lines, values[0]["learning_rate"]) == ([], 0.5)
