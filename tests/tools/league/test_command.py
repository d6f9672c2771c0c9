"""`arena league` on the command line: what belongs together, and the filters in data."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from arena.errors import ConfigError
from tools.league.command import league


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "payoff", "kind": ["kept"]}, "--kind belongs to the view events, not to payoff"),
        ({"view": "status", "limit": 3}, "--limit belongs to the views standings, .*not to status"),
        (
            {"view": "lineage", "player": "p000"},
            "--player belongs to the views payoff, games, events",
        ),
        ({"view": "payoff", "since": "10m"}, "--since belongs to the view events"),
        ({"operand": "p000"}, "the view standings takes no further argument"),
    ],
)
def test_a_mistake_is_one_message(
    board_run: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        league(board_run, **options)  # type: ignore[arg-type]


def test_a_limit_cuts_json_and_csv_and_without_it_they_have_all(
    board_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    league(board_run, as_json=True)
    everybody = json.loads(capsys.readouterr().out)["populations"]["player"]
    league(board_run, as_json=True, limit=2)
    assert json.loads(capsys.readouterr().out)["populations"]["player"] == everybody[:2]
    league(board_run, as_csv=True, limit=1)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["player"] for row in rows] == [everybody[0]["player"]]
    assert len(everybody) > 2


def test_a_policy_and_its_ghost_with_the_same_weights_are_one_row_on_screen_alone(
    board_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    league(board_run)
    text = capsys.readouterr().out
    shown = [line.split() for line in text.splitlines() if line.lstrip().startswith("p00")]
    # The champion has a mark after its name.
    shown[0].remove("*")
    ranks = [(cells[0], cells[3]) for cells in shown]
    assert ranks == [("p000", "1..2"), ("p000@60k", "2..3"), ("p001", "3..4"), ("p002", "-")]
    # p001 has the weights of its ghost; p000 has trained on since its own.
    ghosts = ["player/p000@000000060000", "player/p001@000000090000"]
    league(board_run, as_json=True)
    lines = json.loads(capsys.readouterr().out)["populations"]["player"]
    same = {line["player"]: line["same_as"] for line in lines}
    assert [same[ghost] for ghost in ghosts] == [None, "player/p001"]
    assert {value for player, value in same.items() if player not in ghosts} == {None}
    league(board_run, as_csv=True)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["player"] for row in rows] == [line["player"] for line in lines]
    # Cells with a structured value are JSON, too.
    values = [json.loads(row["hyperparameters"] or "null") for row in rows]
    assert values == [line["hyperparameters"] for line in lines]
