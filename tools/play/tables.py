"""Games of persons in processes of their own, as a server holds them: at most so many at a time.

Tests: `tests/tools/play/test_tables.py`.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from arena.drawings.draw import NO_WINDOWS
from arena.drawings.picture import check_svg
from arena.errors import ArenaError, ConfigError
from arena.processes.parent import Child

from ..web.making import own_variables

MOST_GAMES = 8
"""Most games at a time."""

IDLE_S = 600.0
"""Seconds without a request after which a game's process ends."""

ANSWER_S = 120.0
"""Longest wait for an answer of a game, whose process is killed after it."""

MAX_ANSWER_BYTES = 32 << 20

Document = dict[str, Any]


class Full(ArenaError):
    """Refusal of a game where as many are played as may be."""


class Ended(ArenaError):
    """The game has ended, or never was."""


ENDED = (
    f"this game has ended: so does each after {IDLE_S / 60:g} minutes without a move, and one that "
    "does not answer"
)


class _Game(Child):
    """Game in a process of its own. Any thread may ask."""

    def __init__(self, *arguments: str) -> None:
        self._asking = threading.Lock()
        variables = {**NO_WINDOWS, **own_variables()}
        super().__init__(f"{__package__}.child", arguments, talks="output", variables=variables)

    def answer(self, request: Mapping[str, object]) -> Document:
        """Return the answer to a request.

        Raises:
            ConfigError: If the game cannot be begun as the user has said.
            Ended: If its process has ended, answers too late, or with more than a page shows.
        """
        with self._asking:
            try:
                line = self.call(json.dumps(request).encode(), ANSWER_S)
                document: Document = json.loads(line[:MAX_ANSWER_BYTES])
                # The drawing comes from user code, so it is checked before it is sent to a browser.
                if document.get("svg"):
                    check_svg(document["svg"])
            # A ValueError means invalid JSON, or a pipe that another thread has closed.
            except (EOFError, OSError, ValueError) as error:
                raise Ended(ENDED) from error
        if "error" in document:
            kind = ConfigError if document["code"] == 2 else Ended
            raise kind(document["error"])
        return document


class Tables:
    """Games of one server, by their ids in addresses. Any thread may ask.

    Args:
        table: Arguments of `tools.play.table.sit_down`.
        seed: Seed of the first game; others count on.
        code: Directory of the user's modules; None: the default.
    """

    def __init__(
        self,
        table: Mapping[str, object],
        *,
        seed: int,
        code: Path | None = None,
    ) -> None:
        self._table, self._seed, self._code = json.dumps(table), seed, str(code or "")
        self._games: dict[str, _Game] = {}
        self._lock = threading.Lock()
        self._first: str | None = None

    def __enter__(self) -> Self:
        """Begin a game for the first tab, and wait until it can be played.

        Raises:
            ConfigError: If there is no such player, environment or seat.
            Ended: If the environment or the player breaks.
        """
        first = self.new()
        self.ask(first, {"do": "look"})
        self._first = first
        return self

    def new(self) -> str:
        """Begin a game, and return its id.

        Raises:
            Full: If there are too many.
        """
        with self._lock:
            for game in [game for game, one in self._games.items() if one.poll() is not None]:
                self._games.pop(game).close()
            first, self._first = self._first, None
            if first and first in self._games:
                return first
            if len(self._games) >= MOST_GAMES:
                raise Full(
                    f"{MOST_GAMES} games are played, which are as many as may be: each ends after "
                    f"{IDLE_S / 60:g} minutes without a move"
                )
            game = secrets.token_urlsafe(9)
            self._games[game] = _Game(self._table, str(self._seed), self._code, str(IDLE_S))
            self._seed += 1
            return game

    def ask(self, game: str, request: Mapping[str, object]) -> Document:
        """Return a game's answer to a request.

        Raises:
            ConfigError: If the game cannot be begun as the user has said.
            Ended: If there is no such game any more.
        """
        found = self._games.get(game)
        if found is None:
            raise Ended(ENDED)
        try:
            return found.answer(request)
        except ArenaError:
            found.close()
            with self._lock:
                self._games.pop(game, None)
            raise

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            for one in self._games.values():
                one.close()
