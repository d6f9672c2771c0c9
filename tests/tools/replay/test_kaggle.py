"""Games as episodes of Kaggle's.

The oracle is what Kaggle's own environments made of the same actions, stored in
`tests/assets/kaggle_episodes.json` but for what Arena leaves out;
`tests/environments/test_kaggle.py` asks those environments again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from arena.errors import ConfigError
from tests.environments.short_run import ASSETS
from tests.tools.replay.kaggle_games import BY_HAND, FIRST_WINS, by_turns, told
from tools.replay.files import write_file
from tools.replay.kaggle import GAMES, episode
from tools.replay.retelling import retold

STORED: dict[str, dict[str, Any]] = json.loads(
    (ASSETS / "kaggle_episodes.json").read_text(encoding="utf8")
)
PACKAGES = {"classic/chess-v6": ("chess", "pyspiel"), "classic/tictactoe-v3": ("pyspiel",)}


def made(name: str) -> dict[str, Any]:
    environment = BY_HAND[name]["environment"]
    for package in PACKAGES.get(environment, ("pyspiel",) * environment.startswith("openspiel:")):
        pytest.importorskip(package)
    made: dict[str, Any] = json.loads(json.dumps(episode(BY_HAND[name])))
    return made


@pytest.mark.parametrize("name", BY_HAND)
def test_an_episode_is_what_kaggles_environment_makes_of_the_actions(name: str) -> None:
    mine, theirs = made(name), STORED[name]
    assert mine["steps"] == theirs["steps"]
    assert mine["rewards"] == theirs["rewards"]
    assert mine["statuses"] == theirs["statuses"] == ["DONE", "DONE"]
    assert mine["configuration"].items() <= theirs["configuration"].items()
    names = mine["info"].pop("TeamNames")
    assert sorted(names) == [seat["player"] for seat in BY_HAND[name]["seats"]]
    assert mine["info"].items() <= theirs["info"].items()


def test_each_game_is_made_by_hand() -> None:
    assert {one["environment"].partition("(")[0] for one in BY_HAND.values()} == set(GAMES)


def test_pieces_and_crosses_lie_where_they_were_put() -> None:
    last = made("connectx")["steps"][-1][0]["observation"]["board"]
    rows = [last[7 * row : 7 * row + 7] for row in range(6)]
    assert rows[:2] == [[0] * 7] * 2
    assert rows[2] == [1, 0, 0, 0, 0, 0, 0]
    assert rows[3:] == [[1, 2, 0, 0, 0, 0, 0]] * 3
    (last,) = {
        state["observation"]["observationString"] for state in made("tictactoe")["steps"][-1]
    }
    assert last == "xoo\nx..\nx.."


def test_of_chess_black_comes_first() -> None:
    mate = made("chess")
    moves = [
        state["action"]["actionString"]
        for step in mate["steps"]
        for state in step
        if "actionString" in state["action"]
    ]
    assert moves == ["f3", "e5", "g4", "Qh4#"]
    assert mate["info"]["TeamNames"] == ["player of player_1", "player of player_0"]
    assert mate["rewards"] == [1.0, -1.0]
    assert mate["info"]["stateHistory"][-1] == (
        "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
    )


def test_a_draw_of_chess_that_kaggle_does_not_see_is_one() -> None:
    """PettingZoo ends a game where a draw may be claimed, OpenSpiel where there is one."""
    for package in PACKAGES["classic/chess-v6"]:
        pytest.importorskip(package)
    document = told("classic/chess-v6", by_turns([2997, 2421]), [])
    drawn = episode(document)
    assert drawn["rewards"] == [0.0, 0.0]
    assert drawn["statuses"] == ["DONE", "DONE"]
    assert [state["observation"]["isTerminal"] for state in drawn["steps"][-1]] == [False, False]


def test_other_games_are_refused_by_name() -> None:
    with pytest.raises(ConfigError) as refused:
        episode(told("mpe2/simple_tag_v3", by_turns([0]), FIRST_WINS))
    assert str(refused.value) == (
        ".json is for games that kaggle-environments knows, classic/connect_four-v3, "
        "classic/rps-v2, classic/tictactoe-v3, classic/chess-v6, openspiel:connect_four, "
        "openspiel:chess, openspiel:hex, openspiel:tic_tac_toe; got mpe2/simple_tag_v3"
    )


def test_more_signs_than_kaggle_has_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs num_actions of at most 5, got 7"):
        episode(told("classic/rps-v2", [{}], FIRST_WINS, kwargs={"num_actions": 7}))


def test_actions_that_openspiel_does_not_know_are_refused() -> None:
    pytest.importorskip("pyspiel")
    twice = told("openspiel:tic_tac_toe", by_turns([4, 4]), FIRST_WINS)
    with pytest.raises(ConfigError, match=r"by which 4 is no action after \[4\]"):
        episode(twice)


def test_openspiel_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(ConfigError, match="needs the module 'pyspiel', which is not there: pip"):
        episode(BY_HAND["tictactoe"])


def test_a_game_of_a_run_is_written(kept_run: Path, tmp_path: Path) -> None:
    game = retold(kept_run, game="1.0")
    write_file(game, tmp_path / "game.json")
    assert game.document["kwargs"] == {}
    written = json.loads((tmp_path / "game.json").read_text(encoding="utf8"))
    assert written["info"]["TeamNames"] == [seat["player"] for seat in game.document["seats"]]
    assert written["rewards"] == [seat["return"] for seat in game.document["seats"]]
    board = written["steps"][-1][0]["observation"]["board"]
    assert sum(cell > 0 for cell in board) == len(game.document["steps"]) - 1
