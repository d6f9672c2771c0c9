"""A game is told as it was: its decisions are those of the policies, and nothing is made up."""

from __future__ import annotations

import shutil
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
from tools.players.resolve import resolve_player
from tools.players.weights import PolicyWeights
from tools.replay import retelling
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
    # Connect Four by hand: agents take turns, pieces fall into columns that are not full.
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
    # A second way to the same: the board by hand, and the policy as evaluation loads it.
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
        # p000 is the champion: of itself it is not told what it would have done.
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

    # The newest of the champion, p000.
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
    # a: .3 to -.4 after step 2; b: .5 to .2 after step 1.
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
