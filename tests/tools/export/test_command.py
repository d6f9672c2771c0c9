from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from arena.checkpoints.files import sha256_bytes
from arena.export.actor import load_export_weights
from arena.export.card import read_card
from arena.export.champion import Champion, play_record
from tests.tools.export.conftest import export

pytestmark = pytest.mark.xdist_group("exports")

Command = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def exported(
    board_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Path]:
    """What the command says, and the export: tests share it and change nothing in it."""
    directory = tmp_path_factory.mktemp("out") / "champion"
    return export(board_run, directory, "--matches", 4)["exports"]["player"], directory


@pytest.mark.slow
def test_the_champion_is_exported_with_its_record(
    exported: tuple[dict[str, Any], Path], board_run: Path
) -> None:
    document, directory = exported
    card = read_card(directory)
    assert document["directory"] == str(directory)
    assert document["player"] == card.player == "player/p000"
    assert (card.agent_steps, card.generation, card.learner_updates) == (120_000, 1, 1200)
    assert card.rating.rating == 300.0
    assert card.rating.rating_low == pytest.approx(300.0 - 19.6, abs=0.01)
    assert card.agents == ("player_0", "player_1")
    assert [(a.policy, a.generation, a.agent_steps) for a in card.lineage] == [
        ("player/p000", 0, 60_000)
    ]
    assert {seat.name for seat in card.seats} == {"player_0", "player_1"}
    assert document["verified_observations"] == 64

    opponents = {"bot:random", "player/p000@000000060000", "player/p001@000000090000"}
    assert {line.opponent for line in card.record} == opponents
    keys = [(line.opponent, line.mode, line.seat) for line in card.record]
    assert len(keys) == len(set(keys)) == len(opponents) * 2 * 2
    for line in card.record:
        assert line.matches == {"greedy": 4, "sampled": 2}[line.mode]
        assert line.wins + line.draws + line.losses == line.matches
        assert line.mean_return == pytest.approx((line.wins - line.losses) / line.matches)


@pytest.mark.slow
def test_an_export_is_a_player_and_is_not_overwritten(
    exported: tuple[dict[str, Any], Path], command: Command, board_run: Path
) -> None:
    directory = exported[1]
    before = (directory / "card.json").read_bytes()
    assert "--force" in command("export", board_run, "--to", directory, code=2)["error"]
    assert (directory / "card.json").read_bytes() == before

    # The export is the champion: greedy against greedy, the two orders mirror each other.
    players = (directory, board_run, f"{board_run}:player/p001")
    document = command("evaluate", *players, "--greedy", "--matches", 1, "--json")
    results = {
        (pair["home"], pair["away"]): (pair["wins"], pair["draws"]) for pair in document["pairs"]
    }
    export, run, other = (str(player) for player in players)
    assert results[(export, other)] == results[(run, other)]
    assert results[(other, export)] == results[(other, run)]

    network, weights = load_export_weights(directory)
    assert network.hidden_sizes == (16,)
    assert weights["head.weight"].shape == (8, 16)


@pytest.mark.slow
def test_a_ghost_is_exported_by_name_over_an_old_export(
    exported: tuple[dict[str, Any], Path], command: Command, board_run: Path, tmp_path: Path
) -> None:
    directory, ghost = tmp_path / "champion", "player/p000@000000060000"
    shutil.copytree(exported[1], directory)
    arguments = ("--player", ghost, "--to", directory, "--matches", 1, "--force", "--json")
    document = command("export", board_run, *arguments)["exports"]["player"]
    assert document["player"] == read_card(directory).player == ghost
    assert document["rating"] == 200.0
    assert ghost not in {line["opponent"] for line in document["record"]}
    assert [path.name for path in tmp_path.iterdir()] == ["champion"]


