"""Every example runs end to end as its README says, and shows what it is there for."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable

import nbformat
import pytest
from nbclient import NotebookClient

from arena.testing import (
    check_algorithm,
    check_batched_game,
    check_bot,
    check_encoder,
    check_matchmaker,
)
from tests.examples.conftest import ROOT, Example

pytestmark = [
    pytest.mark.slow,
    pytest.mark.integration,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("processes"),
]

Copy = Callable[[str], Example]
BOARD = "classic/tictactoe-v3"


def test_a_game_of_ones_own(example: Copy) -> None:
    nim = example("own_game")
    checked = json.loads(nim.arena("envs", "check", "nim:env", "--json"))
    assert checked["problems"] == []
    # Real learner processes are used here; the other examples run in the controller's process.
    nim.launch("nim.yaml", "launcher=local", "ghosts.every_agent_steps=4000")
    assert sorted(nim.rated()) == [f"player/p00{n}" for n in range(4)]
    assert len(nim.events("ghost_created")) >= 4


def test_teams_of_ones_own(example: Copy) -> None:
    meeting = example("own_teams")
    meeting.launch("meeting.yaml", "ghosts.every_agent_steps=4000")
    assert len(meeting.rated()) == 3
    # Mixed teammates exist so that policies play beside others than themselves.
    assert meeting.document("cross-play")["cross_play"]


def test_a_bot_of_ones_own(example: Copy) -> None:
    corners = example("bot")
    check_bot("corners:Corners", environment=BOARD)
    check_bot("corners:Corners(mistakes=0.5)", environment=BOARD)
    corners.launch("corners.yaml", "ghosts.every_agent_steps=4000")
    assert "bot:corners:Corners" in corners.rated("bot")
    # A bot that clearly beats random play never leaves two marks in a row open.
    players = ("bot:corners:Corners", "bot:random")
    met = json.loads(
        corners.arena("evaluate", *players, "--environment", BOARD, "--matches", "100", "--json")
    )
    assert min(p["score"] for p in met["pairs"] if p["home"] == players[0]) > 0.8


def test_a_matchmaker_of_ones_own(example: Copy) -> None:
    near = example("matchmaker")
    check_matchmaker("near:Near", options={"width": 0.15}, launch_directory=str(near.directory))
    near.launch("near.yaml", "ghosts.every_agent_steps=2000")
    assert len(near.rated()) == 3
    drawn = [seated for e in near.events("train_assigned") for seated in e["opponents"]]
    ghosts = [seated for seated in drawn if any("@" in player for player in seated)]
    # Once there are ghosts, a quarter of the opponents are the trainee itself.
    assert 0.2 < len(ghosts) / len(drawn) < 0.9


def test_an_algorithm_of_ones_own(example: Copy) -> None:
    reinforce = example("algorithm")
    check_algorithm("reinforce:Reinforce", environment=BOARD)
    reinforce.launch("reinforce.yaml")
    for population in ("cross", "nought"):
        assert len(reinforce.rated(population=population)) == 2


def test_an_encoder_of_ones_own(example: Copy) -> None:
    board = example("encoder")
    check_encoder("board:Board", environment=BOARD)
    board.launch("board.yaml")
    board.arena("export", board.run)
    card = json.loads((board.run / "champion" / "card.json").read_text())
    assert card["network"]["encoder"] == "board:Board"


def test_a_curriculum_of_ones_own(example: Copy) -> None:
    corridor = example("curriculum")
    corridor.launch("corridor.yaml", agent_steps=40_000)
    assert [event["subject"] for event in corridor.events("lesson_began")] == ["2", "3"]


def test_a_hook_of_ones_own(example: Copy) -> None:
    diary = example("hook")
    diary.launch("diary.yaml", "ghosts.every_agent_steps=4000")
    lines = (diary.run / "diary.md").read_text(encoding="utf8").splitlines()
    assert lines[:2] == ["| event | of | what |", "|---|---|---|"]
    told = [line.split(" | ")[2].removesuffix(" |") for line in lines[2:]]
    assert told.count("ghost_created") == len(diary.events("ghost_created")) >= 3
    assert told[-1] == "run_finished"
    copied = (diary.run / "diary-of-the-end.md").read_text(encoding="utf8").splitlines()
    assert copied == lines


def test_a_batched_game_of_ones_own(example: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    fast_nim = example("batched_game")
    monkeypatch.syspath_prepend(str(ROOT / "own_game"))
    check_batched_game("fast_nim:FastNim", against="nim:env")
    check_batched_game("fast_nim:FastNim", kwargs={"num_sticks": 5}, against="nim:env")
    fast_nim.launch("fast_nim.yaml", "environment.num_envs=64", "ghosts.every_agent_steps=4000")
    assert len(fast_nim.rated()) == 4


def test_a_notebook(example: Copy) -> None:
    notebook = example("notebook")
    path = notebook.directory / "league.ipynb"
    document = nbformat.read(path, as_version=4)
    # The notebook runs in its own kernel, in its own directory.
    place = {"metadata": {"path": str(notebook.directory)}}
    NotebookClient(document, timeout=500, resources=place).execute()
    shown = [
        ast.literal_eval(output["data"]["text/plain"])
        for cell in document.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    state, standings, (num_ghosts, num_points), moves, met = shown
    assert state == "running"
    assert {f"player/p00{n}" for n in range(3)} <= {player for player, _ in standings}
    assert num_ghosts >= 3
    assert num_points >= 3
    # Tic-tac-toe ends after five to nine moves.
    assert 5 <= len(moves) <= 9
    assert {home for home, _, _ in met} == {"runs/notebook", "bot:random"}


def test_every_example_is_listed_and_short() -> None:
    listed = (ROOT / "README.md").read_text(encoding="utf8")
    folders = sorted(path.name for path in ROOT.iterdir() if path.is_dir())
    assert len(folders) == 11
    for folder in folders:
        assert f"[{folder}]({folder}/)" in listed
        assert (ROOT / folder / "README.md").is_file()
        code = (ROOT / folder).glob("*.py")
        assert all(len(path.read_text().splitlines()) < 100 for path in code)
