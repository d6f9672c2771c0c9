from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest
import yaml

from populations.config.run_config import load_config
from tests.support import exit_code as run
from tests.support import run_process

ASSETS = Path(__file__).parents[2] / "assets"
CONNECT_FOUR_TWIN = "arena.envs.batched.connect_four:ConnectFour"
KUHN_TWIN = "arena.envs.batched.kuhn_poker:KuhnPoker"


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
    assert by_id["openspiel:kuhn_poker"]["install"] == "pip install open_spiel"
    assert by_id["classic/go-v5"]["batched"] is False
    assert by_id["classic/go-v5"]["twin"] is None
    assert by_id["mpe2/simple_tag_v3"]["install"] == "pip install mpe2"


def test_list_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("envs", "list") == 0
    output = capsys.readouterr().out
    assert "mpe2/simple_spread_v3" in output
    assert "pip install 'pettingzoo[atari]'" in output
    lines = {line.split()[0]: line.split()[1:] for line in output.splitlines() if line.strip()}
    assert lines["id"] == ["api", "batched", "installed"]
    assert lines["openspiel:leduc_poker"] == ["aec", "yes", "yes"]
    assert lines["classic/go-v5"] == ["aec", "yes"]


@pytest.mark.slow
def test_check_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--seconds", "0.2", "--train", "256", "--json")
    assert run("envs", "check", "classic/rps-v2", *arguments) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert said.err.splitlines()[-1] == "training for a moment"
    assert document["schema"] == 1
    assert document["works"] is True
    assert document["problems"] == []
    assert document["environment"]["id"] == "classic/rps-v2"
    assert document["mean_length"] == 15.0
    assert (document["reward_low"], document["reward_high"]) == (-1.0, 1.0)
    assert document["turn_order"] == "all at once"
    assert document["aliased"] is None
    assert document["contract"] == {"parallel_api_test": True, "parallel_seed_test": True}
    trial = document["trial"]
    assert trial["agent_steps"] >= 256
    assert trial["learner_updates"] > 0
    assert trial["matches"] == 16
    assert document["preset"].startswith("# classic/rps-v2")


def test_check_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ASSETS)
    preset = tmp_path / "preset.yaml"
    arguments = ("--seconds", "0.1", "--write", str(preset))
    assert run("envs", "check", "environments:UnseededTurns", *arguments) == 3
    output = capsys.readouterr().out
    assert "problem: two runs with one seed and the same actions differ: observations" in output
    assert "mend: draw everything random from a generator that reset(seed=...) makes" in output
    assert "deterministic by seed: no" in output
    assert "a configuration for it" not in output


@pytest.mark.parametrize(
    ("environment", "problem", "left_out"),
    [
        # The fault appears after random play.
        ("mistakes:NoClose", "has no attribute 'close'", ["as nothing was trained"]),
        # The fault ends the play of one environment.
        ("mistakes:Nan", "got nan", ["what follows from random play", "as nothing was trained"]),
    ],
)
def test_with_problems_what_is_known_is_written_with_what_is_not(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    environment: str,
    problem: str,
    left_out: list[str],
) -> None:
    monkeypatch.chdir(ASSETS)
    preset = tmp_path / "preset.yaml"
    arguments = ("--seconds", "0.1", "--write", str(preset))
    assert run("envs", "check", environment, *arguments) == 3
    said, text = capsys.readouterr().err, preset.read_text()
    assert f"written to {preset}, to be launched once no problem is left; left out: " in said
    comments = [line for line in text.splitlines() if line.startswith("#   ")]
    assert any(problem in line for line in comments)
    assert sum("left out: " in line for line in comments) == len(left_out)
    for what in left_out:
        assert what in said
        assert what in "".join(comments)
    # The written preset is a valid configuration.
    assert load_config(preset).environment.id == environment
    assert yaml.safe_load(text)["populations"]


def test_where_nothing_is_known_nothing_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ASSETS)
    preset = tmp_path / "preset.yaml"
    assert run("envs", "check", "mistakes:NoReset", "--write", str(preset)) == 3
    said = capsys.readouterr().err
    assert f"nothing is written to {preset}: agents and spaces are not known" in said
    assert not preset.exists()


