"""Chess by UCI: the session of an engine, and positions by the environment's own functions."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support import run_process

pytest.importorskip("chess")
import chess
import chess.engine
from msgspec import structs
from pettingzoo.classic import chess_v6

from arena.codec import plain
from arena.export.card import Card
from arena.export.champion import Champion
from arena.export.uci import Engine, Position
from arena.export.write import Written, write_export
from tests.arena.export.conftest import level, make_policy

pytestmark = pytest.mark.xdist_group("exports")

PROMOTES = "7k/P7/8/8/8/8/8/K7 w - - 0 1"
MATED = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"


@pytest.fixture(scope="module")
def chess_export(tmp_path_factory: pytest.TempPathFactory) -> Written[Card]:
    """An untrained policy of PettingZoo's chess, with a level that plays hotter."""
    env = chess_v6.env()
    observation = env.observation_space("player_0")["observation"]
    card, weights = make_policy(
        observation, actions=env.action_space("player_0"), mask="observation"
    )
    environment = structs.replace(card.environment, id="classic/chess-v6")
    card = structs.replace(
        card, environment=environment, levels=(level(1, card, temperature=50.0),)
    )
    directory = tmp_path_factory.mktemp("chess") / "champion"
    return write_export(directory, card=card, weights=weights)


@pytest.fixture
def program(chess_export: Written[Card]) -> list[str]:
    return [sys.executable, str(chess_export.directory / "champion.py"), "--uci"]


@pytest.fixture
def engine(program: list[str]) -> Iterator[Any]:
    with chess.engine.SimpleEngine.popen_uci(program, timeout=60) as found:
        yield found


def test_whole_games_are_legal_in_every_time_control(
    engine: Any, chess_export: Written[Card]
) -> None:
    assert engine.id["name"] == chess_export.card.player
    limits = [
        chess.engine.Limit(time=0.05),
        chess.engine.Limit(white_clock=1.0, black_clock=1.0, white_inc=0.01, black_inc=0.01),
        chess.engine.Limit(white_clock=5.0, black_clock=5.0, remaining_moves=40),
        chess.engine.Limit(depth=3),
        chess.engine.Limit(nodes=100),
    ]
    rng = random.Random(1)
    for game, limit in enumerate(limits):
        board = chess.Board()
        # The client raises an error if a move is illegal.
        for _ in range(15):
            if board.is_game_over():
                break
            begin = time.monotonic()
            played = engine.play(board, limit, game=game, info=chess.engine.INFO_ALL)
            assert time.monotonic() - begin < 1.0
            assert played.move in board.legal_moves
            assert played.info["pv"] == [played.move]
            assert abs(played.info["score"].relative.score()) <= 1200
            board.push(played.move)
            board.push(rng.choice([*board.legal_moves]))


def test_both_colours_promotions_and_analyses_are_played(engine: Any) -> None:
    promoted = set()
    for fen in (PROMOTES, chess.Board(PROMOTES).mirror().fen()):
        engine.configure({"Sample": True})
        for _ in range(60):
            move = engine.play(chess.Board(fen), chess.engine.Limit(time=0.1)).move
            assert move in chess.Board(fen).legal_moves
            promoted.add((fen, move.promotion))
    # Promotions to the queen and to lesser pieces of both colours occur; None is a king's move.
    assert len(promoted) >= 8
    board = chess.Board(PROMOTES)
    with engine.analysis(board) as analysis:
        assert analysis.get()["pv"][0] in board.legal_moves
        analysis.stop()
        assert analysis.wait().move in board.legal_moves
    engine.quit()


def test_it_thinks_until_it_is_stopped_and_ends_at_quit(program: list[str]) -> None:
    session = (
        "uci\nisready\nucinewgame\nposition startpos moves e2e4\ngo infinite\nisready\nstop\n"
        "stop\nisready\nquit\ngo depth 1\n"
    )
    done = run_process(program, input=session, timeout_s=60, check=True)
    words = [line.split()[0] for line in done.stdout.splitlines()]
    introduced = ["id", "id", "option", "option", "uciok", "readyok"]
    # The first stop returns the move; the second stop and all after quit have no answer.
    assert words == [*introduced, "info", "readyok", "bestmove", "readyok"]


@pytest.fixture
def lines(chess_export: Written[Card]) -> Engine:
    return Engine(
        lambda level: Champion(chess_export.directory, level=level or None, seed=1),
        plain(chess_export.card),
    )


def test_it_plays_what_the_champion_plays(lines: Engine, chess_export: Written[Card]) -> None:
    moves = ["e2e4", "c7c5", "g1f3"]
    assert not [*lines.answers(f"position startpos moves {' '.join(moves)}")]
    info, best = lines.answers("go movetime 10")
    # The random games below compare `Position` with the environment.
    position = Position()
    for move in moves:
        position.push(chess.Move.from_uci(move))
    champion, observation = Champion(chess_export.directory), position.observe()
    action = champion.act(observation, agent=position.agent)
    assert best == f"bestmove {position.move_of(action)}"
    share = min(max((1.0 + champion.value(observation, agent="player_1")) / 2.0, 0.001), 0.999)
    assert f" score cp {round(400.0 * math.log10(share / (1.0 - share)))} " in info


