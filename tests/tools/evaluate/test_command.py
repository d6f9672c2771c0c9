from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arena.errors import ConfigError
from populations.config.trust import Word
from tests.support import exit_code
from tools.players.resolve import resolve_player

Command = Callable[..., dict[str, Any]]
BOARD = "classic/connect_four-v3"


def test_every_ordered_pair_meets_and_everybody_has_every_seat(
    command: Command, board_run: Path
) -> None:
    players = [str(board_run), f"{board_run}:player/p001", "bot:random"]
    document = command("evaluate", *players, "--matches", 6, "--seed", 3, "--json")
    assert document["schema"] == 1
    assert document["players"] == players
    pairs = {(pair["home"], pair["away"]): pair for pair in document["pairs"]}
    assert set(pairs) == {(a, b) for a in players for b in players if a != b}
    for (home, away), pair in pairs.items():
        assert pair["seats"] == {"player_0": home, "player_1": away}
        assert pair["wins"] + pair["draws"] + pair["losses"] == pair["matches"] == 6
        assert pair["score"] == pytest.approx((pair["wins"] + pair["draws"] / 2) / 6)
        assert pair["mean_return"] == pytest.approx((pair["wins"] - pair["losses"]) / 6)


def test_ratings_put_random_play_at_0_and_agree_with_the_pairs(
    command: Command, board_run: Path
) -> None:
    players = [f"{board_run}:player/p000@000000060000", f"{board_run}:player/p001", "bot:random"]
    document = command("evaluate", *players, "--matches", 20, "--json")
    ratings = {line["player"]: line for line in document["ratings"]}
    assert set(ratings) == set(players)
    assert ratings["bot:random"]["rating"] == 0.0
    order = [line["rating"] for line in document["ratings"]]
    assert order == sorted(order, reverse=True)
    for line in document["ratings"]:
        assert line["rating_low"] <= line["rating"] <= line["rating_high"]


def test_a_kept_checkpoint_is_a_player_by_name_and_by_directory(
    command: Command, board_run: Path
) -> None:
    (directory,) = board_run.glob("populations/player/p000/checkpoints/000000120000-*")
    names = (
        f"{board_run}:player/p000@120000",
        f"{board_run}:player/p000@000000120000",
        str(directory),
        # The latest checkpoint is the same one.
        f"{board_run}:player/p000",
    )
    documents = [command("evaluate", n, "bot:random", "--matches", 3, "--json") for n in names]
    scores = [[pair["score"] for pair in document["pairs"]] for document in documents]
    assert scores[1:] == scores[:-1]
    assert [document["players"][0] for document in documents] == list(names)
    (ghost,) = board_run.glob("populations/player/p001/ghosts/*")
    command("evaluate", ghost, "bot:random", "--matches", 1, "--json")


