"""How a run says goodbye: why, what is saved, how to go on, champion, next command."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from populations.config.run_file import RUN_FILE, RunFile, check_resume, with_config
from populations.controller.server.run_directory import OpenRun, settle
from tests.faults.scenarios import make_small_run

serving: Any = importlib.import_module("populations.commands.launch.serving")

LIMITS = {
    "agent_steps_per_policy": 5_000_000.0,
    "agent_steps": None,
    "duration_s": 30.0,
    "rating": 0.0,
}
CHAMPION = {
    "player": "player/p003",
    "rating": 1341.2,
    "rating_low": 1302.0,
    "rating_high": 1380.9,
    "unproven": None,
}
UNPROVEN = {
    **CHAMPION,
    "unproven": {
        "what": "nobody is surely better than untrained: player/p003 leads "
        "player/p003@000000000000 by 5 Elo, 95% -42..53",
        "reasons": ["too little training so far", "rewards that cannot be learned from"],
    },
}
TIME = "stop.duration_s: training has taken 30.0 of 30 s"


def said(
    state: str = "finished",
    *,
    reason: str = TIME,
    agent_steps: int = 1000,
    champions: dict[str, dict[str, object]] | None = None,
    quarantined: Sequence[str] = (),
    run_dir: str = "runs/first",
    holds: str | None = None,
) -> list[str]:
    status = {
        "state": state,
        "reason": reason,
        "agent_steps": agent_steps,
        "quarantined": [*quarantined],
        "champion": {"player": CHAMPION} if champions is None else champions,
    }
    return list(serving.last_lines(status, run_dir=Path(run_dir), limits=LIMITS, holds=holds))


def test_a_finished_run_says_why_and_what_next() -> None:
    assert said() == [
        f"finished: {TIME}",
        "everything is saved in runs/first; to go on:",
        "  arena launch --resume --run-dir runs/first stop.duration_s=60",
        "champion: player/p003, rating 1341 [1302, 1381]",
        "next: arena export runs/first",
    ]


@pytest.mark.parametrize(
    ("reason", "override"),
    [
        ("stop.agent_steps_per_policy: every active policy has done 5000000",
         "stop.agent_steps_per_policy=10000000"),
        ("stop.rating: every population has a policy whose lower bound is 0", "stop.rating=100"),
    ],
)  # fmt: skip
def test_a_finished_run_goes_on_with_the_limit_that_ended_it_raised(
    reason: str, override: str
) -> None:
    assert said(reason=reason)[2].endswith(f"--run-dir runs/first {override}")


def test_the_limit_that_holds_is_named_not_the_one_of_before() -> None:
    """Raising one limit of a finished run does not help where another one holds."""
    limit = "stop.agent_steps_per_policy: every active policy has done 5000000"
    lines = said(holds=limit)
    assert lines[0] == f"finished: {limit}"
    assert lines[2].endswith("stop.agent_steps_per_policy=10000000")


@pytest.mark.parametrize(("limit_s", "goes_on"), [(60.0, True), (50.0, False)])
def test_time_of_final_matches_is_not_trained_time(
    limit_s: float, goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 70 s the last 20 were final matches: 50 s of training."""
    begun: list[object] = []
    monkeypatch.setattr(serving, "control", begun.append)
    make_small_run(tmp_path)
    settle(tmp_path)
    with OpenRun(tmp_path, with_sinks=False) as run:
        row = run.state.tables.run
        run.journal.commit([replace(row, state="finished", elapsed_s=70.0, closing_s=20.0)])
    old = RunFile.load(tmp_path / RUN_FILE)
    new, _ = check_resume(old, config=None, overrides=[f"stop.duration_s={limit_s}"])
    serving.serve(tmp_path, launch_directory="", changed=with_config(old, new), json_=False)
    assert bool(begun) == goes_on


def test_an_interrupted_run_goes_on_as_it_is() -> None:
    lines = said("stopped", reason="interrupted by SIGINT")
    assert lines[:3] == [
        "stopped: interrupted by SIGINT",
        "everything is saved in runs/first; to go on:",
        "  arena launch --resume --run-dir runs/first",
    ]


def test_a_failed_run_has_its_reason_first() -> None:
    reason = "no active policy is left: all are quarantined"
    quarantined = ("player/p000", "player/p001")
    lines = said("failed", reason=reason, champions={}, quarantined=quarantined)
    assert lines == [
        f"arena: the run failed: {reason}",
        "what was committed is saved in runs/first; to go on:",
        "  arena launch --resume --run-dir runs/first",
        "  before that: the learners' logs are in runs/first/logs",
        "in quarantine: player/p000 and 1 more",
        "  why: arena league runs/first why player/p000",
        "  to put it back: arena rewind runs/first:player/p000@best",
        "champion: none yet, since no player is rated",
    ]


def test_a_run_that_trained_nothing_says_so() -> None:
    lines = said(agent_steps=0, champions={})
    assert lines[1] == "nothing was trained: 0 agent steps are committed"
    assert "runs/first/logs" in lines[2]
    assert not any("arena export" in line for line in lines)
    assert not any("nothing was trained" in line for line in said(agent_steps=1))


def test_every_population_has_its_champion() -> None:
    """Not the last one alone: the tenth of the fifty bugs."""
    names = ("predator", "prey", "referee")
    champions = {name: {**CHAMPION, "player": f"{name}/p001"} for name in names}
    lines = [line for line in said(champions=champions) if line.startswith("champion")]
    assert lines == [f"champion of {name}: {name}/p001, rating 1341 [1302, 1381]" for name in names]


def test_a_run_in_which_nobody_is_better_than_untrained_says_why_and_names_no_export() -> None:
    assert said(champions={"player": UNPROVEN})[3:] == [
        "champion: player/p003, rating 1341 [1302, 1381]",
        "nobody is surely better than untrained: player/p003 leads player/p003@000000000000 by "
        "5 Elo, 95% -42..53; the most likely reasons:",
        "  too little training so far,",
        "  or rewards that cannot be learned from",
    ]


def test_only_populations_that_have_learned_are_exported_next() -> None:
    lines = said(champions={"predator": CHAMPION, "prey": UNPROVEN})
    assert [line for line in lines if "arena export" in line] == [
        "next: arena export runs/first --population predator"
    ]


@pytest.mark.parametrize("run_dir", ["runs/with blank", "runs/it's [1]", "runs/$(reboot)"])
def test_commands_can_be_pasted(run_dir: str) -> None:
    for line in said(run_dir=run_dir):
        if "arena " in line:
            command = line[line.index("arena ") :]
            assert run_dir in shlex.split(command)


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_lines_fit_80_columns(state: str) -> None:
    assert [line for line in said(state, agent_steps=0) if len(line) > 80] == []
