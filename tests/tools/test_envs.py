from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ASSETS = Path(__file__).parents[1] / "assets"
CONNECT_FOUR_TWIN = "arena.envs.batched.connect_four:ConnectFour"
KUHN_TWIN = "arena.envs.batched.kuhn_poker:KuhnPoker"


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
        "batched": True,
        "twin": CONNECT_FOUR_TWIN,
    }
    assert by_id["openspiel:kuhn_poker"]["batched"] is True
    assert by_id["openspiel:kuhn_poker"]["install"] == "pip install 'arena-league[openspiel]'"
    assert by_id["classic/go-v5"]["batched"] is False
    assert by_id["classic/go-v5"]["twin"] is None
    assert by_id["mpe2/simple_tag_v3"]["install"] == "pip install 'arena-league[mpe]'"


def test_list_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("envs", "list") == 0
    output = capsys.readouterr().out
    assert "mpe2/simple_spread_v3" in output
    assert "pip install 'pettingzoo[atari]'" in output
    lines = {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.strip()}
    assert lines["id"] == ["api", "batched", "installed"]
    assert lines["openspiel:leduc_poker"] == ["aec", "yes", "yes"]
    assert lines["classic/go-v5"] == ["aec", "yes"]


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


def test_check_names_the_native_twin(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("envs", "check", "openspiel:kuhn_poker", "--seconds", "0.1") == 0
    output = capsys.readouterr().out
    assert f"native twin: {KUHN_TWIN}" in output
    assert f"arena envs check openspiel:kuhn_poker --against {KUHN_TWIN}" in output
    assert run("envs", "check", KUHN_TWIN, "--seconds", "0.1") == 0
    assert "native twin" not in capsys.readouterr().out


def test_check_against_the_twin(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("envs", "check", "openspiel:kuhn_poker", "--against", KUHN_TWIN)
    assert run(*arguments, "--games", "100", "--num-envs", "8", "--json") == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert said.err == ""
    assert document.pop("schema") == 1
    assert 100 <= document.pop("games") < 108
    # Pass or bet at least twice, at most three times in a game.
    assert 200 <= document.pop("decisions") <= 324
    speeds = document.pop("env_steps_per_s")
    assert set(speeds) == {"environment", "against"}
    assert min(speeds.values()) > 0.0
    assert document == {
        "environment": "openspiel:kuhn_poker",
        "against": KUHN_TWIN,
        "equal": True,
        "difference": None,
    }
    assert run(*arguments, "--games", "100", "--num-envs", "8") == 0
    assert "the same game" in capsys.readouterr().out


def test_a_different_game_exits_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ASSETS)
    arguments = ("envs", "check", "classic/tictactoe-v3", "--against", "liars:StrictTicTacToe")
    assert run(*arguments, "--num-envs", "4", "--json") == 3
    document = json.loads(capsys.readouterr().out)
    assert document["equal"] is False
    found = document["difference"]
    # Who did not make the last move has lost.
    loser = ({"player_1", "player_2"} - set(found["actions"][-1])).pop()
    assert (found["what"], found["agent"]) == ("reward", loser)
    assert (found["one"], found["other"]) == ([-1.0], [-2.0])
    assert len(found["actions"]) == found["call"]
    assert run(*arguments, "--num-envs", "4") == 3
    output = capsys.readouterr().out
    assert "different" in output
    assert f"differs: reward of {loser}" in output
    assert f"episode {found['episode']}, after call {found['call']} of step" in output
    calls = [f"{agent}: {action}" for call in found["actions"] for agent, action in call.items()]
    assert f"reset(seed={found['episode_seed']})" in output
    assert f"  {', '.join(calls)}\n" in output


def test_different_facts_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("envs", "check", "openspiel:kuhn_poker", "--against", "openspiel:leduc_poker")
    assert run(*arguments, "--json") == 3
    found = json.loads(capsys.readouterr().out)["difference"]
    assert (found["what"], found["agent"]) == ("observation space", "player_0")
    assert (found["one"]["shape"], found["other"]["shape"]) == ([11], [30])
    assert run(*arguments) == 3
    assert "differs: observation space of player_0" in capsys.readouterr().out


def test_no_games_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("envs", "check", "openspiel:kuhn_poker", "--against", KUHN_TWIN)
    assert run(*arguments, "--games", "0") == 2
    assert capsys.readouterr().out == ""


def test_progress_is_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    arguments = ("envs", "check", "openspiel:kuhn_poker", "--against", KUHN_TWIN)
    assert run(*arguments, "--games", "50", "--num-envs", "8", "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["equal"] is True
    assert "openspiel:kuhn_poker against" in said.err
