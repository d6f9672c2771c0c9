from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ASSETS = Path(__file__).parents[1] / "assets"


def run(*arguments: str) -> int:
    (script,) = entry_points(group="console_scripts", name="arena")
    main = script.load()
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    code = caught.value.code
    assert code is None or isinstance(code, int)
    return code or 0


def test_list_is_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("envs", "list", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    by_id = {line["id"]: line for line in document["environments"]}
    assert by_id["classic/connect_four-v3"] == {
        "id": "classic/connect_four-v3",
        "package": "pettingzoo",
        "installed": True,
        "api": "aec",
        "install": "pip install 'pettingzoo[classic]'",
    }
    assert by_id["mpe2/simple_tag_v3"]["install"] == "pip install 'arena-league[mpe]'"


def test_list_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("envs", "list") == 0
    output = capsys.readouterr().out
    assert "mpe2/simple_spread_v3" in output
    assert "pip install 'pettingzoo[atari]'" in output


def test_check_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("envs", "check", "classic/rps-v2", "--seconds", "0.2", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert document["works"] is True
    assert document["problems"] == []
    assert document["environment"]["id"] == "classic/rps-v2"
    assert document["mean_length"] == 15.0


def test_check_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ASSETS)
    assert run("envs", "check", "environments:UnseededTurns", "--seconds", "0.1") == 3
    output = capsys.readouterr().out
    assert "problem: two runs with one seed differ" in output
    assert "deterministic by seed: no" in output


def test_an_unknown_environment_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("envs", "check", "classic/tictactoo-v3", "--json") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "classic/tictactoe-v3" in said.err
