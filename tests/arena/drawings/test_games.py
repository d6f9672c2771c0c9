from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import chess
import numpy as np
import pytest
from pettingzoo.classic import chess_v6, go_v5

from arena.drawings import games
from arena.drawings.boards import disc, draw_board
from arena.drawings.draw import pictures_of
from arena.drawings.games import DRAWINGS, draw_stones, draw_text, find_drawing, move_of
from arena.drawings.picture import ANY, Game, Moment, Move, Picture, check_svg
from arena.envs.batched.leduc_betting import betting_of
from arena.envs.registry import TWINS
from arena.errors import ConfigError, EnvironmentFault
from tests.arena.drawings.conftest import SVG, PlayRandomly, cells_in, letters

NUM_GAMES = 50


def moment(environment_id: str, *turns: dict[str, int], env: Any = None) -> Moment:
    agents = tuple(dict.fromkeys(agent for turn in turns for agent in turn))
    one = Moment(env=env, environment_id=environment_id, agents=agents, turns=turns)
    did = (move_of(one, *decided) for turn in turns[-1:] for decided in turn.items())
    return one if env else replace(one, did=tuple(filter(None, did)))


def drawn(one: Moment) -> Picture:
    drawing = find_drawing(one.environment_id)
    assert drawing is not None
    return drawing(one)


def in_turn(*actions: int) -> list[dict[str, int]]:
    return [{f"player_{at % 2}": action} for at, action in enumerate(actions)]


def test_discs_fall_on_each_other() -> None:
    picture = drawn(moment("classic/connect_four-v3", *in_turn(3, 3, 0, 6, 3)))
    lines = [".......", ".......", ".......", "...x...", "...o...", "x..x..o"]
    assert cells_in(picture.svg) == letters(lines)
    assert picture.text.splitlines()[0] == "5. player_0: column 4"
    assert picture.text.splitlines()[4] == " . . .[x]. . ."


def test_a_line_that_wins_is_marked() -> None:
    picture = drawn(moment("classic/connect_four-v3", *in_turn(3, 0, 4, 0, 6, 0, 5)))
    assert picture.text.splitlines()[6] == " o . .[x[x[x[x]"
    assert picture.svg.count('stroke="#ffffff"') == 4
    picture = drawn(moment("classic/connect_four-v3", *in_turn(0, 1, 1, 2, 2, 3, 2, 3, 3, 6, 3)))
    assert [line.count("[x") for line in picture.text.splitlines()[3:7]] == [1, 1, 1, 1]
    # Three in a row win tic-tac-toe, but not Connect Four.
    picture = drawn(moment("classic/connect_four-v3", *in_turn(3, 0, 4, 0, 5)))
    assert picture.text.splitlines()[6] == " o . . x x[x]."
    picture = drawn(moment("classic/tictactoe-v3", *in_turn(2, 0, 4, 1, 6)))
    assert picture.text.splitlines()[1:4] == [" o .[x]", " o[x].", "[x]. ."]


def test_the_winner_of_each_round_stands_out() -> None:
    rounds = [{"player_0": 0, "player_1": 1}, {"player_0": 0, "player_1": 2}]
    rounds += [{"player_0": 1, "player_1": 1}]
    picture = drawn(moment("classic/rps-v2", *rounds))
    assert cells_in(picture.svg) == letters(["RRP", "PSP"])
    assert picture.text.splitlines()[1:] == [
        "player_0 R[R]P",
        "player_1[P]S P",
        "player_0: won 1",
        "player_1: won 1",
        "R rock, P paper, S scissors",
    ]


def test_a_raise_of_leduc_is_paid() -> None:
    # The actions are antes of 1, a raise of 2 that is called, two raises of 4, and a fold.
    betting = betting_of((2, 1, 2, 2, 0))
    assert (betting.paid, betting.folded) == ((7, 11), 0)


@pytest.mark.parametrize("game_class", [*TWINS.values()])
def test_batched_games_are_drawn_from_start_to_end(
    game_class: str, play_randomly: PlayRandomly
) -> None:
    for seed in range(NUM_GAMES):
        game, returns = play_randomly(game_class, seed=seed)
        number = 0
        # Pictures are checked one by one, because a batched game is one object that only has the
        # latest state. Every fifth game is compared at each step, the others only at their ends.
        for number, (one, picture) in enumerate(pictures_of(game)):
            if seed % 5 == 0 or number == len(game.turns):
                assert_shows_state(game_class, one, picture)
        assert number == len(game.turns)
        assert one.returns == returns
        # A caller may stop before the last picture.
        next(pictures_of(game))


