"""Process that holds a game of a person for a page: environment, networks and users' code run here.

It reads a request a line from standard input, JSON with ``do`` and what that needs, and writes a
line of JSON for each: the state of the game, or ``error`` and the exit code of such an error, with
which the process ends. It ends with its input, too.

Tests: `tests/tools/play/test_tables.py`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arena.errors import ArenaError
from arena.processes.child import end_with_guard
from arena.processes.questions import answering

from ..terminal.exit_codes import exit_code
from .game import PersonsGame, Refused
from .saving import saved
from .table import sit_down

Document = dict[str, Any]


def state_of(game: PersonsGame) -> Document:
    """Return what a page shows of a game."""
    picture, moves = game.picture, game.moves
    text = "" if picture is None or picture.svg or picture.png else picture.text
    if picture is None and not game.is_over:
        text = game.seen
    return {
        "agent": game.table.agent,
        "player": game.table.player.name,
        "environment": game.table.game.spec.id,
        "steps": len(game.actions),
        "advises": game.advises,
        "told": game.told,
        "svg": picture.svg if picture else "",
        "png": picture.png if picture else "",
        "text": text,
        "moves": [{"name": move.name, "cells": move.cells} for _, move in moves.values()],
        "asks": "" if moves or game.is_over else game.asks_for,
        "ending": game.ending if game.is_over else "",
    }


def answer(game: PersonsGame, request: Mapping[str, Any]) -> Document:
    """Do what a page asks for, and return what it is sent.

    Args:
        game: The game.
        request: ``do``, and ``steps``, the state that the person has seen; ``move`` with ``move``.
    """
    words: dict[str, Callable[[], str]] = {"think": lambda: game.advice, "hint": lambda: game.hint}
    do, said, told = request.get("do"), "", ""
    try:
        if do in ("move", "undo") and request.get("steps") != len(game.actions):
            raise Refused("the game went on in another tab: this is where it stands")
        if do == "move":
            game.play(game.read(str(request.get("move", ""))))
        elif do == "undo":
            game.undo()
        elif do == "save":
            return {"file": saved(game).decode()}
        elif do in words:
            told = words[do]()
    except Refused as error:
        said = str(error)
    return {**state_of(game), "refusal": said, "answer": told}


def main() -> None:
    """Play one game, whose table the first argument describes in JSON."""
    end_with_guard()
    table = json.loads(sys.argv[1])
    with answering() as output:

        def send(document: Document) -> None:
            print(json.dumps(document), file=output, flush=True)

        try:
            if table["code"] is not None:
                from arena.resolve import use_code

                use_code(Path(table["code"]))
            seed = table["seed"]
            game = PersonsGame(
                sit_down(
                    table["player"],
                    environment=table["environment"],
                    seat=table["seat"],
                    greedy=table["greedy"],
                    trust=table["trust"],
                ),
                seed=seed,
            )
            for line in sys.stdin:
                send(answer(game, json.loads(line)))
        except ArenaError as error:
            send({"error": str(error), "code": exit_code(error)})
    # An environment may leave threads behind that would keep the interpreter from ending.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
