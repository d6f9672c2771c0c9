"""Runs from Python, against the documents of the commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import arena

Command = Callable[..., dict[str, Any]]


def test_standings_are_those_of_the_command(command: Command, tag_run: Path) -> None:
    run = arena.open(tag_run)
    document = command("league", tag_run, "standings", "--json")["populations"]
    expected = [{"population": name, **line} for name, lines in document.items() for line in lines]
    assert run.standings() == expected
    assert {line["population"] for line in expected} == {"predator", "prey"}
    prey = [line for line in expected if line["population"] == "prey"]
    assert run.standings(population="prey") == prey
    assert repr(run) == f"Run({str(tag_run)!r})"


def test_payoffs_hyperparameters_and_the_state_are_those_of_the_command(
    command: Command, board_run: Path
) -> None:
    run = arena.open(str(board_run))
    cells = run.payoff()
    assert cells == command("league", board_run, "payoff", "--json")["payoff"]
    by_seats = command("league", board_run, "payoff", "--seats", "--json")["payoff"]
    assert run.payoff(by_seats=True) == by_seats
    assert "seat" in by_seats[0]
    assert "seat" not in cells[0]
    values = command("league", board_run, "hyperparameters", "--json")["policies"]
    assert run.hyperparameters() == [{"policy": name, **one} for name, one in values.items()]
    status = command("league", board_run, "status", "--json")
    assert {"schema": 1, **run.status()} == status


def test_ratings_over_time_are_the_points_of_the_command(command: Command, board_run: Path) -> None:
    run = arena.open(board_run)
    document = command("league", board_run, "ratings", "--json")
    expected = [
        {"population": "player", "player": line["player"], **point}
        for line in document["populations"]["player"]
        for point in line["points"]
    ]
    assert run.ratings_over_time() == expected
    steps = [(line["player"], line["agent_steps"]) for line in expected]
    assert steps == [
        ("player/p000", 60_000),
        ("player/p000", 120_000),
        ("player/p001", 90_000),
    ]
    assert run.champions() == document["champions"] == []


def test_a_diff_has_the_numbers_of_both_runs(
    command: Command, board_run: Path, cyclic_run: Path
) -> None:
    run = arena.open(board_run)
    rows = run.diff(cyclic_run)
    assert rows == run.diff(arena.open(cyclic_run))
    document = command("league", board_run, "diff", cyclic_run, "--json")
    # The champion of 300 beside three of 50.
    assert [row for row in rows if row["key"] == "champion.rating"] == [
        {
            "section": "champions",
            "population": "player",
            "key": "champion.rating",
            "first": 300.0,
            "second": 50.0,
        }
    ]
    sizes = [row for row in rows if row["key"] == "populations.player.size"]
    assert [(row["first"], row["second"]) for row in sizes] == [(3, 4)]
    assert len([row for row in rows if row["section"] == "figures"]) == len(document["figures"])
    assert {row["population"] for row in run.diff(cyclic_run, population="player")} == {
        None,
        "player",
    }
    missing = command("league", board_run, "diff", board_run.parent / "nowhere", code=2)
    assert missing["error"].count("\n") == 1
    assert "nowhere is no run directory" in missing["error"]


def test_rows_of_every_view_are_those_of_the_command(command: Command, board_run: Path) -> None:
    run = arena.open(board_run)
    for view in ("mixture", "calibration", "checkpoints", "games"):
        assert run.records(view) == command("league", board_run, view, "--json")[view]
    assert run.records("why", player="p000") == run.why("p000")
    with pytest.raises(arena.ConfigError, match="there is no view 'standing'; did you mean"):
        run.records("standing")
    with pytest.raises(arena.ConfigError, match="the view mixture has no option player"):
        run.records("mixture", player="p000")


def test_what_is_not_there_is_named(tmp_path: Path, board_run: Path) -> None:
    with pytest.raises(arena.ConfigError, match=f"{tmp_path} is no run directory"):
        arena.open(tmp_path)
    with pytest.raises(arena.ConfigError, match="no population prey: the run has player"):
        arena.open(board_run).standings(population="prey")


def test_a_kind_of_event_that_does_not_exist_is_a_mistake(board_run: Path) -> None:
    with pytest.raises(arena.ConfigError, match="no kind of event 'exploit'; nearest: exploited"):
        arena.open(board_run).events(kind="exploit")
