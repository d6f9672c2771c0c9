"""A game of a person against a player in a terminal: pictures, a prompt, an answer.

Tests: `tests/tools/play/test_terminal.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from arena.errors import ArenaError

from ..league.keys import is_in_background
from ..terminal.output import console
from .game import PersonsGame, Refused, listed
from .saving import save
from .table import Table

HELP = """\
a move        its name or its number; of several numbers, all of them
?             what the player would do in your place: probabilities and value
hint          its likeliest move
moves         all legal moves
undo          take your last move back
save [FILE]   keep the game; arena replay FILE shows it
new           begin another game
quit          end; so does the end of input"""

MOST_TOLD = 10
"""Most decisions of others that are shown since the person's last one."""

FOREGROUND_POLL_S = 0.2


class Quit(Exception):
    """The person has had enough."""


class Evening:
    """Games at one table, one after the other, on standard input and output."""

    def __init__(self, table: Table, *, seed: int) -> None:
        self._table, self._seed = table, seed
        self._screen = console()
        self._commands: dict[str, Callable[[str], None]] = {
            "?": self._think,
            "hint": self._hint,
            "moves": self._list,
            "undo": self._undo,
            "save": self._save,
            "new": self._new,
            "help": self._help,
            "quit": self._quit,
        }
        self._game = PersonsGame(table, seed=seed)

    def run(self) -> None:
        """Play until the person quits, or the input ends."""
        self._say(
            f"{self._table.game.spec.id}: you are {self._table.agent}, "
            f"{self._table.player.name} plays the rest; help says what can be typed"
        )
        self._show()
        try:
            while (line := self._ask()) is not None:
                if line.strip():
                    self._answer(line.strip())
        except Quit:
            pass
        finally:
            self._game.close()

    def _ask(self) -> str | None:
        """Return what is typed next; None: the input has ended."""
        self._say("> ", end="")
        self._screen.file.flush()
        # What is typed there is the shell's.
        while sys.stdin.isatty() and is_in_background():
            time.sleep(FOREGROUND_POLL_S)
        line = sys.stdin.readline()
        if not line:
            self._say("")
        return line or None

    def _answer(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        command = self._commands.get(word.lower())
        try:
            if command is not None:
                command(rest.strip())
            else:
                self._move(line)
        # Every one a line: the question comes again. What the environment breaks ends the game.
        except (Refused, _Unsaved) as error:
            self._say(str(error))

    def _move(self, text: str) -> None:
        if self._game.is_over:
            raise Refused("the game is over: new begins another one, quit ends")
        self._game.play(self._game.read(text))
        self._show()

    def _show(self) -> None:
        """Show the moment and what can be done."""
        game = self._game
        told = game.told[-MOST_TOLD:]
        if told:
            self._say(", ".join(told))
        if game.picture is not None and game.picture.text:
            self._say(game.picture.text)
        elif not game.is_over:
            self._say(game.seen)
        if game.is_over:
            self._say(f"{game.ending}; new, save, undo or quit")
        else:
            moves = list(game.moves)
            self._say(
                f"your move as {self._table.agent}: {listed(moves) if moves else game.asks_for}"
            )

    def _think(self, _: str) -> None:
        self._say(self._game.advice)

    def _hint(self, _: str) -> None:
        self._say(f"hint: {self._game.hint}")

    def _list(self, _: str) -> None:
        game = self._game
        moves = list(game.moves)
        self._say(" ".join(moves) or ("none" if game.is_over else game.asks_for))

    def _undo(self, _: str) -> None:
        self._game.undo()
        self._show()

    def _save(self, rest: str) -> None:
        path = Path(rest or f"game-{datetime.now(UTC):%Y%m%d-%H%M%S}.json")
        try:
            save(self._game, path)
        except ArenaError as error:
            raise _Unsaved(str(error)) from error
        self._say(f"saved; arena replay {path} shows it")

    def _new(self, _: str) -> None:
        self._seed += 1
        self._game.close()
        self._game = PersonsGame(self._table, seed=self._seed)
        self._show()

    def _help(self, _: str) -> None:
        self._say(HELP)

    def _quit(self, _: str) -> None:
        raise Quit

    def _say(self, text: str, end: str = "\n") -> None:
        self._screen.print(text, end=end)


class _Unsaved(Exception):
    """The game could not be written."""
