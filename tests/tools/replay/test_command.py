"""`arena replay` in a pipe, in a terminal with keys, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import exit_code
from tests.tools.league.test_watch import TIMEOUT_S, Terminal

Command = Callable[..., dict[str, Any]]
CODE = """
import sys
from tools.main import main
main(["replay", sys.argv[1], "--id", "1.0"])
"""


def text_of(run: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    ended = exit_code("replay", run, *arguments)
    output = capsys.readouterr()
    assert ended == 0, output.err
    return output.out


@pytest.mark.slow
def test_all_steps_are_printed_where_there_are_no_keys(
    kept_run: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    told = command("replay", kept_run, "--id", "1.0", "--json")
    assert told["run"] == str(kept_run)
    assert told["game"] == "1.0"
    num_steps = len(told["steps"]) - 1
    text = text_of(kept_run, capsys, "--id", "1.0")
    assert f"game 1.0 of classic/connect_four-v3, {num_steps} steps" in text
    assert re.findall(r"^step (\d+)$", text, flags=re.MULTILINE) == [
        str(number) for number in range(num_steps + 1)
    ]
    # The last picture has a piece for each step.
    last = text.rpartition(f"step {num_steps}\n")[2]
    rows = [line for line in last.splitlines() if line and set(line) <= set(" .xo[]")]
    assert len(rows) == 6
    assert sum(row.count("x") + row.count("o") for row in rows) == num_steps


@pytest.mark.slow
def test_keys_go_through_a_game_and_the_terminal_comes_back(kept_run: Path) -> None:
    terminal = Terminal(kept_run, code=CODE)
    try:
        terminal.wait_for("step 0 of ")
        for keys, step in (
            *((b"\n", 1), (b"\x1b[C", 2), (b"b", 1), (b"\x1b[D", 0), (b"b", 0)),
            # Pasted: each counts, a key that has no meaning among them.
            (b"\n\x1b[C\x1bx\n", 3),
        ):
            terminal.press(keys)
            terminal.wait_for(f"step {step} of ")
        terminal.press(b"q\n")
        assert terminal.process.wait(timeout=TIMEOUT_S) == 0
    finally:
        terminal.close()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--id", "1.0", "--worst", "1"), "--id and --worst exclude each other"),
        (("--id", "7.7"), "has kept no game '7.7'; its newest is 4.2"),
        (("--player", "p009"), "has no policy 'p009'"),
        (("--worst", "0"), "--worst"),
        (
            ("--to", "game.avi"),
            "--to takes a name that ends in .html, .gif, .mp4, .txt, .json, got 'game.avi'",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    kept_run: Path, command: Command, arguments: tuple[str, ...], says: str
) -> None:
    assert says in command("replay", kept_run, *arguments, code=2)["error"]


def test_a_directory_without_a_run_is_refused(tmp_path: Path, command: Command) -> None:
    assert "is no run directory" in command("replay", tmp_path, code=2)["error"]
