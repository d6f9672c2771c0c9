"""Names of moves and their cells, compared with what drawings and environments say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import chess
import pytest
from pettingzoo.classic import chess_v6, go_v5

from arena.drawings.games import draw_text, move_of
from arena.drawings.picture import ANY, Moment, Move


def moment(environment_id: str, env: Any = None, *turns: dict[str, int]) -> Moment:
    return Moment(
        env=env, environment_id=environment_id, agents=("player_0", "player_1"), turns=turns
    )


@pytest.mark.parametrize(
    ("environment", "action", "move"),
    [
        ("classic/connect_four-v3", 0, Move("1", ((ANY, 0),), "column 1")),
        ("arena.envs.batched.connect_four:ConnectFour", 6, Move("7", ((ANY, 6),), "column 7")),
        # 0 3 6
        # 1 4 7
        # 2 5 8
        ("classic/tictactoe-v3", 5, Move("3,2", ((2, 1),))),
        ("classic/rps-v2", 1, Move("paper")),
        ("classic/rps-v2", 7, Move("7")),
        ("openspiel:kuhn_poker", 1, Move("bet")),
        ("openspiel:leduc_poker(players=3)", 2, Move("raise")),
        ("classic/mystery-v0", 1, None),
    ],
)
def test_moves_have_the_names_of_their_drawings(
    environment: str, action: int, move: Move | None
) -> None:
    assert move_of(moment(environment), "player_0", action) == move


def test_moves_of_chess_are_those_of_the_board_for_both_sides() -> None:
    env = chess_v6.env()
    env.reset(seed=1)
    squares = {name: divmod(at, 8) for at, name in enumerate(chess.SQUARE_NAMES)}
    for agent in ("player_0", "player_1"):
        board: chess.Board = env.unwrapped.board
        mask = env.last()[0]["action_mask"]
        moves = [
            move_of(moment("classic/chess-v6", env), agent, action) for action in mask.nonzero()[0]
        ]
        assert {move.name for move in moves if move} == {one.uci() for one in board.legal_moves}
        for move in moves:
            assert move is not None
            # Square 0 is a1, at the lower left.
            ranks = [squares[move.name[at : at + 2]] for at in (0, 2)]
            assert move.cells == tuple((7 - rank, file) for rank, file in ranks)
        env.step(int(mask.nonzero()[0][0]))


def test_crossings_of_go_and_its_pass() -> None:
    env = go_v5.env(board_size=9)
    env.reset(seed=1)
    here = replace(moment("classic/go-v5", env), agents=("black_0", "white_0"))
    assert move_of(here, "black_0", 81) == Move("pass")
    # The letter I is left out.
    assert move_of(here, "black_0", 8) == Move("j9", ((0, 8),), "J9")
    assert move_of(here, "black_0", 72) == Move("a1", ((8, 0),), "A1")


def test_moves_of_openspiel_have_its_own_names() -> None:
    pyspiel = pytest.importorskip("pyspiel")

    def found(game: str, action: int) -> Move | None:
        state = pyspiel.load_game(game).new_initial_state()
        return move_of(moment(f"openspiel:{game}", state), "player_0", action)

    assert found("pig", 0) == Move("roll", (), "roll")
    assert found("nim", 1) == Move("pile:2,_take:1;", (), "pile:2, take:1;")
    assert found("hex(board_size=5)", 7) == Move("c2", ((1, 2),), "c2")
    assert found("othello", 64) == Move("pass", (), "pass")
    assert found("tic_tac_toe", 5) == Move("x(1,2)", ((1, 2),), "x(1,2)")
    assert found("breakthrough", 98) == Move("a7a6", ((1, 0), (2, 0)), "a7a6")


@pytest.mark.parametrize(
    ("game", "seen"),
    [
        # A line of it is longer than a terminal is wide.
        ("universal_poker", "observation_string"),
        ("liars_dice", "information_state_string"),
        ("pig", "__str__"),
    ],
)
def test_a_state_with_hidden_information_shows_what_the_viewer_observes(
    game: str, seen: str
) -> None:
    state = pytest.importorskip("pyspiel").load_game(game).new_initial_state()
    while state.is_chance_node():
        state.apply_action(state.legal_actions()[0])
    one = moment(f"openspiel:{game}", state)
    assert draw_text(one).text == f"start\n{state}"
    shown = draw_text(replace(one, viewer="player_1")).text
    if seen == "__str__":
        assert shown == f"start\n{state}"
        return
    assert "".join(shown.split()) == "".join(getattr(state, seen)(1).split())
    assert max(map(len, shown.splitlines())) <= 80
