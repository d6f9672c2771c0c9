"""Kaggle's own environments play and show the episodes that are made of games.

They are installed in an environment of their own, whose Python `KAGGLE_PYTHON` names.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any, cast

import pytest

from tests.environments.rows import Row
from tests.environments.short_run import ASSETS, make_setup
from tests.recorded_games import RANDOM, play, row_of
from tests.support import run_process
from tests.tools.replay.kaggle_games import BY_HAND
from tools.players.game import Game
from tools.replay.kaggle import GAMES, episode
from tools.replay.retelling import Retelling

PYTHON = os.environ.get("KAGGLE_PYTHON", "")
needs_kaggle = pytest.mark.skipif(
    not PYTHON, reason="KAGGLE_PYTHON names no Python with kaggle-environments"
)
NUM_GAMES = 3
TIMEOUT_S = 300.0

ROWS = (
    Row(name="connectx", id="classic/connect_four-v3"),
    Row(name="rps", id="classic/rps-v2"),
    Row(name="rps-of-five", id="classic/rps-v2", kwargs={"num_actions": 5, "max_cycles": 40}),
    Row(name="tictactoe", id="classic/tictactoe-v3"),
    Row(name="chess", id="classic/chess-v6", needs=("chess", "pyspiel")),
    *(
        Row(name=f"openspiel-{name}", id=f"openspiel:{name}", kwargs=kwargs, needs=("pyspiel",))
        for name, kwargs in (
            ("chess", {}),
            ("connect_four", {}),
            ("connect_four(columns=5,rows=4,x_in_row=3)", {}),
            ("hex", {"board_size": 5}),
            ("tic_tac_toe", {}),
        )
    ),
)


def documents(row: Row, tmp_path: Path) -> list[dict[str, Any]]:
    """What is told of games of random play."""
    game = Game.of_setup(make_setup(row, root=tmp_path))
    recorder, _ = play(game, num_envs=NUM_GAMES)
    assert len(recorder.games) == NUM_GAMES
    rows = (
        row_of(f"{row.name}.{number}", one, [RANDOM] * len(one.seats))
        for number, one in enumerate(recorder.games)
    )
    # Random play has no probabilities or values to show.
    return [Retelling(game, one, lambda *_: None, {}).tell() for one in rows]


def in_kaggles_environments(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = run_process(
        [PYTHON, ASSETS / "kaggle_oracle.py"], input=json.dumps(episodes), timeout_s=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    return cast("list[dict[str, Any]]", json.loads(done.stdout))


def without_what_is_left_out(steps: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    for step in steps:
        for state in step:
            state["info"] = {}
            for name in ("remainingOverageTime", "serializedGameAndState"):
                state["observation"].pop(name, None)
    return steps


def test_every_game_is_played() -> None:
    assert {row.id.partition("(")[0] for row in ROWS} == set(GAMES)


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.timeout(2 * TIMEOUT_S)
@needs_kaggle
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_kaggles_environment_plays_the_same_episode(row: Row, tmp_path: Path) -> None:
    missing = [name for name in row.needs if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    told = documents(row, tmp_path)
    episodes = [json.loads(json.dumps(episode(document))) for document in told]
    for mine, theirs in zip(episodes, in_kaggles_environments(episodes), strict=True):
        played = without_what_is_left_out(theirs["steps"])
        # PettingZoo ends a game of chess where a draw may be claimed, at times before OpenSpiel.
        if row.id == "classic/chess-v6" and "DONE" not in theirs["statuses"]:
            assert mine["rewards"] == [0.0, 0.0]
            for state in played[-1]:
                state |= {"reward": 0.0, "status": "DONE"}
        assert mine["steps"] == played
        assert mine["rewards"] == [state["reward"] for state in played[-1]]
        assert mine["statuses"] == ["DONE"] * len(mine["rewards"])
        assert mine["configuration"].items() <= theirs["configuration"].items()
        of_game = {key: value for key, value in mine["info"].items() if key != "TeamNames"}
        assert of_game.items() <= theirs["info"].items()
        assert without_what_is_left_out(theirs["shown"]["steps"]) == mine["steps"]
        assert theirs["shown"]["info"]["TeamNames"] == mine["info"]["TeamNames"]
        # Kaggle loads no score beyond one round of rock, paper, scissors, not even from its own
        # games.
        assert theirs["loads"] == theirs["own_loads"]


@pytest.mark.slow
@pytest.mark.matrix
@pytest.mark.timeout(2 * TIMEOUT_S)
@needs_kaggle
def test_kaggles_environment_still_says_what_is_stored() -> None:
    stored = json.loads((ASSETS / "kaggle_episodes.json").read_text(encoding="utf8"))
    assert set(stored) == set(BY_HAND)
    answers = in_kaggles_environments([episode(document) for document in BY_HAND.values()])
    for name, answer in zip(BY_HAND, answers, strict=True):
        answer["steps"] = without_what_is_left_out(answer["steps"])
        assert {key: answer[key] for key in stored[name]} == stored[name], name