def test_a_level_is_an_option_and_the_command_line_names_the_first(
    lines: Engine, chess_export: Written[Card], board_export: Written[Card]
) -> None:
    # Only exports of chess contain the engine.
    assert "uci.py" in chess_export.card.files
    assert "uci.py" not in board_export.card.files
    answers = [*lines.answers("uci")]
    assert "option name Level type spin default 0 min 0 max 1" in answers
    assert len({[*lines.answers("go depth 1")][-1] for _ in range(8)}) == 1
    for option in ("Level value 1", "Level value 0", "Sample value true", "sample value false"):
        assert not [*lines.answers(f"setoption name {option}")]
        moves = {[*lines.answers("go depth 1")][-1] for _ in range(8)}
        assert (len(moves) > 1) == option.endswith(("1", "true"))
    made: list[int] = []
    engine = Engine(made.append, plain(chess_export.card), level=1)
    assert "option name Level type spin default 1 min 0 max 1" in [*engine.answers("uci")]
    assert not [*engine.answers("setoption name Level value 0")]
    assert made == [1, 0]


class Remembering:
    """Player of black alone, which notes what it is asked."""

    is_recurrent, has_value = True, False

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def clear(self) -> None:
        self.asked.clear()

    def act(self, observation: Any, *, agent: str, sample: bool = False) -> int:
        assert agent == "player_1"
        self.asked.append(observation["observation"])
        return int(np.flatnonzero(observation["action_mask"])[0])


def test_a_player_of_one_colour_remembers_its_own_decisions() -> None:
    player = Remembering()
    engine = Engine(lambda level: player, {"player": ""})
    moves, expected, position = ["e2e4", "c7c5", "g1f3"], [], Position()
    for move in moves:
        position.push(chess.Move.from_uci(move))
        expected.append(position.observe()["observation"])
    # Answers repeat, because the recurrent state belongs to this game alone.
    for _ in range(2):
        assert not [*engine.answers(f"position startpos moves {' '.join(moves)}")]
        assert [*engine.answers("go depth 1")][-1].startswith("bestmove ")
        assert len(player.asked) == 2
        for seen, wanted in zip(player.asked, expected[::2], strict=True):
            assert (seen == wanted).all()


def test_a_wrong_line_is_answered_and_changes_nothing(lines: Engine) -> None:
    before = [*lines.answers("go depth 1")]
    for line, answer in (
        ("setoption name Level value 2", "Level (0 to 1), got level 2"),
        ("setoption name Hash value 16", "got hash 16"),
        ("position startpos moves e2e5", "illegal move e2e5 in rnbq"),
        ("position startpos moves none", "uci"),
        ("position fen 8/8/8/8/8/8/8/8 w - - 0 1", "not a position of chess: 8/8"),
        ("position fen here", "fen"),
    ):
        (said,) = lines.answers(line)
        assert said.startswith("info string ")
        assert answer in said
        assert [*lines.answers("go depth 1")] == before


def test_each_go_has_its_own_move_mate_has_none_and_unknown_lines_no_answer(
    lines: Engine,
) -> None:
    (thinking,) = lines.answers("go infinite")
    before, _, after = [*lines.answers("go depth 1")]
    assert before == after == f"bestmove {thinking.split()[-1]}"
    for line in ("", "xyzzy", "debug on", "stop", "ponderhit", "register later"):
        assert not [*lines.answers(line)]
    assert not [*lines.answers(f"position fen {MATED}")]
    assert not [*lines.answers("go infinite")]
    assert [*lines.answers("stop")] == ["bestmove (none)"]


def _check_moves(position: Position, observation: Any) -> list[int]:
    """Check that each legal move has one action, and return the actions."""
    legal = [int(action) for action in np.flatnonzero(observation["action_mask"])]
    moves = sorted(str(position.move_of(action)) for action in legal)
    assert moves == sorted(map(str, position.board.legal_moves))
    return legal


def test_positions_and_moves_are_the_environments_over_random_games() -> None:
    rng = random.Random(3)
    env = chess_v6.env()
    for _ in range(5):
        env.reset()
        position = Position()
        for _ in range(160):
            agent = env.agent_selection
            if env.terminations[agent]:
                break
            assert position.agent == agent
            seen, expected = position.observe(), env.observe(agent)
            assert (seen["observation"] == expected["observation"]).all()
            assert (seen["action_mask"] == expected["action_mask"]).all()
            action = rng.choice(_check_moves(position, expected))
            position.push(position.move_of(action))
            env.step(action)
            assert position.board.fen() == env.unwrapped.board.fen()


def test_every_promotion_has_its_action() -> None:
    # A pawn of each colour may advance or capture to both sides; a rook's move looks like a queen's
    # promotion.
    white = chess.Board("1n1n3k/2P1R3/8/8/8/8/8/K7 w - - 0 1")
    for board in (white, white.mirror()):
        position = Position(board.fen())
        moves = [position.move_of(a) for a in _check_moves(position, position.observe())]
        assert sum(move.promotion is not None for move in moves) == 12


def test_a_position_that_is_given_shows_its_pieces() -> None:
    planes = Position(chess.STARTING_FEN).observe()["observation"][..., 7:20]
    assert planes[..., :12].sum() == 32
    assert Position().observe()["observation"][..., 7:].sum() == 0
    with pytest.raises(ValueError, match="illegal move e2e5"):
        Position().push(chess.Move.from_uci("e2e5"))
