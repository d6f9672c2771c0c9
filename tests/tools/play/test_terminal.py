"""`arena play` on a terminal of its own, and what ends it."""

from __future__ import annotations

import re
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import exit_code
from tests.tools.league.test_watch import TIMEOUT_S, Terminal

# The terminal becomes the controlling terminal of the session, so that Ctrl-C is a signal.
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
    sit: Sit, original_run: Path, tmp_path: Path
) -> None:
    table = sit(f"{original_run}:player/p000", "--seed", "1")
    begun = table.wait_for("> ")
    assert "you are player_0" in begun
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
    # A long path is wrapped at the end of a line.
    assert f"saved;arenareplay{path}showsit" in "".join(table.wait_for("> ").split())
    assert path.is_file()
    termios.tcsetwinsize(table.theirs, (20, 30))
    table.type("help")
    lines = table.wait_for("> ").replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 30
    assert "take your last move back" in " ".join(" ".join(lines).split())
    termios.tcsetwinsize(table.theirs, (40, 80))
    to_its_end(table, begun)
    table.type("undo")
    assert "your move as player_0" in table.wait_for("> ")
    left(table)


@pytest.mark.slow
def test_ends_of_file_and_interrupts_are_clean(sit: Sit) -> None:
    for keys, code, says in ((b"\x04", 0, "\n"), (b"\x03", 130, "interrupted by SIGINT")):
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
        ("--env", "classic/tictactoe-v3", "--seat", "2"),
        ("--env", "openspiel:kuhn_poker"),
        ("--env", "classic/rps-v2"),
        ("--env", "openspiel:tic_tac_toe"),
        ("--env", "environments:ScriptedTurns", "--code", str(ASSETS)),
    ],
    ids=lambda arguments: arguments[1],
)
def test_whole_games_to_their_ends(sit: Sit, arguments: tuple[str, ...]) -> None:
    table = sit("bot:random", *arguments, "--seed", "2")
    to_its_end(table, table.wait_for("> "))
    left(table)


def to_its_end(table: Table, told: str) -> None:
    """Play the last legal move until the game is over: the first is often illegal soon."""
    while "the game is over" not in told:
        table.type(re.findall(r"your move as \S+: ([^\r]*)\r", told)[-1].split()[-1])
        told = table.wait_for("> ")
    assert re.search(r"the game is over: you (won|lost|drew), with -?\d", told)
    table.type("1")
    assert table.wait_for("> ").replace("\r", "").splitlines()[1:] == ["the game is over", "> "]


def left(table: Table) -> None:
    table.type("quit")
    assert table.process.wait(timeout=TIMEOUT_S) == 0
    assert termios.tcgetattr(table.theirs) == table.before


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
    ended = exit_code("play", *arguments)
    error = capsys.readouterr().err
    assert ended == 2
    assert says in error
    assert error.count("\n") == 1
