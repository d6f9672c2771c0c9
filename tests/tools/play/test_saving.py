"""Games in files: shown as they were played, and refused where they are not what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from populations.errors import StorageError
from tests.tools.play.conftest import GameOf
from tools.play import saving
from tools.play.answers import answer
from tools.play.game import PersonsGame, Refused
from tools.play.saving import save
from tools.play.table import sit_down
from tools.replay.retelling import retold
from tools.replay.saved import read_game

Command = Callable[..., dict[str, Any]]


def played(path: Path, player: str, *moves: str, **how: Any) -> Path:
    with closing(PersonsGame(sit_down(player, **how), seed=5)) as game:
        for move in moves:
            game.play(game.read(move))
        save(game, path)
    return path


@pytest.fixture(scope="module")
def game_file(board_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unfinished game of Connect Four against a run's champion."""
    return played(tmp_path_factory.mktemp("games") / "game.json", str(board_run), "4", "3")


def test_a_saved_game_is_replayed_with_the_players_thoughts(
    game_file: Path, board_run: Path, command: Command
) -> None:
    told = command("replay", game_file, "--json")
    assert [seat["player"] for seat in told["seats"]] == ["you", str(board_run)]
    assert told["seats"][0]["weights"] is None
    steps = told["steps"]
    assert [steps[at]["decisions"][0]["action"] for at in (0, 2)] == [3, 2]
    assert len(steps) == 5
    assert steps[-1]["decisions"] == [], "it is not over"
    assert "x player_0" in steps[4]["picture"]["text"]
    # The champion's own probabilities are kept, as for a game that its run has kept.
    assert {"probability", "value", "choices"} <= steps[1]["decisions"][0].keys()
    assert told["notes"] == []


def test_a_game_whose_player_is_gone_is_replayed_without_it(
    board_run: Path, tmp_path: Path
) -> None:
    path = played(tmp_path / "game.json", str(board_run), "4")
    document = json.loads(path.read_text())
    document["row"]["players"][1] = "runs/gone"
    path.write_text(json.dumps(document))
    told = retold(path).document
    assert told["notes"] == ["the weights of runs/gone are gone: what it thought is not known"]
    assert len(told["steps"]) == 3


def test_a_finished_game_has_points(tmp_path: Path) -> None:
    path = played(tmp_path / "g.json", "bot:random", "bet", environment="openspiel:kuhn_poker")
    told = retold(path).document
    assert [seat["points"] for seat in told["seats"]] in ([1.0, 0.0], [0.0, 1.0])
    assert sum(seat["return"] for seat in told["seats"]) == 0.0


NONE = "is no game that arena play has saved"


@pytest.mark.parametrize(
    ("change", "says", "code"),
    [
        ({"row": {"steps": 3}}, "shown must have 4 bytes for the start and each step", 2),
        ({"row": {"players": ["you"]}}, "must have a player for each of 2 seats", 2),
        ({"row": {"seats": [0, 7]}}, "must have a player for each of 2 seats", 2),
        ({"row": {"points": [1.0]}}, "points must have one for each side", 2),
        ({"row": {"seed": -1}}, "seed: must be int >= 0", 2),
        ({"row": {"actions": 5}}, "row: actions", 2),
        ({"row": {"returns": [0.0, "nan"]}}, "row: returns", 2),
        ({"arena_game": 2}, NONE, 2),
        ({"extra": 1}, NONE, 2),
        ({"config": {"id": 1}}, NONE, 2),
        ({"is_over": True}, "it goes on, where the game was over", 3),
        (None, NONE, 2),
    ],
)
def test_a_file_that_is_none_is_refused(
    game_file: Path, tmp_path: Path, command: Command, change: Any, says: str, code: int
) -> None:
    path = tmp_path / "changed.json"
    document = json.loads(game_file.read_text())
    row = {**document["row"], **(change or {}).get("row", {})}
    path.write_text(json.dumps({**document, **change, "row": row}) if change else "hello")
    error = command("replay", path, code=code)["error"]
    assert says in error
    assert (NONE in error) == (code == 2)


def test_code_that_a_file_names_needs_the_users_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2] / "assets")
    how = {"environment": "environments:ScriptedTurns"}
    path = played(tmp_path / "game.json", "bot:random", "1", **how)
    _, game = read_game(path, trust=False)
    assert not game.is_playable
    assert read_game(path, trust=True)[1].is_playable


def test_options_that_find_a_game_have_no_meaning(game_file: Path, command: Command) -> None:
    for option in ("--player", "--opponent", "--id", "--beside"):
        error = command("replay", game_file, option, "p000", code=2)["error"]
        assert f"is one game, so {option} has no meaning" in error


def test_no_file_is_replaced_and_a_game_that_is_too_long_is_not_saved_and_goes_on(
    game_of: GameOf, game_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = game_of("bot:random", environment="classic/tictactoe-v3")
    with pytest.raises(StorageError, match=r"game\.json cannot be written: File exists"):
        save(game, game_file)
    monkeypatch.setattr(saving, "MAX_GAME_BYTES", 10)
    with pytest.raises(Refused, match="has at most 10 bytes, this one 12"):
        save(game, tmp_path / "game.json")
    refused = answer(game, {"do": "save"})
    assert "has at most 10 bytes" in refused["refusal"]
    assert "file" not in refused
    assert not (tmp_path / "game.json").exists()
