"""A person's game: whole games, what is typed, taking back, and what the player thinks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import arena
from arena.errors import ConfigError
from arena.types import SHOWN_BYTES
from tests.tools.play.conftest import GameOf
from tools.play.game import PersonsGame, Refused
from tools.play.table import sit_down

ENVIRONMENTS = [
    "classic/connect_four-v3",
    "classic/tictactoe-v3",
    "classic/rps-v2",
    "classic/chess-v6",
    "openspiel:kuhn_poker",
    "openspiel:leduc_poker",
]


def play_on(game: PersonsGame, rng: np.random.Generator, *, most: int = 30) -> None:
    for _ in range(most):
        if game.is_over:
            return
        game.play(game.read(str(rng.choice(list(game.moves)))))


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("seat", ["1", "2"])
def test_whole_games_end_and_moves_that_are_taken_back_leave_nothing(
    game_of: GameOf, environment: str, seat: str
) -> None:
    """After undo and the same decisions of everybody the game is the same, step by step."""
    rng = np.random.default_rng(2)
    game = game_of("bot:random", environment=environment, seat=seat)
    for _ in range(2):
        if not game.is_over:
            before = (list(game.shown), list(game.moves), game.picture, game.observation)
            returns = game.returns.clone()
            play_on(game, rng, most=1)
    game.undo()
    assert (game.shown, list(game.moves), game.picture) == before[:3]
    np.testing.assert_equal(game.observation, before[3])
    assert torch.equal(game.returns, returns)
    assert not game.is_over
    play_on(game, rng)
    assert game.problem == ""
    assert game.picture is not None
    assert len(game.actions) == len(game.shown) - 1
    if environment != "classic/chess-v6":
        assert game.is_over
        assert float(game.returns.sum()) == 0.0, "these games are zero-sum"
        mine = float(game.returns[int(seat) - 1])
        word = "won" if mine > 0 else "lost" if mine < 0 else "drew"
        assert f"you {word}" in game.ending


def test_an_environment_of_ones_own_shows_observation_and_actions(
    game_of: GameOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2] / "assets")
    game = game_of("bot:random", environment="environments:ScriptedTurns", seat="b")
    assert game.picture is None
    assert "render modes" in game.problem
    # The row is (a random number, the entry's index, the agent's index).
    assert game.observation[1:].tolist() == [1.0, 1.0]
    assert list(game.moves) == ["0", "1", "2"]
    assert len(game.actions) == 1
    before = game.returns[1].item()
    # The reward includes the agent's own action.
    game.play(game.read("2"))
    assert game.returns[1] == before + 2.0
    kept = list(game.shown)
    # The stored digest of the first step is changed, so the game seems not to follow its seed.
    game.shown[1] = bytes(SHOWN_BYTES)
    with pytest.raises(Refused, match="goes on differently at step 1"):
        game.undo()
    game.shown[1] = kept[1]
    assert game.shown == kept, "the game stayed as it was"


def test_moves_are_names_or_numbers_and_others_are_refused(game_of: GameOf) -> None:
    game = game_of("bot:random", environment="openspiel:kuhn_poker")
    assert list(game.moves) == ["pass", "bet"]
    assert int(game.read("bet")) == int(game.read("1")) == int(game.read(" BET ")) == 1
    for wrong in ("2", "fold", "-1", "", "1 1"):
        with pytest.raises(Refused, match="is no legal move: pass bet"):
            game.read(wrong)
    game = game_of("bot:random", environment="classic/connect_four-v3")
    # A column is named as in the picture, and in no other way.
    assert int(game.read("7")) == 6
    with pytest.raises(Refused, match="'0' is no legal move: 1 2 3 4 5 6 7"):
        game.read("0")


def test_hidden_cards_stay_hidden_until_the_end(game_of: GameOf) -> None:
    for seed in range(6):
        game = game_of("bot:random", environment="openspiel:kuhn_poker", seed=seed)
        assert game.picture is not None
        assert "player_1: paid 1 ?" in game.picture.text
        assert "?" not in game.picture.text.split("player_1")[0]
        play_on(game, np.random.default_rng(seed))
        assert "?" not in game.picture.text


def test_of_hidden_information_one_sees_what_ones_agent_observes(game_of: GameOf) -> None:
    game = game_of("bot:random", environment="openspiel:liars_dice", seat="2")
    assert game.moment is not None
    assert game.picture is not None
    # The picture shows the others' moves as far as they are visible, and no other text does.
    assert game.picture.text == game.moment.env.information_state_string(1)
    assert game.told == []
    assert "Liar" in game.moves


def test_of_several_others_ones_place_is_told(game_of: GameOf) -> None:
    game = game_of("bot:random", environment="openspiel:kuhn_poker(players=3)")
    play_on(game, np.random.default_rng(1))
    better = sum(points > game.points[0] for points in game.points)
    assert f"you came {better + 1} of 3, with {game.returns[0]:g}" in game.ending


def test_the_player_says_what_it_would_do(game_of: GameOf, board_run: Path) -> None:
    player, game = arena.load(str(board_run)), game_of(board_run)
    player.reset()
    observation, mask = game.observation, np.ones(7, np.int8)
    wanted = player.probabilities(observation, mask, agent="player_0")
    thought = game.thought
    for choice in thought["choices"]:
        assert choice["probability"] == pytest.approx(wanted[choice["action"]], abs=1e-5)
    assert thought["likeliest"] == int(wanted.argmax())
    value = player.value(observation, agent="player_0")
    assert thought["value"] == pytest.approx(float(value), abs=1e-5)
    likeliest = game.name_of(thought["likeliest"])
    assert likeliest == str(int(wanted.argmax()) + 1)
    # At a low temperature the player makes its likeliest move.
    cold = game_of(f"{board_run}:temperature=0.0001", seat="player_1")
    assert cold.told == [f"player_0: {likeliest}"]


def test_numbers_are_typed_where_actions_are_numbers(game_of: GameOf, steering_run: Path) -> None:
    game = game_of(steering_run)
    assert game.moves == {}
    assert game.asks_for == "5 numbers, 0..1 0..1 0..1 0..1 0..1"
    for wrong in ("", "1", "0 0 0 0 2", "0 0 0 0 x", "0 0 0 0 nan", "0 0 0 0 0 0"):
        with pytest.raises(Refused, match="an action is 5 numbers"):
            game.read(wrong)
    typed = "0.5 0.25, 0 1 0.125"
    row = game.read(typed)
    (given,) = game.layout.actions(row.numpy()[None])
    np.testing.assert_allclose(given, [0.5, 0.25, 0.0, 1.0, 0.125], atol=1e-5)
    assert len(game.name_of(game.thought["likeliest"]).split()) == 5
    game.play(row)
    game.undo()
    while not game.is_over:
        game.play(game.read(typed))
    # In cooperation no player wins.
    assert game.ending.startswith("the game is over: agent_0 got")


def test_a_person_takes_one_of_several_teammates(game_of: GameOf, tag_run: Path) -> None:
    game = game_of(tag_run, seat="adversary_1", seed=1)
    assert [(seat.name, seat.agents) for seat in game.table.game.seats] == [
        ("predators/adversary_1", ("adversary_1",)),
        ("predators/others", ("adversary_0", "adversary_2")),
        ("prey", ("agent_0",)),
    ]
    assert game.table.players == ("you", str(tag_run), str(tag_run))
    game.play(game.read("1"))
    others = {line.split(":")[0] for line in game.told}
    assert others == {"adversary_0", "adversary_2", "agent_0"}


def test_a_person_plays_what_the_player_cannot(tag_run: Path, board_run: Path) -> None:
    assert sit_down(f"{tag_run}:predator/p000").agent == "agent_0"
    with pytest.raises(ConfigError, match="plays agent_0 alone, and nobody would play adversary_1"):
        sit_down(f"{tag_run}:prey/p000")
    with pytest.raises(ConfigError, match=r"--env classic/tictactoe-v3: .* plays classic/connect"):
        sit_down(str(board_run), environment="classic/tictactoe-v3")


def test_a_recurrent_player_remembers_the_same_after_undo(
    game_of: GameOf, original_run: Path
) -> None:
    rng = np.random.default_rng(4)
    game = game_of(f"{original_run}:player/p000")
    play_on(game, rng, most=3)
    thought = game.thought
    play_on(game, rng, most=1)
    game.undo()
    assert game.thought == thought
    # The recurrent state matters: the same position without a past has another value.
    mind = game.mind
    assert mind is not None
    mind.states.update({name: torch.zeros_like(state) for name, state in mind.states.items()})
    game._think()
    assert game.thought != thought