@pytest.mark.slow
def test_a_kept_checkpoint_is_exported_by_name_with_a_page(
    command: Command, board_run: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "kept"
    arguments = ("--player", "player/p000@120000", "--html", "--to", directory, "--matches", 0)
    document = command("export", board_run, *arguments, "--json")["exports"]["player"]
    assert (document["record"], document["exploitability"]) == ([], None)
    assert "No matches were played" in (directory / "card.md").read_text()
    assert document["player"] == "player/p000@000000120000"
    assert (document["agent_steps"], document["rating"]) == (120_000, 300.0)
    page = (directory / "champion.html").read_bytes()
    record = read_card(directory).files["champion.html"]
    assert (record.size_bytes, record.sha256) == (len(page), sha256_bytes(page))


def changed(export: Path, copy: Path, **sections: Mapping[str, object]) -> Path:
    """A copy of an export whose card says something else."""
    shutil.copytree(export, copy)
    card = json.loads((copy / "card.json").read_text())
    for name, values in sections.items():
        card[name] |= values
    (copy / "card.json").write_text(json.dumps(card))
    return copy


@pytest.mark.slow
def test_code_that_a_foreign_card_names_is_not_imported(
    exported: tuple[dict[str, Any], Path], command: Command, tmp_path: Path
) -> None:
    for key, reference in (("id", "os:system"), ("outcome", "some.module:function")):
        directory = changed(exported[1], tmp_path / key, environment={key: reference})
        error = command("evaluate", directory, "bot:random", code=2)["error"]
        assert reference in error
        assert "add --trust" in error


@pytest.mark.slow
def test_ones_own_environment_replaces_a_foreign_outcome_and_no_other_game(
    exported: tuple[dict[str, Any], Path], command: Command, tmp_path: Path
) -> None:
    # The arguments are data: an environment with other arguments would be another one.
    given = {"outcome": "no.such:function", "kwargs": {"screen_scaling": 5}}
    directory = changed(exported[1], tmp_path / "foreign", environment=given)
    shutil.copytree(directory, tmp_path / "twin")
    players = (directory, tmp_path / "twin", "bot:random")
    arguments = ("--environment", "classic/connect_four-v3", "--matches", 1, "--json")
    assert len(command("evaluate", *players, *arguments)["pairs"]) == 6
    # The export cannot play another game.
    stranger = ("bot:random", "--environment", "classic/tictactoe-v3")
    error = command("evaluate", exported[1], *stranger, code=2)["error"]
    assert "plays classic/connect_four-v3" in error


@pytest.mark.slow
def test_two_populations_are_exported_side_by_side(
    command: Command, tag_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tag_run, run)
    document = command("export", run, "--matches", 2, "--json")
    assert set(document["exports"]) == {"predator", "prey"}
    for population in ("predator", "prey"):
        directory = run / "champion" / population
        card = read_card(directory)
        assert card.population == population
        assert card.mask is None
        assert json.loads((directory / "card.json").read_text())["environment"]["outcome"] == {
            "threshold": 10.0,
            "side": "predators",
        }
        rival = "prey" if population == "predator" else "predator"
        opponents = {line.opponent for line in card.record}
        assert opponents == {"bot:random", f"{rival}/p000@000000030000"}
    # Both champions play at once, from the directory that holds them.
    players = (run / "champion", "bot:random")
    pairs = command("evaluate", *players, "--matches", 1, "--json")["pairs"]
    assert len(pairs) == 2


@pytest.mark.slow
def test_cooperation_is_compared_by_returns(
    command: Command, team_run: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "champion"
    command("export", team_run, "--to", directory, "--matches", 2, "--json")
    card = read_card(directory)
    assert [seat.agents for seat in card.seats] == [("agent_0", "agent_1")]
    assert {line.opponent for line in card.record} == {"bot:random", "agent/p000@000000001000"}
    for line in card.record:
        assert line.wins + line.draws + line.losses == line.matches
        assert line.mean_return < 0.0
    record = play_record(
        Champion(directory), environment_id=card.environment.id, games=1, seed=1, sample=False
    )
    (seat,) = record["seats"]
    assert (seat["matches"], seat["wins"], seat["losses"]) == (1, None, None)


ALONE = """
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        assert name.split(".")[0] not in {"arena", "populations", "torch", "onnx", "pydantic",
                                          "safetensors", "typer"}, name

sys.meta_path.insert(0, Refuse())
sys.path.insert(0, sys.argv[1])
import champion

champion.main(["--games", "2", "--seed", "3", *sys.argv[2:]])
"""


@pytest.fixture(scope="module")
def steering(steering_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of who steers by continuous actions and is told who decides."""
    directory = tmp_path_factory.mktemp("steering") / "champion"
    export(steering_run, directory, "--matches", 2)
    return directory


@pytest.mark.slow
def test_continuous_actions_are_played_by_the_file_alone(steering: Path) -> None:
    for options in ((), ("--sample",)):
        program = [sys.executable, "-I", "-c", ALONE, str(steering), *options]
        output = subprocess.check_output(program, text=True, timeout=60)
        (seat,) = json.loads(output)["seats"]
        assert (seat["seat"], seat["matches"], seat["wins"]) == ("home", 2, None)
        # Each agent is far from a landmark at each of ten steps.
        assert -1000.0 < seat["mean_return"] < 0.0


@pytest.mark.slow
def test_who_reads_or_writes_other_numbers_is_refused(
    steering: Path, command: Command, tmp_path: Path
) -> None:
    for section, key, value, complaint in (
        ("environment", "continuous_actions", "clipped", "share environment.continuous_actions"),
        ("network", "agent_id", False, "population agent must share network.agent_id"),
    ):
        other = changed(steering, tmp_path / key, **{section: {key: value}})
        assert complaint in command("evaluate", steering, other, code=2)["error"]


@pytest.mark.parametrize(
    ("run", "arguments", "complaint"),
    [
        ("board", ("--population", "prey"), "the run has player"),
        ("board", ("--player", "player/p007"), "policies: player/p000"),
        ("board", ("--player", "player/p001", "--population", "prey"), "the run has player"),
        ("board", ("--player", "player/p002"), "no checkpoint yet"),
        ("cyclic", ("--html",), "openspiel:kuhn_poker, openspiel:leduc_poker, not classic/rps-v2"),
        ("board", ("--html", "--mixture"), "--mixture and --html exclude each other"),
        ("cyclic", ("--mixture", "--player", "player/p000"), "exclude each other: a mixture"),
        ("team", ("--mixture",), "cooperation"),
        ("board", ("--levels", 3, "--mixture"), "--mixture and --levels exclude each other"),
        ("tag", ("--levels", 3, "--population", "prey"), "of the run; without are predator"),
    ],
)
def test_what_cannot_be_exported_is_said_before_anything_is_played(
    command: Command,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    run: str,
    arguments: tuple[object, ...],
    complaint: str,
) -> None:
    directory = request.getfixturevalue(f"{run}_run")
    error = command("export", directory, "--to", tmp_path / "x", *arguments, code=2)["error"]
    assert complaint in error
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_no_run_is_said(command: Command, tmp_path: Path) -> None:
    assert "no run directory" in command("export", tmp_path, code=2)["error"]
