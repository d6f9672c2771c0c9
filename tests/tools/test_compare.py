"""`arena compare` from the command line."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena.types import RANDOM_BOT
from tests.support import exit_code
from tests.tools.conftest import NETWORK, RunBuilder

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
    # As far as both have come: there the best policies have 200 (not 300, of later) and 200.
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