@pytest.mark.slow
def test_a_check_ends_with_its_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ASSETS)
    limit_s, began_s = 4.0, time.monotonic()
    arguments = ("--seconds", "0.1", "--time-limit", str(limit_s), "--json")
    mistakes = "environment.kwargs={mistakes: [shape]}"
    assert run("envs", "check", "mistakes:Hanging", mistakes, *arguments) == 3
    # The bound is generous, because imports may be slow, while a call that hangs never ends.
    assert time.monotonic() - began_s < 5.0 * limit_s
    document = json.loads(capsys.readouterr().out)
    assert document["works"] is False
    # Earlier findings are kept.
    (problem,) = document["problems"]
    assert "an observation must have shape (3,), got (4,)" in problem["problem"]
    assert list(document["cut_off"]) == [
        "playing one environment by itself",
        "comparing two runs with one seed",
    ]
    places = document["cut_off"].values()
    assert all("mistakes.py" in when and "in step" in when for when in places)
    assert document["preset"] is None


def test_a_call_that_never_returns_ends_the_process(tmp_path: Path) -> None:
    """Where no Python runs in the main thread, no timer interrupts it."""
    program = (
        "import threading\n"
        "from tools.terminal import progress\n"
        "progress.GRACE_S = 0.0\n"
        "with progress.hard_limit(0.1):\n"
        "    threading.Lock().acquire() and threading.Event().wait()\n"
    )
    done = run_process([sys.executable, "-c", program], timeout_s=60)
    assert done.returncode == 3
    assert done.stderr.startswith("arena: not done after 0.1 s")


CHECK = ("--seconds", "0.1", "--train", "0")


@pytest.mark.slow
def test_keys_of_the_environment_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    keys = ("environment.kwargs={N: 2, max_cycles: 7}", 'environment.sides={team: ["*"]}')
    assert run("envs", "check", "mpe2/simple_spread_v3", *keys, *CHECK, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["mean_length"] == 7.0
    assert document["environment"]["agents"] == ["agent_0", "agent_1"]
    assert document["trial"] is None
    written = yaml.safe_load(document["preset"])["environment"]
    assert written["kwargs"] == {"N": 2, "max_cycles": 7}
    assert written["sides"] == {"team": ["*"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("stop.duration_s=3",), "only keys of environment can be checked, got stop"),
        (("environment.kwarg={}",), "environment.kwargs"),
        (("--write", "."), "--write .: there is a file of this name"),
        (("--against", "classic/rps-v2", "--write", "x.yaml"), "no --write"),
    ],
)
def test_bad_usage_of_check_exits_2(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("envs", "check", "classic/rps-v2", *arguments) == 2
    assert said in capsys.readouterr().err


SMALL = (
    "stop={agent_steps_per_policy: 500, duration_s: null}",
    "evaluation.share=0",
    "launcher=inline",
    "metrics.sinks=[jsonl]",
)


@pytest.mark.xdist_group("processes")
@pytest.mark.slow
def test_what_is_written_can_be_launched(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ASSETS)
    preset, run_dir = tmp_path / "preset.yaml", tmp_path / "run"
    arguments = ("--seconds", "0.1", "--train", "100", "--write", str(preset))
    assert run("envs", "check", "broken:AsymmetricTeams", *arguments) == 0
    assert f"arena launch {preset}" in capsys.readouterr().err.replace("\n", "")
    text = preset.read_text()
    assert "# a guess: these always received the same rewards" in text
    # All agents see and do the same, but two hunters hunt one prey.
    assert "# a guess: roles differ where spaces are equal (prey_0 is not as hunter_0" in text
    document = yaml.safe_load(text)
    assert document["environment"]["sides"] == {"hunter": ["hunter_*"], "prey": ["prey_0"]}
    agents = {name: settings["agents"] for name, settings in document["populations"].items()}
    assert agents == {"hunter": ["hunter_*"], "prey": ["prey_0"]}
    sizes = [f"populations.{population}.size=1" for population in agents]
    small = ("environment.num_envs=4", *sizes, *SMALL)
    assert run("launch", str(preset), *small, "--run-dir", str(run_dir), "--json") == 0
    assert json.loads(capsys.readouterr().out)["state"] == "finished"


@pytest.mark.slow
def test_who_sees_the_same_is_told_which_one_it_plays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ASSETS)
    preset, run_dir = tmp_path / "preset.yaml", tmp_path / "run"
    arguments = ("--seconds", "0.1", "--train", "100", "--write", str(preset))
    assert run("envs", "check", "one_view:Prison", *arguments) == 0
    assert "note: 'prisoner', 'guard' have equal spaces and saw the" in capsys.readouterr().out
    ((population, written),) = yaml.safe_load(preset.read_text())["populations"].items()
    assert written["agents"] == ["*"]
    small = ("environment.num_envs=4", f"populations.{population}.size=1", *SMALL)
    assert run("launch", str(preset), *small, "--run-dir", str(run_dir), "--json") == 0
    # A single network serves both roles: it acts differently on the same view.
    export = tmp_path / "export"
    assert run("export", str(run_dir), "--to", str(export)) == 0
    card = json.loads((export / "card.json").read_text())
    assert card["network"]["agent_id"] is True


