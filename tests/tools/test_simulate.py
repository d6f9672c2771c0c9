from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from arena.errors import ConfigError
from arena.types import RANDOM_BOT
from tests.support import exit_code
from tests.tools.conftest import NETWORK, RunBuilder
from tools.simulate import simulate

app = typer.Typer()
app.command()(simulate)

SHORT = ("connect_four", "stop.agent_steps_per_policy=2000000", "pbt.share=even", "--policies", "6")
KEYS = {
    "schema",
    "policies",
    "matches",
    "round_robin_matches",
    "spearman",
    "exploits",
    "wrong_exploits",
    "best_skill",
    "decisions_per_s",
}


def test_the_document_has_what_the_interface_says() -> None:
    outcome = CliRunner().invoke(app, [*SHORT, "--json"], catch_exceptions=False)
    assert outcome.exit_code == 0
    document = json.loads(outcome.stdout)
    assert set(document) >= KEYS
    assert document["schema"] == 1
    assert document["policies"] == 6
    assert document["round_robin_matches"] == 30
    assert document["matches"] >= document["final_matches"] > 0
    assert -1.0 <= document["spearman"] <= 1.0
    assert 0 <= document["wrong_exploits"] <= document["exploits"]
    assert document["decisions_per_s"] > 0.0
    assert all(len(point) == 2 for point in document["best_skill"])


def test_a_population_larger_than_its_learners_gets_smaller() -> None:
    halving = ["pbt.share=halving", "learners=3"]
    arguments = [*SHORT[:-2], *halving, *SHORT[-2:], "--json"]
    outcome = CliRunner().invoke(app, arguments, catch_exceptions=False)
    document = json.loads(outcome.stdout)
    assert (document["policies"], document["retired"]) == (6, 3)
    # The matches are those of the remaining policies.
    assert document["round_robin_matches"] == 6


def test_a_person_reads_a_summary() -> None:
    arguments = [*SHORT, "--cyclic", "--draw-rate", "0.2", "--seed", "3"]
    outcome = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert outcome.exit_code == 0
    for words in ("spearman", "wrong copies", "agent steps"):
        assert words in outcome.stdout


def test_rules_of_the_user_are_found_in_the_directory_that_he_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "simulated_rule.py").write_text(
        "from populations.matchmaking.alphastar import AlphastarMatchmaker as Mine  # noqa\n"
    )
    keys = ("matchmaking.kind=simulated_rule:Mine", "matchmaking.latest_ratio=0.5")
    arguments = ["simulate", *SHORT, *keys, "--json"]
    assert exit_code(*arguments) == 2
    assert "there is no module 'simulated_rule'" in capsys.readouterr().err
    exit_code(*arguments, "--code", "code")
    assert json.loads(capsys.readouterr().out)["policies"] == 6


@pytest.mark.parametrize(
    "arguments",
    [
        ["no_such_preset"],
        ["connect_four", "matchmakin.kind=latest"],
        ["connect_four", "pbt.fraction=2"],
        ["connect_four", "--policies", "1"],
        ["connect_four", "--draw-rate", "1"],
        [],
    ],
)
def test_bad_input_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("simulate", *arguments) == 2
    assert capsys.readouterr().out == ""


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="matchmaking"):
        CliRunner().invoke(app, ["connect_four", "matchmakin.kind=latest"], catch_exceptions=False)


@pytest.mark.slow
def test_it_needs_no_torch() -> None:
    text = (
        "import sys; from populations.config.run_config import load_config;"
        "from populations.simulation.environment import simulated_config;"
        "from populations.simulation.league import simulate;"
        "simulate(simulated_config(load_config('tictactoe', "
        "['stop.agent_steps_per_policy=100000']), num_policies=2));"
        "assert 'torch' not in sys.modules and 'pettingzoo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", text], check=True, cwd=Path(__file__).parents[2])


Command = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def other_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another seed of `board_run`, in which p000 is not rated so high."""
    run = RunBuilder(
        tmp_path_factory.mktemp("runs") / "other",
        {
            "environment": {"id": "classic/connect_four-v3"},
            "populations": {"player": {"size": 1, "network": NETWORK}},
            "seed": 2,
        },
    )
    latest = run.checkpoint("player/p000", agent_steps=90_000, seed=7)
    run.policy("player/p000", index=0, latest=latest)
    run.met(latest.weights_digest, RANDOM_BOT)
    run.rate("player", {latest.weights_digest: 200.0})
    return run.write()


@pytest.mark.slow
def test_seeds_are_compared_by_their_curves_and_by_a_tournament(
    board_run: Path, other_run: Path, command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "curves.svg"
    more = ("--matches", 2, "--plot", file, "--json")
    document = command("compare", board_run, other_run, *more)
    assert [(run["run_dir"], run["seed"]) for run in document["runs"]] == [
        *((str(board_run), 1), (str(other_run), 2))
    ]
    last = document["populations"]["player"][-1]
    # The comparison ends where both runs have results: there the best policies have 200 each (300
    # comes later).
    assert (last["agent_steps"], last["rating"], last["rating_runs"]) == (90_000, 200.0, 2)
    rated = {line["player"]: line["rating"] for line in document["tournament"]["ratings"]}
    assert rated.keys() == {str(board_run), str(other_run), "bot:random"}
    assert rated["bot:random"] == 0.0
    assert ElementTree.parse(file).getroot().tag.endswith("svg")


def test_a_comparison_is_shown_without_matches(
    board_run: Path, other_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    ended = exit_code("compare", board_run, other_run, "--matches", "0")
    shown = capsys.readouterr().out
    assert ended == 0
    assert "runs of classic/connect_four-v3" in shown
    assert "player: mean over runs, 95%" in shown
    assert "tournament" not in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("{run}",), "two or more runs"),
        (("{run}", "{run}"), "each run must be given once"),
        (("{run}", "{run}/logs"), "no run directory"),
        (("{run}", "{run}", "--plot", "curves.txt"), "--plot curves.txt: the suffix"),
    ],
)
def test_bad_input_is_refused(
    arguments: tuple[str, ...], said: str, board_run: Path, command: Command
) -> None:
    given = [argument.format(run=board_run) for argument in arguments]
    error = command("compare", *given, code=2)["error"]
    assert said in " ".join(error.split())
