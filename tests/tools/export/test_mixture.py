"""``arena export --mixture`` on a league in which three play rock, paper and scissors."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena.export.card import MixtureCard, read_any_card
from populations.records.tables import seal_rows
from populations.views.questions.inspection import Inspection
from tests.support import exit_code, run_process
from tests.tools.export.conftest import export
from tools.export.mixture import find_mixtures

pytestmark = pytest.mark.xdist_group("exports")

Command = Callable[..., dict[str, Any]]
PURE = {f"player/p{action:03d}@000000001000" for action in range(3)}

ALONE = """
import importlib.abc, json, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        assert name.split(".")[0] not in {"arena", "populations", "torch", "onnx", "pettingzoo",
                                          "gymnasium", "pydantic", "safetensors", "scipy"}, name

sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
from champion import Champion

champion = Champion(sys.argv[1], seed=5)
actions = []
for _ in range(3000):
    champion.reset()
    actions.append(champion.act(3, sample=True))
print(json.dumps(actions))
"""


def within(count: float, *, of: int, share: float) -> bool:
    return abs(count - of * share) <= 5 * math.sqrt(of * share * (1 - share))


@pytest.fixture(scope="module")
def exported(
    cyclic_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    """What the command says, and the export: tests share it and change nothing in it."""
    directory = tmp_path_factory.mktemp("out") / "champion"
    document = export(cyclic_run, directory, "--mixture", "--matches", 300)
    assert document["schema"] == 1
    return document["exports"]["player"], directory


@pytest.mark.slow
def test_who_beat_each_other_in_a_circle_share_the_episodes(
    exported: tuple[dict[str, Any], Path],
) -> None:
    document, directory = exported
    assert document["kind"] == "mixture"
    assert document["player"] == "player/mixture"
    assert document["directory"] == str(directory)
    members = {line["player"]: line["probability"] for line in document["members"]}
    assert members == pytest.approx(dict.fromkeys(PURE, 1 / 3))
    assert document["num_players"] == 4
    assert document["worst_score"] == pytest.approx(0.5)
    assert document["cyclicity"] == 0.9
    assert document["verified_observations"] == 3 * 64
    card = read_any_card(directory)
    assert isinstance(card, MixtureCard)
    assert {m.player: m.rating.rating for m in card.members} == dict.fromkeys(PURE, 50.0)
    assert all((directory / m.directory / "policy.onnx").is_file() for m in card.members)


@pytest.mark.slow
def test_its_record_is_sampled_and_even_against_each_of_its_members(
    exported: tuple[dict[str, Any], Path],
) -> None:
    record = exported[0]["record"]
    assert {line["opponent"] for line in record} == {"bot:random", *PURE}
    for line in record:
        assert line["mode"] == "sampled"
        assert line["matches"] == 300
        for key in ("wins", "draws", "losses"):
            assert within(line[key], of=300, share=1 / 3), line


@pytest.mark.slow
def test_it_plays_in_a_process_that_has_nothing_of_arena(
    exported: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(exported[1], copy)
    done = run_process([sys.executable, "-I", "-c", ALONE, str(copy)], check=True)
    actions = json.loads(done.stdout)
    assert set(actions) == {0, 1, 2}
    for action in range(3):
        assert within(actions.count(action), of=len(actions), share=1 / 3)


@pytest.mark.slow
def test_it_is_a_player_that_draws_a_member_for_each_match(
    exported: tuple[dict[str, Any], Path], command: Command, cyclic_run: Path
) -> None:
    directory, num_matches = exported[1], 900
    rock = f"{cyclic_run}:player/p000@000000001000"
    players = (directory, rock, directory / "members" / "00")
    arguments = ("evaluate", *players, "--matches", num_matches, "--json")
    document = command(*arguments, "--seed", 3)
    for pair in document["pairs"]:
        if str(directory) in (pair["home"], pair["away"]):
            for key in ("wins", "draws", "losses"):
                assert within(pair[key], of=num_matches, share=1 / 3), pair
    assert command(*arguments, "--seed", 3) == document
    assert command(*arguments, "--seed", 4)["pairs"] != document["pairs"]


@pytest.mark.slow
def test_it_gives_nobody_its_weights(
    exported: tuple[dict[str, Any], Path], command: Command, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "environment: {id: classic/rps-v2, kwargs: {max_cycles: 1}}\n"
        "populations: {player: {network: {encoder: mlp, hidden_sizes: [16]}}}\n"
    )
    arguments = ("launch", config, "--run-dir", tmp_path / "run", "--init-from", exported[1])
    error = command(*arguments, code=2)["error"]
    assert "is a mixture of 3 policies; name one of them" in error
    assert "members/00" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_member_that_its_mixture_does_not_name_is_refused(
    exported: tuple[dict[str, Any], Path], command: Command, tmp_path: Path
) -> None:
    copy = tmp_path / "champion"
    shutil.copytree(exported[1], copy)
    card = copy / "members" / "02" / "card.json"
    card.write_text(card.read_text().replace('"generation": 0', '"generation": 1', 1))
    error = command("evaluate", copy, "bot:random", code=5)["error"]
    assert "members/02/card.json" in error


def test_players_whose_files_are_gone_are_no_members(cyclic_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(cyclic_run, run)

    def members() -> set[str]:
        inspection = Inspection.open(run)
        try:
            return {str(line.player) for line, _ in find_mixtures(inspection)["player"].members}
        finally:
            inspection.close()

    assert members() == PURE
    rock = run / "populations" / "player" / "p000"
    shutil.rmtree(rock / "ghosts")
    assert members() == {"player/p000", *PURE} - {"player/p000@000000001000"}
    shutil.rmtree(rock / "checkpoints")
    # Without rock, scissors beat all others.
    assert members() == {"player/p002@000000001000"}


def test_standings_warn_where_ratings_say_little(
    command: Command, cyclic_run: Path, board_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("league", cyclic_run, "--json")["cyclicity"] == {"player": 0.9}
    assert command("league", board_run, "--json")["cyclicity"] == {"player": 0.0}
    for run, is_warned in ((cyclic_run, True), (board_run, False)):
        assert exit_code("league", run) == 0
        text = capsys.readouterr().out
        assert ("cyclicity of player is 0.90, above 0.25" in text) is is_warned
        assert (f"arena export {run} --mixture" in text) is is_warned


def test_a_launch_ends_with_the_same_warning(
    cyclic_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(cyclic_run, run)
    with contextlib.closing(sqlite3.connect(run / "journal.db")) as journal, journal:
        journal.execute("UPDATE run SET state = 'finished', reason = 'enough'")
        seal_rows(journal)
    arguments = ["launch", "--resume", "--run-dir", str(run), "--json"]
    assert exit_code(*arguments, "stop.agent_steps_per_policy=1") == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["state"] == "finished"
    assert "cyclicity of player is 0.90" in output.err