def test_a_directory_that_a_run_has_not_recorded_is_no_player(
    command: Command, board_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(board_run, run)
    (source,) = run.glob("populations/player/p000/checkpoints/000000120000-*")
    copy = source.with_name("000000130000-01234567")
    shutil.copytree(source, copy)
    error = command("evaluate", copy, "bot:random", "--matches", 1, code=2)["error"]
    assert f"has recorded no checkpoint or ghost at {copy.relative_to(run)}" in error


@pytest.mark.slow
def test_greedy_players_repeat_one_game(command: Command, board_run: Path) -> None:
    players = (board_run, f"{board_run}:player/p001")
    played, once = (
        command("evaluate", *players, "--matches", matches, "--greedy", "--json")
        for matches in (8, 1)
    )
    for pair in played["pairs"]:
        assert 8 in (pair["wins"], pair["draws"], pair["losses"])
        assert pair["distinct"] == 1
    # Eight equal games have the same information as one.
    for line, other in zip(played["ratings"], once["ratings"], strict=True):
        assert line["rating"] == pytest.approx(other["rating"])
        assert (line["rating_low"], line["rating_high"]) == (None, None)


def test_a_rating_of_one_game_has_no_interval() -> None:
    from arena.matches.tournament import TournamentResult
    from arena.types import Entrant, PairScore, Tally
    from tools.evaluate.tournament import ratings_of

    tally = Tally(
        entrants=(Entrant("A"), Entrant("B")),
        matches=200,
        pairs=(PairScore(first=0, second=1, wins=200, draws=0, losses=0),),
        return_sum=(200.0, -200.0),
        return_sum_of_squares=(200.0, 200.0),
        length_sum=2000,
        distinct=1,
    )
    result = TournamentResult(pairs=(), tallies=(tally,))
    for line in ratings_of(result, players=["A", "B"], repeating=["A", "B"]):
        assert (line["rating_low"], line["rating_high"]) == (None, None)
    # If a player makes draws of its own, an equal game is another sample.
    for line in ratings_of(result, players=["A", "B"], repeating=["A"]):
        assert line["rating_low"] is not None


def test_bots_alone_need_an_environment(command: Command) -> None:
    error = command("evaluate", "bot:random", "bot:lefty:Lefty", code=2)["error"]
    assert "--environment" in error


def test_a_bot_is_found_in_the_directory_that_the_user_names(
    command: Command, board_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "lefty_coded.py").write_text(
        "class Lefty:\n"
        "    def act(self, observation, action_mask, *, agent, rng):\n"
        "        return action_mask.argmax(axis=1)\n"
    )
    bot, place = "bot:lefty_coded:Lefty", ("--code", "code")
    for other in (("bot:random", "--environment", BOARD), (f"{board_run}:player/p000",)):
        play = ("evaluate", bot, *other, "--matches", 1, "--json")
        assert "no module 'lefty_coded'" in command(*play, code=2)["error"]
        assert command(*play, *place)["pairs"]
        # The option applies to one command only.
        del sys.modules["lefty_coded"]
        sys.path.remove(str(tmp_path / "code"))


def test_a_bot_is_looked_for_where_the_command_runs_and_beside_the_code_of_the_run(
    board_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    found = resolve_player(str(board_run)).game
    assert found is not None
    # The run's code is in another directory than the current one.
    game = replace(found, word=Word(launch_directory=str(tmp_path / "code")))
    for name in ("code", "here"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"lefty_{name}.py").write_text(
            "class Lefty:\n"
            "    def act(self, observation, action_mask, *, agent, rng):\n"
            "        return action_mask.argmax(axis=1)\n"
        )
    monkeypatch.chdir(tmp_path / "here")
    for bot in ("bot:lefty_code:Lefty", "bot:lefty_here:Lefty"):
        assert game.make_bots(bot, is_named=True).keys() == {"player"}
    searched = f"no module 'lefty_gone' in {tmp_path / 'code'}, {tmp_path / 'here'}"
    with pytest.raises(ConfigError, match=searched):
        game.make_bots("bot:lefty_gone:Lefty", is_named=True)


PLAYERS = """
import numpy as np


class Column:
    def __init__(self, *, column=0, name="?"):
        self._column = column

    def act(self, observation, action_mask, *, agent, rng):
        preferred = np.roll(np.arange(7), self._column)
        rank = np.argsort(preferred)
        return np.where(action_mask, -np.abs(rank), -99).argmax(axis=1)


class Confused:
    def act(self, observation, action_mask, *, agent, rng):
        return self._choose(observation)

    def _choose(self, observation):
        return observation["bord"].argmax(axis=1)
"""


def test_a_bot_takes_literals_and_has_one_name(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "literal_players.py").write_text(PLAYERS)
    monkeypatch.chdir(tmp_path)
    players = ("bot:literal_players:Column( name='x',column = 3 )", "bot:literal_players:Column()")
    document = command("evaluate", *players, "--environment", BOARD, "--matches", 2, "--json")
    names = ['bot:literal_players:Column(column=3, name="x")', "bot:literal_players:Column"]
    assert document["players"] == names
    assert {line["player"] for line in document["ratings"]} == set(names)
    # Each plays its own column, so the first player has four in a row first.
    assert [(pair["wins"], pair["losses"]) for pair in document["pairs"]] == [(2, 0), (2, 0)]
    twice = ("bot:literal_players:Column(column=1)", "bot:literal_players:Column(column=1,)")
    error = command("evaluate", *twice, "--environment", BOARD, code=2)["error"]
    assert "must be given once, 'bot:literal_players:Column(column=1)' is given twice" in error


def test_a_bug_in_a_bot_is_one_message(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "confused_players.py").write_text(PLAYERS)
    monkeypatch.chdir(tmp_path)
    players = ("bot:random", "bot:confused_players:Confused")
    error = command("evaluate", *players, "--environment", BOARD, "--matches", 2, code=2)["error"]
    said, *lines = error.splitlines()
    assert said == "arena: bot:confused_players:Confused in act raised KeyError: 'bord'"
    assert [line.rpartition(", in ")[2] for line in lines[::2]] == ["act", "_choose"]
    assert lines[-1] == '    return observation["bord"].argmax(axis=1)'
    assert len(lines) == 4


def test_players_of_one_population_keep_to_its_seats(command: Command, tag_run: Path) -> None:
    players = [f"{tag_run}:predator/p000", f"{tag_run}:prey/p000", "bot:random"]
    document = command("evaluate", *players, "--matches", 2, "--json")
    seats = [(pair["seats"]["predators"], pair["seats"]["prey"]) for pair in document["pairs"]]
    predator, prey, random = players
    assert sorted(seats) == sorted([(predator, prey), (predator, random), (random, prey)])


def test_players_of_different_environments_cannot_meet(
    command: Command, board_run: Path, tag_run: Path
) -> None:
    error = command("evaluate", board_run, tag_run, code=2)["error"]
    assert "connect_four" in error
    assert "simple_tag" in error


@pytest.mark.parametrize(
    ("player", "complaint"),
    [
        ("{run}:player/p009", "has no policy 'player/p009'; policies: player/p000, player/p001"),
        ("{run}:player/p002", "has no checkpoint yet"),
        ("{run}:player/p000@000000000007", "ghosts: player/p000@000000060000"),
        (
            "{run}:player/p000@119999",
            "keeps nothing of player/p000 at 119999 agent steps; the nearest of its kept "
            "checkpoints and ghosts: player/p000@000000060000, player/p000@000000120000",
        ),
        ("{run}:player/p009@60000", "has no policy 'player/p009'; policies: player/p000"),
        ("{run}:nonsense", "has no policy 'nonsense'"),
        ("nowhere", "there is no player 'nowhere'"),
        ("nowhere:player/p000", "there is no player"),
        ("bot:nonsense", "bot:package.module:Class"),
        ("{run}", "given twice"),
    ],
)
def test_a_player_that_is_not_there_is_named_with_those_that_are(
    command: Command, board_run: Path, player: str, complaint: str
) -> None:
    name = player.replace("{run}", str(board_run))
    error = command("evaluate", board_run, name, "--matches", 1, code=2)["error"]
    assert complaint in error


def test_one_player_is_no_tournament(command: Command, board_run: Path) -> None:
    assert "two or more" in command("evaluate", board_run, code=2)["error"]


def test_weights_that_were_altered_are_not_played(
    command: Command, board_run: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(board_run, copy)
    (weights,) = copy.glob("populations/player/p001/checkpoints/*/weights.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    error = command("evaluate", f"{copy}:player/p001", "bot:random", code=5)["error"]
    assert "weights.safetensors" in error


def test_people_get_tables(board_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("evaluate", board_run, "bot:random", "--matches", "2") == 0
    output = capsys.readouterr()
    assert "ratings" in output.out
    # Long names are not cut, because programs read tables too.
    assert f"│ {board_run} " in output.out
    assert output.err == ""
    assert "\x1b" not in output.out
    assert "--greedy" not in output.out


@pytest.mark.slow
def test_people_are_told_of_repeated_games(
    board_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    players = (str(board_run), f"{board_run}:player/p001")
    assert exit_code("evaluate", *players, "--greedy", "--matches", "3") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "6 games of players who draw nothing, without chance, were 2 different ones" in said


def test_a_run_knows_its_environment_though_its_champion_is_exported_in_it(
    command: Command, cyclic_run: Path, tmp_path: Path
) -> None:
    """An export says by whose code it plays, and asks for --environment; a run needs none."""
    run = tmp_path / "run"
    shutil.copytree(cyclic_run, run)
    (run / "champion").mkdir()
    (run / "champion" / "card.json").write_text("{}")
    document = command("evaluate", run, "bot:random", "--matches", 2, "--json")
    assert document["environment"] == "classic/rps-v2"
    assert document["players"] == [str(run), "bot:random"]