@pytest.mark.slow
def test_an_environment_is_found_in_the_directory_that_the_user_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "coded_game.py").write_text(
        "from pettingzoo.classic.rps_v2 import parallel_env as env  # noqa\n"
    )
    check = ("envs", "check", "coded_game:env", "--seconds", "0.1", "--train", "0")
    assert run(*check) == 2
    assert f"no module 'coded_game' in {tmp_path}" in capsys.readouterr().err.replace("\n", "")
    assert run(*check, "--code", "code") == 0
    compared = ("--against", "classic/rps-v2", "--games", "5", "--num-envs", "1")
    assert run(*check[:3], *compared, "--code", "code") == 0


def test_an_unknown_environment_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("envs", "check", "classic/tictactoo-v3", "--json") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "classic/tictactoe-v3" in said.err


@pytest.mark.slow
def test_check_names_the_native_twin(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("envs", "check", "openspiel:kuhn_poker", *CHECK) == 0
    output = capsys.readouterr().out
    assert f"native twin: {KUHN_TWIN}" in output
    assert f"arena envs check openspiel:kuhn_poker --against {KUHN_TWIN}" in output
    assert run("envs", "check", KUHN_TWIN, *CHECK) == 0
    assert "native twin" not in capsys.readouterr().out


def test_check_against_the_twin(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("envs", "check", "openspiel:kuhn_poker", "--against", KUHN_TWIN)
    assert run(*arguments, "--games", "100", "--num-envs", "8", "--json") == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert said.err == ""
    assert document.pop("schema") == 1
    assert 100 <= document.pop("games") < 108
    # A game has two or three decisions to pass or bet.
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
    shown = capsys.readouterr().out
    assert "the same game" in shown
    (speeds_line,) = (line for line in shown.splitlines() if "environment steps/s" in line)
    first, second, ratio = re.findall(r"[\d,]+(?:\.\d+)?", speeds_line)
    # The ratio is that of the first environment: OpenSpiel's game is much slower than the twin.
    one, other = (float(speed.replace(",", "")) for speed in (first, second))
    assert float(ratio) == pytest.approx(one / other, rel=0.06)


def test_a_different_game_exits_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ASSETS)
    arguments = ("envs", "check", "classic/tictactoe-v3", "--against", "liars:StrictTicTacToe")
    assert run(*arguments, "--num-envs", "4", "--json") == 3
    document = json.loads(capsys.readouterr().out)
    assert document["equal"] is False
    found = document["difference"]
    # The player that did not make the last move has lost.
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "code", "problem"),
    [
        ("loud:Loud", 0, None),
        ("faulty:Rounds", 3, "raised SystemExit: 3"),
    ],
)
def test_standard_output_is_one_document_and_the_command_ends(
    environment: str, code: int, problem: str | None
) -> None:
    kwargs = "{}" if problem is None else "{fault: exits, share: 0.3}"
    done = run_process(
        [
            *(Path(sys.executable).with_name("arena"), "envs", "check", environment),
            *(f"environment.kwargs={kwargs}", "--json", "--seconds", "0.1", "--train", "64"),
        ],
        cwd=ASSETS,
        timeout_s=120,
    )
    document = json.loads(done.stdout)
    assert done.returncode == code
    found = [one["problem"] for one in document["problems"]]
    assert any(problem in one for one in found) if problem else not found
    assert ("loading ... done" in done.stderr) == (problem is None)
