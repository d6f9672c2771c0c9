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
        ({"view": "lineage", "player": "p000"}, "--player belongs to the views events, payoff"),
        ({"view": "payoff", "since": "10m"}, "--since belongs to the view events"),
        ({"view": "events", "since": "soon"}, "--since takes a time"),
        ({"view": "events", "kind": ["keptt"]}, "no kind of event 'keptt'; nearest: kept"),
        ({"view": "events", "player": "p009"}, "no policy 'p009'"),
        ({"view": "why"}, "the view why needs a player"),
        ({"view": "why", "operand": "p009"}, "no player 'p009'"),
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


def test_json_of_a_payoff_says_how_its_players_are_rated(
    board_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    league(board_run, as_json=True)
    lines = json.loads(capsys.readouterr().out)["populations"]["player"]
    league(board_run, "payoff", as_json=True)
    players = json.loads(capsys.readouterr().out)["players"]
    assert [one["player"] for one in players] == [line["player"] for line in lines]
    assert [one["rating"] for one in players] == [line["rating"] for line in lines]
