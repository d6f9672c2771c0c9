"""Bugs of the programs that came before, which had no test here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena.errors import ConfigError
from populations.config.resolution import expand_agents

Command = Callable[..., dict[str, Any]]


def test_brackets_and_stars_in_a_path_are_letters(
    command: Command, board_run: Path, tmp_path: Path
) -> None:
    """The 6th: ``glob("{path}*")`` finds nothing below ``runs [1]``."""
    run = tmp_path / "runs [1] *?" / "board [a-z]"
    shutil.copytree(board_run, run)
    assert command("league", run, "checkpoints", "--json")["checkpoints"]
    players = (run, f"{run}:player/p001", "bot:random")
    assert len(command("evaluate", *players, "--matches", 1, "--json")["ratings"]) == 3


def test_an_agents_name_may_have_brackets() -> None:
    agents = ("walker[0]", "walker[1]", "walker0", "walker1")
    assert expand_agents(["walker[1]"], agents=agents, key="k") == ("walker[1]",)
    assert expand_agents(["walker[0]", "walker1"], agents=agents, key="k") == (
        "walker[0]",
        "walker1",
    )
    assert expand_agents(["walker[[]*"], agents=agents, key="k") == agents[:2]
    # Without such an agent it is a glob.
    assert expand_agents(["walker[01]"], agents=agents, key="k") == agents[2:]
    with pytest.raises(ConfigError, match=r"there is no agent 'walker\[2\]'"):
        expand_agents(["walker[2]"], agents=agents, key="k")


def test_every_policy_and_every_population_is_told_of(command: Command, tag_run: Path) -> None:
    """The 10th: a dictionary with one key for all keeps the last one alone."""
    rows = command("league", tag_run, "checkpoints", "--json")["checkpoints"]
    assert {(row["policy"], row["agent_steps"]) for row in rows} == {
        (f"{population}/p000", steps)
        for population in ("predator", "prey")
        for steps in (30_000, 60_000)
    }
    champions = command("league", tag_run, "status", "--json")["champion"]
    assert {name: one["player"] for name, one in champions.items()} == {
        "predator": "predator/p000",
        "prey": "prey/p000",
    }
