"""A game of a person against a player in a terminal: pictures, a prompt, an answer.

Tests: `tests/tools/play/test_terminal.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from populations.errors import StorageError

from ..league.keys import is_in_background
from ..replay.retelling import Document
from ..terminal.output import console
from .answers import answer, state_of
from .game import PersonsGame, Refused
from .saving import save
from .table import Table

if TYPE_CHECKING:
    from ..terminal.screen import Screen

HELP = """\
a move        its name or its number; of several numbers, all of them
?             what the player would do in your place: probabilities and value
hint          its likeliest move
undo          take your last move back
save [FILE]   keep the game; arena replay FILE shows it
quit          end; so does the end of input"""

ASKED = {"?": "think", "hint": "hint", "undo": "undo"}
"""Requests by what is typed for them; all else is a move."""

MOST_TOLD = 10
"""Most decisions of others that are shown since the person's last one."""

MOST_MOVES = 40
"""Most legal moves that are shown; all are where one is refused."""

FOREGROUND_POLL_S = 0.2


def play_in_terminal(table: Table, *, seed: int) -> None:
    """Play a game on standard input and output, until the person quits or the input ends."""
    screen = console()
    with closing(PersonsGame(table, seed=seed)) as game:
        screen.print(
            f"{table.game.spec.id}: you are {table.agent}, {table.player.name} plays the rest; "
            "help says what can be typed"
        )
        screen.print(_shown(state_of(game)))
        for line in _typed(screen):
            if line.lower() == "quit":
                break
            screen.print(_answered(game, line))


def _typed(screen: Screen) -> Iterator[str]:
    """Yield lines with something in them, until the input ends."""
    while True:
        screen.print("> ", end="")
        screen.file.flush()
        # While this process is in the background, typed lines belong to the shell.
        while sys.stdin.isatty() and is_in_background():
            time.sleep(FOREGROUND_POLL_S)
        line = sys.stdin.readline()
        if not line:
            screen.print("")
            return
        if line.strip():
            yield line.strip()


def _answered(game: PersonsGame, line: str) -> str:
    """Do what is typed, and return what is shown then."""
    word, _, rest = line.partition(" ")
    word = word.lower()
    if word == "help":
        return HELP
    if word == "save":
        path = Path(rest.strip() or f"game-{datetime.now(UTC):%Y%m%d-%H%M%S}.json")
        try:
            save(game, path)
        except (Refused, StorageError) as error:
            return str(error)
        return f"saved; arena replay {path} shows it"
    request = {"do": ASKED.get(word, "move"), "move": line, "steps": len(game.actions)}
    state = answer(game, request)
    if state["answer"] and word == "hint":
        return f"hint: {state['answer']}"
    return str(state["refusal"] or state["answer"] or _shown(state))


def _shown(state: Document) -> str:
    """Return the moment and what can be done."""
    names = [move["name"] for move in state["moves"]]
    more = f" and {len(names) - MOST_MOVES} more" if len(names) > MOST_MOVES else ""
    asks = " ".join(names[:MOST_MOVES]) + more or state["asks"]
    ending = state["ending"] and f"{state['ending']}; undo, save or quit"
    told = ", ".join(state["told"][-MOST_TOLD:])
    lines = [told, state["text"], ending or f"your move as {state['agent']}: {asks}"]
    return "\n".join(filter(None, lines))