def assert_shows_state(game_class: str, one: Moment, picture: Picture) -> None:
    """Compare a drawing with what the agent on turn observes."""
    (group,) = one.env.decisions()
    seen = group.observation[0, 0]
    mover = int(group.agent_index[0, 0])
    if "poker" in game_class:
        num_cards, same = (6, 2) if "leduc" in game_class else (3, 1)
        # The picture shows the player on turn, its card and the public card, if there is one.
        own, public = seen[2 : 2 + num_cards], seen[2 + num_cards : 2 + 2 * num_cards]
        shown = [*cells_in(picture.svg).values()]
        assert mover < 0 or shown[mover] == "JQK"[int(own.argmax()) // same]
        if "leduc" in game_class and mover >= 0:
            assert shown[2] == ("JQK"[int(public.argmax()) // same] if public.any() else "?")
    elif "rock" in game_class:
        # Each agent observes the other's last choice; at first there is none.
        last = [int(group.observation[0, agent].argmax()) for agent in (1, 0)]
        shown = [*cells_in(picture.svg).values()]
        assert (
            [shown[len(shown) // 2 - 1], shown[-1]] == ["RPS"[at] for at in last]
            if shown
            else (last == [3, 3])
        )
        assert len(shown) == 2 * min(len(one.turns), 12)
    else:
        # The first axis of tic-tac-toe is the column.
        is_small = "tictactoe" in game_class
        planes = seen.reshape(3, 3, 2).transpose(0, 1) if is_small else seen.reshape(6, 7, 2)
        # The first plane holds the pieces of the agent on turn.
        pieces = "xo" if mover == 0 else "ox"
        assert cells_in(picture.svg) == {
            (row, column): pieces[plane] for row, column, plane in planes.nonzero().tolist()
        }
        assert len(cells_in(picture.svg)) == len(one.turns)


def test_a_batched_game_of_a_users_own(play_randomly: PlayRandomly) -> None:
    # The game has two groups of agents and chance, and one agent leaves after a step.
    for seed in range(20):
        game, returns = play_randomly("batched_games:Hunt", seed=seed)
        moments = list(pictures_of(replace(game, drawing="rendering:draw")))
        assert moments[-1][0].returns == returns
        assert moments[-1][1].text.splitlines()[1] == str(returns)
    with pytest.raises(ConfigError, match=r"must have one of the render modes .* got \[\]"):
        next(pictures_of(game))


def test_a_batched_game_that_is_over_is_not_played_on(play_randomly: PlayRandomly) -> None:
    game, _ = play_randomly(TWINS["classic/rps-v2"])
    longer = replace(game, turns=(*game.turns, game.turns[0]))
    with pytest.raises(EnvironmentFault, match="it is over after 15 of 16 steps"):
        list(pictures_of(longer))


@pytest.mark.parametrize(("original", "game_class"), TWINS.items())
def test_a_twin_is_drawn_as_its_original(
    original: str, game_class: str, play_randomly: PlayRandomly
) -> None:
    if original.startswith("openspiel:"):
        pytest.importorskip("pyspiel")
    for seed in range(20):
        game, returns = play_randomly(original, seed=seed)
        moments = list(pictures_of(game))
        twin, _ = play_randomly(game_class, seed=seed)
        assert [picture for _, picture in moments] == [picture for _, picture in pictures_of(twin)]
        assert moments[-1][0].returns == returns


def test_a_twin_plays_where_openspiel_is_missing(
    play_randomly: PlayRandomly, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspiel")
    game, returns = play_randomly("openspiel:kuhn_poker", seed=3)
    pictures = [picture for _, picture in pictures_of(game)]
    monkeypatch.setitem(__import__("sys").modules, "pyspiel", None)
    again = list(pictures_of(game))
    assert [picture for _, picture in again] == pictures
    assert hasattr(again[-1][0].env, "dealt")
    assert again[-1][0].returns == returns


def test_chess_is_drawn_as_its_fen_says(play_randomly: PlayRandomly) -> None:
    pytest.importorskip("chess")
    game, _ = play_randomly("classic/chess-v6", seed=4, most=60)
    for one, picture in pictures_of(game):
        placement = one.env.unwrapped.board.board_fen()
        rows = [
            re.sub(r"\d", lambda empty: "." * int(empty[0]), row) for row in placement.split("/")
        ]
        assert cells_in(picture.svg) == letters(rows)


def test_the_fools_mate(play_randomly: PlayRandomly) -> None:
    chess = pytest.importorskip("chess")

    class Env:
        board = chess.Board()
        unwrapped: Any = None

    Env.unwrapped = Env
    for move in ("f2f3", "e7e5", "g2g4", "d8h4"):
        Env.board.push_uci(move)
    mated = moment("classic/chess-v6", *in_turn(0, 0, 0, 0), env=Env)
    picture = drawn(replace(mated, did=(Move("d8h4", ((0, 3), (4, 7))),)))
    assert cells_in(picture.svg) == letters(
        [
            "rnb.kbnr",
            "pppp.ppp",
            "........",
            "....p...",
            "......Pq",
            ".....P..",
            "PPPPP..P",
            "RNBQKBNR",
        ]
    )
    lines = picture.text.splitlines()
    assert lines[0] == "4. player_1: d8h4"
    assert (lines[1], lines[5]) == ("8 r n b[.]k b n r", "4 . . . . . . P[q]")


def test_stones_of_go_are_taken(play_randomly: PlayRandomly) -> None:
    game, _ = play_randomly("classic/go-v5", most=0, board_size=3)
    # Black captures the stone in the corner: b1, then white a1, black a2.
    game = Game(
        spec=game.spec,
        seed=1,
        turns=({"black_0": 7}, {"white_0": 6}, {"black_0": 3}, {"white_0": 9}),
        launch_directory=game.launch_directory,
    )
    pictures = [picture for _, picture in pictures_of(game)]
    assert cells_in(pictures[2].svg) == letters(["...", "...", "ox."])
    assert cells_in(pictures[3].svg) == letters(["...", "x..", ".x."])
    assert pictures[3].text.splitlines()[1:5] == ["3 . . .", "2[x]. .", "1 . x .", "  A B C"]
    assert "black_0: took 1" in pictures[3].svg
    assert pictures[4].text.splitlines()[0] == "4. white_0: pass"


def planes_of(one: Moment) -> Any:
    state = one.env
    shape = state.get_game().observation_tensor_shape()
    return np.array(state.observation_tensor(0)).reshape(shape)


def tensor_cells(one: Moment, *, order: dict[int, str], flipped: bool = False) -> dict[Any, str]:
    planes = planes_of(one)
    planes = planes[:, ::-1] if flipped else planes
    return {
        (r, c): piece for at, piece in order.items() for r, c in np.argwhere(planes[at]).tolist()
    }


def expected_of(name: str, one: Moment) -> dict[Any, str]:
    """The board of OpenSpiel's tensors, or of the actions of games where no stone moves."""
    if name == "othello":
        return tensor_cells(one, order={1: "x", 2: "o"})
    if name == "breakthrough":
        return tensor_cells(one, order={0: "b", 1: "w"})
    if name == "connect_four":
        return tensor_cells(one, order={0: "x", 1: "o"}, flipped=True)
    width = 3 if name == "tic_tac_toe" else 11
    return {divmod(action, width): "xo"[agent] for agent, action in one.moves}


@pytest.mark.parametrize("name", ["othello", "breakthrough", "connect_four", "tic_tac_toe", "hex"])
def test_boards_of_openspiel_are_its_tensors(name: str, play_randomly: PlayRandomly) -> None:
    pytest.importorskip("pyspiel")
    for seed in range(5):
        game, returns = play_randomly(f"openspiel:{name}", seed=seed)
        for one, picture in pictures_of(game):
            assert cells_in(picture.svg) == expected_of(name, one)
        assert one.returns == returns


def test_backgammon_has_its_thirty_pieces(play_randomly: PlayRandomly) -> None:
    pytest.importorskip("pyspiel")
    for seed in range(5):
        game, _ = play_randomly("openspiel:backgammon", seed=seed)
        for one, picture in pictures_of(game):
            off = [int(number) for number in re.findall(r": (\d+) off", picture.svg)]
            shown = cells_in(picture.svg)
            # A digit counts all pieces of a point, of which four are drawn beside it.
            numbers = [int(letter) - 4 for letter in shown.values() if letter.isdigit()]
            single = [letter for letter in shown.values() if not letter.isdigit()]
            assert sum(numbers) + len(single) + sum(off[:2]) == 30
            counts = [one.env.board(0, at) + one.env.board(1, at) for at in range(24)]
            on_bar = sum(column == 6 for _, column in shown)
            assert sum(counts) + on_bar + sum(off[:2]) == 30
            columns = {
                (column - (column > 6)) + 12 if row < 5 else 11 - (column - (column > 6))
                for row, column in shown
                if column != 6
            }
            assert columns == {at for at, count in enumerate(counts) if count}


def test_nim_shows_what_is_left(play_randomly: PlayRandomly) -> None:
    pyspiel = pytest.importorskip("pyspiel")
    game = pyspiel.load_game("nim")
    state = game.new_initial_state()
    state.apply_action(
        next(a for a in state.legal_actions() if state.action_to_string(0, a) == "pile:3, take:2;")
    )
    picture = drawn(moment("openspiel:nim", {"player_0": 1}, env=state))
    assert cells_in(picture.svg) == letters(["|", "|||", "|||", "|||||||"])
    assert picture.text.splitlines()[3] == "3 | | | . ."


def test_a_piece_of_breakthrough_marks_both_its_cells() -> None:
    state = pytest.importorskip("pyspiel").load_game("breakthrough").new_initial_state()
    action = state.legal_actions()[0]
    begun = moment("openspiel:breakthrough", {"player_0": action}, env=state)
    move = move_of(begun, "player_0", action)
    assert move is not None
    state.apply_action(action)
    picture = drawn(replace(begun, agents=("player_0", "player_1"), did=(move,)))
    assert picture.text.splitlines()[:4] == [
        "1. player_0: a7a6",
        "8 b b b b b b b b",
        "7[.]b b b b b b b",
        "6[b]. . . . . . .",
    ]


def every_picture(play_randomly: PlayRandomly) -> Iterator[Picture]:
    for name in DRAWINGS:
        versions = {"classic/chess": "-v6", "classic/go": "-v5", "classic/rps": "-v2"}
        version = versions.get(name, "-v3") if name.startswith("classic/") else ""
        game, _ = play_randomly(f"{name}{version}", most=12)
        first = [picture for _, picture in pictures_of(game)]
        assert first == [picture for _, picture in pictures_of(game)]
        yield from first


def test_every_drawing_is_safe_and_narrow_and_becomes_pixels(play_randomly: PlayRandomly) -> None:
    pytest.importorskip("pyspiel")
    pytest.importorskip("chess")
    convert = pytest.importorskip("vl_convert")
    for picture in every_picture(play_randomly):
        check_svg(picture.svg)
        root = ElementTree.fromstring(picture.svg)
        assert float(root.attrib["width"]) <= 390
        assert [one.tag for one in list(root)[:2]] == [f"{SVG}title", f"{SVG}desc"]
        assert picture.text == f"{root[0].text}\n{root[1].text}"
        assert picture.text.isascii()
        assert max(map(len, picture.text.splitlines())) <= 80
    assert convert.svg_to_png(picture.svg).startswith(b"\x89PNG")


def a_board(rows: list[str], **look: Any) -> Picture:
    return draw_board(moment("any"), rows, {"x": disc("#000000")}, **look)


def test_names_are_no_elements_and_no_controls() -> None:
    name = "</text><script>alert(1)</script>\x1b[2J\x00\u202e"
    picture = draw_board(moment("any", {name: 0}), ["."], {}, facts=[name], rows=[name[:9]])
    check_svg(picture.svg)
    assert "script>" not in picture.svg.replace("script&gt;", "")
    assert not {"\x1b", "\x00", "\u202e"} & set(picture.svg + picture.text)
    assert len(picture.text.splitlines()) == 3


def test_hexagons_stand_between_those_above() -> None:
    picture = a_board(["xxx"] * 3, ground="hexagons")
    found = re.findall(r"translate\(([\d.]+) ([\d.]+)\) scale", picture.svg)
    x, y = (np.array(one, dtype=float).reshape(3, 3) for one in zip(*found, strict=True))
    size = x[0, 1] - x[0, 0]
    assert np.allclose(x, x[0, 0] + size * (np.arange(3) + np.arange(3)[:, None] / 2), atol=0.02)
    # All neighbours of a hexagon have the same distance.
    assert np.hypot(x[1, 0] - x[0, 0], y[1, 0] - y[0, 0]) == pytest.approx(size, abs=0.02)


def test_a_large_board_fits() -> None:
    picture = a_board(["x" * 19] * 19, ground="points", last=[(0, 0), (18, 18)])
    assert len(cells_in(picture.svg)) == 361
    places = re.findall(r"translate\(([\d.]+) ([\d.]+)\) scale\(([\d.]+)\)", picture.svg)
    assert all(float(x) >= 0 and float(x) + 100 * float(scale) <= 360 for x, _, scale in places)


@pytest.mark.parametrize(
    ("environment_id", "expected"),
    [
        ("classic/connect_four-v3", "draw_connect_four"),
        ("arena.envs.batched.connect_four:ConnectFour", "draw_connect_four"),
        ("openspiel:hex(board_size=5)", "draw_hex"),
        ("openspiel:goofspiel", "draw_text"),
    ],
)
def test_a_drawing_is_found_by_id(environment_id: str, expected: str) -> None:
    found = find_drawing(environment_id)
    assert getattr(found, "__name__", None) == expected


def test_others_render_themselves() -> None:
    assert find_drawing("butterfly/pistonball-v6") is None
    assert find_drawing("mine:env") is None


def test_every_drawing_is_listed() -> None:
    drawn = {one for name, one in vars(games).items() if name.startswith("draw_")}
    assert set(DRAWINGS.values()) == drawn - {draw_board, draw_stones, draw_text}


def moment_of_openspiel(environment_id: str, env: Any = None, *turns: dict[str, int]) -> Moment:
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
    assert move_of(moment_of_openspiel(environment), "player_0", action) == move


def test_moves_of_chess_are_those_of_the_board_for_both_sides() -> None:
    env = chess_v6.env()
    env.reset(seed=1)
    squares = {name: divmod(at, 8) for at, name in enumerate(chess.SQUARE_NAMES)}
    for agent in ("player_0", "player_1"):
        board: chess.Board = env.unwrapped.board
        mask = env.last()[0]["action_mask"]
        moves = [
            move_of(moment_of_openspiel("classic/chess-v6", env), agent, action)
            for action in mask.nonzero()[0]
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
    here = replace(moment_of_openspiel("classic/go-v5", env), agents=("black_0", "white_0"))
    assert move_of(here, "black_0", 81) == Move("pass")
    # Go coordinates leave out the letter I.
    assert move_of(here, "black_0", 8) == Move("j9", ((0, 8),), "J9")
    assert move_of(here, "black_0", 72) == Move("a1", ((8, 0),), "A1")


def test_moves_of_openspiel_have_its_own_names() -> None:
    pyspiel = pytest.importorskip("pyspiel")

    def found(game: str, action: int) -> Move | None:
        state = pyspiel.load_game(game).new_initial_state()
        return move_of(moment_of_openspiel(f"openspiel:{game}", state), "player_0", action)

    assert found("pig", 0) == Move("roll", (), "roll")
    assert found("nim", 1) == Move("pile:2,_take:1;", (), "pile:2, take:1;")
    assert found("hex(board_size=5)", 7) == Move("c2", ((1, 2),), "c2")
    assert found("othello", 64) == Move("pass", (), "pass")
    assert found("tic_tac_toe", 5) == Move("x(1,2)", ((1, 2),), "x(1,2)")
    assert found("breakthrough", 98) == Move("a7a6", ((1, 0), (2, 0)), "a7a6")


@pytest.mark.parametrize(
    ("game", "seen"),
    [
        # A line of this text is longer than a terminal is wide.
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
    one = moment_of_openspiel(f"openspiel:{game}", state)
    assert draw_text(one).text == f"start\n{state}"
    shown = draw_text(replace(one, viewer="player_1")).text
    if seen == "__str__":
        assert shown == f"start\n{state}"
        return
    assert "".join(shown.split()) == "".join(getattr(state, seen)(1).split())
    assert max(map(len, shown.splitlines())) <= 80
