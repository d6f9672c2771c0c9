"""Answers to what a person asks for, in the terminal or on a page: what there is to see, and words.

Tests: `tests/tools/play/test_tables.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..replay.retelling import Document
from .game import PersonsGame, Refused
from .saving import saved


def state_of(game: PersonsGame) -> Document:
    """Return what is shown of a game, as JSON has it."""
    picture, moves = game.picture, {} if game.is_over else game.moves
    return {
        "agent": game.table.agent,
        "player": game.table.player.name,
        "environment": game.table.game.spec.id,
        "steps": len(game.actions),
        "undoes": game.can_undo,
        "advises": game.mind is not None,
        "told": game.told,
        "svg": picture.svg if picture else "",
        "png": picture.png if picture else "",
        "text": picture.text if picture and picture.text else "" if game.is_over else game.seen,
        "moves": [{"name": move.name, "cells": move.cells} for _, move in moves.values()],
        "asks": "" if moves or game.is_over else game.asks_for,
        "ending": game.ending if game.is_over else "",
    }


def answer(game: PersonsGame, request: Mapping[str, Any]) -> Document:
    """Do what a person asks for, and return what is shown then.

    Args:
        game: The game.
        request: ``do``, and ``steps``, the state that the person has seen; ``move`` with ``move``.
    """
    do, refusal, told = request.get("do"), "", ""
    try:
        if do in ("move", "undo") and request.get("steps") != len(game.actions):
            raise Refused("the game went on in another tab: this is where it stands")
        if do == "move":
            game.play(game.read(str(request.get("move", ""))))
        elif do == "undo":
            game.undo()
        elif do == "save":
            return {"file": saved(game).decode()}
        elif do == "think":
            told = _advice(game)
        elif do == "hint":
            told = game.name_of(game.thought["likeliest"])
    except Refused as error:
        refusal = str(error)
    return {**state_of(game), "refusal": refusal, "answer": told}


def _advice(game: PersonsGame) -> str:
    thought = game.thought
    chances = [
        f"{game.name_of(one['action'])} {one['probability']:.0%}"
        for one in thought.get("choices", ())
    ]
    told, value = ", ".join(chances) or game.name_of(thought["likeliest"]), thought["value"]
    expects = "" if value is None else f", and expects {value:+.2f} for {game.table.agent}"
    return f"it would play {told}{expects}"
