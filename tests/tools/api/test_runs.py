"""Runs from Python, against the documents of the commands."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

import arena
from experiments.faults.killing import processes_of
from populations.views.views import VIEWS
from tools.api.runs import Records, records_of

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
    assert rows == VIEWS["diff"].rows(document)
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


def numpy_state() -> Any:
    return np.random.get_state(legacy=False)["state"]["key"].copy()


@pytest.mark.slow
def test_the_document_is_that_of_the_command_and_nothing_else_changes(
    command: Command, board_run: Path
) -> None:
    torch.manual_seed(5)
    random.seed(6)
    np.random.seed(7)
    before = (
        torch.get_rng_state(),
        random.getstate(),
        np.random.get_state(legacy=False)["state"]["key"],
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = arena.evaluate([str(board_run), "bot:random"], matches=10, seed=3)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(numpy_state(), before[2])
    expected = command("evaluate", board_run, "bot:random", "--matches", 10, "--seed", 3, "--json")
    assert {"schema": 1, **found} == expected
    assert isinstance(found["pairs"], arena.Records)
    assert [pair["home"] for pair in found["pairs"]] == [str(board_run), "bot:random"]


@pytest.mark.parametrize(
    ("players", "more", "complaint"),
    [
        (["bot:random"], {}, "two or more players, got 1"),
        ("bot:random", {}, "must be a list of players, got 'bot:random'"),
        (["bot:random", "bot:x:Y"], {}, "bots alone play anything: environment ID says what"),
        (["bot:random", "nowhere"], {}, "there is no player 'nowhere'"),
        (["bot:random", "bot:random"], {"matches": 0}, "matches must be at least 1, got 0"),
        (["bot:random", "bot:random"], {"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_what_cannot_be_played_is_named(players: Any, more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(arena.ConfigError, match=complaint):
        arena.evaluate(players, **more)


def test_records_are_a_list_of_copies() -> None:
    rows: list[dict[str, object]] = [
        {"player": "a", "rating": 1.0},
        {"player": "b", "rating": None},
    ]
    records = records_of(rows)
    assert records == rows
    records[0]["rating"] = 2.0
    assert rows[0]["rating"] == 1.0


def test_they_become_a_table() -> None:
    table = arena.Records(
        [{"player": "a", "rating": 1.5}, {"player": "b", "seats": [1]}]
    ).to_pandas()
    assert table.columns.tolist() == ["player", "rating", "seats"]
    assert table["player"].tolist() == ["a", "b"]
    assert table["rating"][0] == 1.5
    assert np.isnan(table["rating"][1])
    assert table["seats"][1] == [1]


def test_without_pandas_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(arena.ConfigError, match="pip install pandas"):
        Records([{"a": 1}]).to_pandas()


README = Path(__file__).parents[3] / "README.md"


def printed() -> str:
    (code,) = re.findall(
        r"```python\n(import numpy as np\nimport arena\n.*?)```", README.read_text(), re.S
    )
    return str(code)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(300)
def test_the_readmes_python_runs_in_a_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    # Each paragraph is a cell, as one would type it.
    cells = [nbformat.v4.new_code_cell(cell) for cell in printed().split("\n\n")]
    last = "import json; print(json.dumps([curve, copies, masks.shape, result['matches']]))"
    cells.append(nbformat.v4.new_code_cell(last))
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = [
        "".join(output.text for output in cell.outputs if output.name == "stdout")
        for cell in notebook.cells
    ]
    assert said[1] == "running\n"
    assert len(said[2].splitlines()) == 3
    actions, value = said[3].splitlines()[0].split("] [")
    assert len(actions.strip("[").split()) == len(value.strip("]").split()) == 5
    assert said[4].split()[0] in ("runs/notebook", "bot:random")
    assert said[5].endswith("[5, 9], 100]\n")
    assert not processes_of(tmp_path / "runs" / "notebook")
