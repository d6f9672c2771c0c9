"""`arena play` on a terminal of its own, and what ends it."""

from __future__ import annotations

import re
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from arena.export.champion import Champion
from tests.arena.export.conftest import BOARD
from tests.tools.league.test_watch import TIMEOUT_S, Terminal
from tools.main import main

# The terminal becomes that of its session, so that Ctrl-C is a signal.
CODE = """
import os, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))
from tools.main import main
sys.argv = ["arena", "play", *{arguments!r}]
main()
"""
ASSETS = Path(__file__).parents[2] / "assets"


class Table(Terminal):
    """`arena play` on a terminal."""

    def __init__(self, *arguments: str) -> None:
        super().__init__(Path(), code=CODE.format(arguments=arguments))

    def type(self, line: str) -> None:
        self.press(f"{line}\n".encode())


Sit = Callable[..., Table]


@pytest.fixture
def sit() -> Iterator[Sit]:
    """Play on a terminal, which is closed after the test."""
    with ExitStack() as stack:

        def sit(*arguments: str) -> Table:
            table = Table(*arguments)
            stack.callback(table.close)
            return table

        yield sit


def test_a_game_with_mistakes_hints_and_a_smaller_window(
    sit: Sit, board_run: Path, tmp_path: Path
) -> None:
    table = sit(str(board_run), "--seed", "1")
    assert "you are player_0" in table.wait_for("> ")
    table.type("9")
    assert "'9' is no legal move: 1 2 3 4 5 6 7" in table.wait_for("> ")
    table.type("?")
    told = table.wait_for("> ")
    assert re.search(r"it would play \d \d+%, ", told)
    assert re.search(r"and expects [+-]\d\.\d\d for player_0", told)
    table.type("hint")
    column = re.search(r"hint: (\d)", table.wait_for("> "))
    assert column is not None
    table.type(column[1])
    assert re.search(r"player_1: \d", table.wait_for("> "))
    table.type("undo")
    assert "start" in table.wait_for("> ")
    table.type("undo")
    assert "there is no move of yours to take back" in table.wait_for("> ")
    path = tmp_path / "game.json"
    table.type(f"save {path}")
    # A long path is broken where a line ends.
    assert f"saved;arenareplay{path}showsit" in "".join(table.wait_for("> ").split())
    assert path.is_file()
    termios.tcsetwinsize(table.theirs, (20, 30))
    table.type("help")
    lines = table.wait_for("> ").replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 30
    assert "take your last move back" in " ".join(" ".join(lines).split())
    table.type("quit")
    assert table.process.wait(timeout=TIMEOUT_S) == 0
    assert termios.tcgetattr(table.theirs) == table.before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "code", "says"),
    [(b"\x04", 0, "\n"), (b"\x03", 130, "interrupted by SIGINT")],
    ids=["end of file", "Ctrl-C"],
)
def test_ends_are_clean(sit: Sit, keys: bytes, code: int, says: str) -> None:
    table = sit("bot:random", "--env", "classic/tictactoe-v3")
    table.wait_for("> ")
    table.press(keys)
    ended = table.wait_for(says)
    assert table.process.wait(timeout=TIMEOUT_S) == code
    assert "Traceback" not in ended + table.text
    assert termios.tcgetattr(table.theirs) == table.before


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("--env", "classic/connect_four-v3"),
        ("--env", "classic/tictactoe-v3", "--seat", "2"),
        ("--env", "openspiel:kuhn_poker"),
        ("--env", "openspiel:leduc_poker"),
        ("--env", "classic/rps-v2"),
        ("--env", "openspiel:tic_tac_toe"),
        ("--env", "environments:ScriptedTurns", "--code", str(ASSETS)),
    ],
    ids=lambda arguments: arguments[1],
)
def test_whole_games_to_their_ends(sit: Sit, arguments: tuple[str, ...]) -> None:
    whole_game(sit, "bot:random", *arguments)


@pytest.mark.slow
def test_a_whole_game_of_a_run_that_steps_pettingzoos_own(sit: Sit, original_run: Path) -> None:
    whole_game(sit, f"{original_run}:player/p000")


def whole_game(sit: Sit, *arguments: str) -> None:
    table = sit(*arguments, "--seed", "2")
    told = table.wait_for("> ")
    table.type(last_move(told))
    to_its_end(table)
    table.type("1")
    assert table.wait_for("> ").replace("\r", "").splitlines()[1:] == ["the game is over", "> "]
    table.type("quit")
    assert table.process.wait(timeout=TIMEOUT_S) == 0


def last_move(told: str) -> str:
    """The last legal move: the first is often illegal soon, as in a column that is full."""
    return str(re.findall(r"your move as \S+: ([^\r]*)\r", told)[-1].split()[-1])


def to_its_end(table: Table) -> None:
    """Play on where a move was typed, until the game is over."""
    while "the game is over" not in (told := table.wait_for("> ")):
        table.type(last_move(told))
    assert re.search(r"the game is over: you (won|lost|drew), with -?\d", told)


@pytest.mark.slow
def test_a_level_of_an_export_is_played(
    sit: Sit, command: Callable[..., Any], leveled_run: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "champion"
    command("export", leveled_run, "--levels", 2, "--matches", 0, "--to", directory, "--json")
    table = sit(str(directory), "--level", "1")
    table.wait_for("> ")
    table.type("?")
    chances = dict(re.findall(r"(\d) (\d+)%", table.wait_for("> ")))
    wanted, best = (
        Champion(directory, level=level).probabilities(BOARD)[[int(one) - 1 for one in chances]]
        for level in (1, 2)
    )
    assert [*map(int, chances.values())] == pytest.approx(100 * wanted, abs=0.51)
    # The best one always takes the middle; this is a weaker one.
    assert wanted.max() < best.max() == pytest.approx(1.0)


@pytest.mark.slow
def test_a_fools_mate(sit: Sit) -> None:
    """A bot that plays f3 and g4, and a person who mates."""
    player = "bot:tests.tools.play.fool:Fool"
    table = sit(player, "--env", "classic/chess-v6", "--seat", "player_1")
    assert "player_0: f2f3" in table.wait_for("> ")
    table.type("e7e5")
    assert "player_0: g2g4" in table.wait_for("> ")
    table.type("d8h4")
    assert "the game is over: you won, with 1" in table.wait_for("> ")
    table.type("undo")
    assert "d8h4" in table.wait_for("> ")
    table.type("quit")
    assert table.process.wait(timeout=TIMEOUT_S) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("bot:random",), "bots alone play anything: --env ID says what"),
        (
            ("bot:random", "--env", "classic/tictactoe-v3", "--seat", "9"),
            "--seat is one of player_1, player_2, or its number from 1 to 2, got '9'",
        ),
        (("bot:random", "--env", "classic/tictactoe-v3", "--seat", "white"), "got 'white'"),
        (("nobody",), "there is no player 'nobody'"),
        (("bot:random", "--env", "classic/tictactoe-v3", "--level", "1"), "no option level"),
    ],
)
def test_what_cannot_be_is_one_line(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["play", *arguments])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert says in error
    assert error.count("\n") == 1
