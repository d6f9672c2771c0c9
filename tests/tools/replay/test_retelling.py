"""A game is told as it was: its decisions are those of the policies, and nothing is made up."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from arena.core import ActorInput
from arena.drawings.draw import Drawn
from arena.drawings.picture import Picture
from arena.errors import ConfigError
from arena.games.recording import GameParted
from arena.networks.distributions import Categorical
from populations.audit.verify import verify_run
from populations.records.rows import GameRow
from populations.storage.journal import Journal
from populations.views.questions.inspection import Inspection
from tests.environments.short_run import ASSETS
from tests.tools.replay.kaggle_games import BY_HAND, FIRST_WINS, by_turns, told
from tools.players.resolve import resolve_player
from tools.players.weights import PolicyWeights
from tools.replay import retelling
from tools.replay.files import write_file
from tools.replay.kaggle import GAMES, episode
from tools.replay.retelling import retold, turned_at


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retelling, "draw_game", lambda *_: Drawn())


def kept(run: Path) -> dict[str, GameRow]:
    with closing(Inspection.open(run)) as inspection:
        return inspection.tables.games


def with_row(kept_run: Path, tmp_path: Path, name: str, **fields: Any) -> Path:
    """A copy of the run of which one game is another one."""
    run = tmp_path / "run"
    shutil.copytree(kept_run, run)
    with closing(Journal.open(run / "journal.db")) as journal:
        journal.commit([replace(kept(run)[name], **fields)])
    return run


def test_a_game_is_told_from_its_first_step_to_its_end(kept_run: Path) -> None:
    row = kept(kept_run)["1.0"]
    told = retold(kept_run, game="1.0").document
    assert [seat["player"] for seat in told["seats"]] == [
        "player/p000@000000120000",
        "player/p001@000000090000",
    ]
    assert tuple(seat["points"] for seat in told["seats"]) == row.points
    steps = told["steps"]
    assert [step["step"] for step in steps] == list(range(row.steps + 1))
    # Connect Four by hand: agents take turns, and pieces fall into columns that are not full.
    columns = [0] * 7
    for step in steps[:-1]:
        (decision,) = step["decisions"]
        assert decision["agent"] == f"player_{step['step'] % 2}"
        columns[decision["action"]] += 1
        assert columns[decision["action"]] <= 6
    assert steps[-1]["decisions"] == []
    paid = [sum(step["rewards"].get(f"player_{seat}", 0.0) for step in steps) for seat in (0, 1)]
    assert paid == [seat["return"] for seat in told["seats"]]


def test_probabilities_are_those_of_the_policy_itself(kept_run: Path) -> None:
    told = retold(kept_run, game="1.0").document
    # The oracle computes the board by hand, and loads the policy as evaluation does.
    player = resolve_player(f"{kept_run}:player/p000")
    assert player.game is not None
    weights = player.policies["player"]
    assert isinstance(weights, PolicyWeights)
    policy = weights.make_policy(player.game)
    board = torch.zeros(6, 7, 2)
    for step in told["steps"][:-1]:
        (decision,) = step["decisions"]
        mover = step["step"] % 2
        if mover == 0:
            seen = board if mover == 0 else board.flip(2)
            mask = board[0].sum(dim=1) == 0
            distribution, value, _ = policy.judge(
                ActorInput(observation=seen.reshape(1, -1), action_mask=mask[None])
            )
            assert isinstance(distribution, Categorical)
            chances = distribution.log_probs[0].exp()
            assert decision["probability"] == pytest.approx(float(chances[decision["action"]]))
            assert value is not None
            assert decision["value"] == pytest.approx(float(value[0]), abs=1e-6)
            best = [one["action"] for one in decision["choices"]]
            assert best == chances.argsort(descending=True, stable=True)[: len(best)].tolist()
            assert decision["likeliest"] == best[0]
        column = decision["action"]
        row = max(place for place in range(6) if board[place, column].sum() == 0)
        board[row, column, mover] = 1.0


def test_the_champion_looks_on_where_others_decide(kept_run: Path) -> None:
    steps = retold(kept_run, game="1.0").document["steps"]
    for step in steps[:-1]:
        (decision,) = step["decisions"]
        # p000 is the champion, so its own decisions have no second opinion.
        assert ("beside" in decision) == (decision["agent"] == "player_1")
    named = retold(kept_run, game="1.0", beside="p001").document["steps"]
    assert [("beside" in step["decisions"][0]) for step in named[:-1]] == [
        step["decisions"][0]["agent"] == "player_0" for step in named[:-1]
    ]
    with pytest.raises(ConfigError, match="no policy 'p007'"):
        retold(kept_run, game="1.0", beside="p007")


def test_a_player_whose_weights_are_gone_is_shown_without_its_thoughts(
    kept_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(kept_run, run)
    row = kept(run)["1.0"]
    before = retold(run, game="1.0").document
    shutil.rmtree(run / row.keys[1])
    after = retold(run, game="1.0").document
    assert after["notes"] == [
        "the weights of player/p001@000000090000 are gone: what it thought is not known"
    ]
    for old, new in zip(before["steps"], after["steps"], strict=True):
        for one, other in zip(old["decisions"], new["decisions"], strict=True):
            assert one["action"] == other["action"]
            assert ("probability" in other) == (one["agent"] == "player_0")


def test_a_game_of_another_rule_is_refused_with_its_name(kept_run: Path, tmp_path: Path) -> None:
    row = kept(kept_run)["1.1"]
    shown = bytearray(row.shown)
    shown[4 * 5] ^= 1
    run = with_row(kept_run, tmp_path, "1.1", shown=bytes(shown))
    with pytest.raises(GameParted) as refused:
        retold(run, game="1.1")
    assert str(refused.value) == (
        "game 1.1 cannot be shown: classic/connect_four-v3 was changed since, or does not follow "
        f"its seed: at step 5 of {row.steps} it shows or pays something else than in the game"
    )


def test_games_are_found_by_players_and_by_how_badly_they_went(kept_run: Path) -> None:
    rows = kept(kept_run)

    def found(**asked: Any) -> str:
        return str(retold(kept_run, **asked).document["game"])

    # The game is the newest of the champion, p000.
    assert found() == "3.2"
    assert found(player="player/p001") == "4.2"
    assert found(player="p001", opponent="player/p000") == "2.2"
    assert found(player="bot:random", opponent="player/p001@000000090000") == "4.2"
    results = {
        name: row.points[place]
        for name, row in rows.items()
        for place, player in enumerate(row.players)
        if player.startswith("player/p000")
    }
    worst = [found(worst=number) for number in range(1, len(results) + 1)]
    assert sorted(worst) == sorted(results)
    assert [results[name] for name in worst] == sorted(results.values())
    with pytest.raises(ConfigError, match="has kept 9 games of its champion, so there is no"):
        found(worst=10)
    with pytest.raises(ConfigError, match=r"no game '9\.9'; its newest is 4\.2"):
        found(game="9.9")
    with pytest.raises(ConfigError, match="no policy 'p009'"):
        found(player="p009")


def test_a_run_without_games_says_so(board_run: Path) -> None:
    with pytest.raises(ConfigError, match="has kept no games yet"):
        retold(board_run)


def test_a_game_turns_where_a_value_falls_most() -> None:
    def step(number: int, agent: str, value: float | None) -> dict[str, Any]:
        return {"step": number, "decisions": [{"agent": agent, "value": value}]}

    steps = [
        *(step(0, "a", 0.1), step(1, "b", 0.5), step(2, "a", 0.3)),
        *(step(3, "b", 0.2), step(4, "a", -0.4), step(5, "b", 0.9)),
    ]
    # The value of a turns from .3 to -.4 after step 2, that of b from .5 to .2 after step 1.
    assert turned_at(steps) == 2
    assert turned_at([step(0, "a", None), step(1, "a", 1.0), step(2, "a", 2.0)]) is None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"seats": (1, 0)}, "game 1.1 has the seats (1, 0), where [(0, 1)] play"),
        ({"points": (1.0,)}, "game 1.1 has 1 points and 2 returns"),
        ({"keys": ("",)}, "game 1.1 names 2 players for 2 seats"),
        ({"shown": b"1234"}, "steps has 4 bytes of digests"),
        ({"holds": True, "keys": ("gone", "")}, "game 1.1 keeps gone, which is not there"),
    ],
)
def test_verify_finds_a_game_that_cannot_be(
    kept_run: Path, tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    before = verify_run(kept_run).faults
    assert not [fault for fault in before if "game" in fault]
    run = with_row(kept_run, tmp_path, "1.1", **fields)
    (fault,) = set(verify_run(run).faults) - set(before)
    assert says in fault


def test_pictures_of_another_game_are_left_out(
    kept_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    returns = {"player_0": 9.0, "player_1": -9.0}
    drawn = Drawn(pictures=(Picture(text="board"),), returns=returns)
    monkeypatch.setattr("tools.replay.retelling.draw_game", lambda game: drawn)
    told = retold(kept_run, game="1.0").document
    assert not any("picture" in step for step in told["steps"])
    (note,) = (note for note in told["notes"] if "pictures" in note)
    assert note.startswith(f"pictures are left out: as it was drawn it paid {returns}")


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


def test_of_chess_black_comes_first() -> None:
    mate = made("chess")
    assert mate["info"]["TeamNames"] == ["player of player_1", "player of player_0"]
    assert mate["rewards"] == [1.0, -1.0]


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
