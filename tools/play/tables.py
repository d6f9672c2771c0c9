"""Games of persons in processes of their own, as a server holds them: at most so many at a time.

Tests: `tests/tools/play/test_tables.py`.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from arena.drawings.draw import NO_WINDOWS
from arena.drawings.svg import check_svg
from arena.errors import ArenaError, ConfigError
from arena.processes.parent import spawn

from ..web.making import own_variables

MOST_GAMES = 8
"""Most games at a time."""

IDLE_S = 600.0
"""Seconds without a request after which a game ends."""

LOOK_S = 5.0
"""Seconds between two looks for games that are idle."""

ANSWER_S = 120.0
"""Longest wait for an answer of a game, whose process is killed after it."""

MAX_ANSWER_BYTES = 32 << 20

Document = dict[str, Any]


class Full(ArenaError):
    """As many games are played as may be."""


class Ended(ArenaError):
    """The game has ended, or never was."""


class _Game:
    """Game in a process of its own. Any thread may ask."""

    def __init__(self, *arguments: str, now_s: float) -> None:
        self.used_s = now_s
        self._lock = threading.Lock()
        self._process = spawn(
            [sys.executable, "-P", "-m", f"{__package__}.child", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            variables={**NO_WINDOWS, **own_variables()},
        )

    def ask(self, request: Mapping[str, object]) -> Document:
        """Return the answer to a request.

        Raises:
            ConfigError: If the game cannot be begun as the user has said.
            Ended: If its process has ended, answers too late, or with more than a page shows.
        """
        stdin, stdout = self._process.pipes
        late = threading.Timer(ANSWER_S, self._process.kill)
        with self._lock:
            late.start()
            try:
                stdin.write(f"{json.dumps(request)}\n".encode())
                stdin.flush()
                document: Document = json.loads(stdout.readline(MAX_ANSWER_BYTES))
                # Users' code runs there.
                if document.get("svg"):
                    check_svg(document["svg"])
            # ValueError: a line that is none, or a pipe that another thread has closed.
            except (OSError, ValueError) as error:
                raise Ended("the game's process has ended, or does not answer") from error
            finally:
                late.cancel()
        if "error" in document:
            kind = ConfigError if document["code"] == 2 else Ended
            raise kind(document["error"])
        return document

    def end(self) -> None:
        """End its process."""
        with self._process:
            pass


class Tables:
    """Games of one server, by their ids in addresses. Any thread may ask.

    Args:
        table: Arguments of `tools.play.table.sit_down`.
        seed: Seed of the first game; others count on.
        code: Directory of the user's modules; None: the default.
        clock: Seconds, for what is idle.
    """

    def __init__(
        self,
        table: Mapping[str, object],
        *,
        seed: int,
        code: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table, self._code = json.dumps(table), str(code or "")
        self._seed, self._clock = seed, clock
        self._games: dict[str, _Game] = {}
        self._lock = threading.Lock()
        self._first: str | None = None
        self._is_closed = threading.Event()

    def begin_first(self) -> None:
        """Begin a game for the first tab, and wait until it can be played.

        Raises:
            ConfigError: If there is no such player, environment or seat.
            Ended: If the environment or the player breaks.
        """
        first = self.new()
        self.ask(first, {"do": "look"})
        self._first = first

    def new(self) -> str:
        """Begin a game, and return its id.

        Raises:
            Full: If there are too many.
        """
        with self._lock:
            first, self._first = self._first, None
            if first in self._games:
                return first
            if len(self._games) >= MOST_GAMES:
                raise Full(
                    f"{MOST_GAMES} games are played, which are as many as may be: each ends after "
                    f"{IDLE_S / 60:g} minutes without a move"
                )
            game = secrets.token_urlsafe(9)
            now_s = self._clock()
            self._games[game] = _Game(self._table, str(self._seed), self._code, now_s=now_s)
            self._seed += 1
            return game

    def ask(self, game: str, request: Mapping[str, object]) -> Document:
        """Return a game's answer to a request.

        Raises:
            ConfigError: If the game cannot be begun as the user has said.
            Ended: If there is no such game any more.
        """
        with self._lock:
            found = self._games.get(game)
            if found is None:
                minutes = f"{IDLE_S / 60:g} minutes"
                raise Ended(f"this game has ended: so does each after {minutes} without a move")
            found.used_s = self._clock()
        try:
            return found.ask(request)
        except ArenaError:
            with self._lock:
                self._games.pop(game, None)
            found.end()
            raise

    def end_idle(self) -> None:
        """End games that nobody has asked for in `IDLE_S`."""
        with self._lock:
            limit_s = self._clock() - IDLE_S
            idle = [game for game, one in self._games.items() if one.used_s < limit_s]
            ended = [self._games.pop(game) for game in idle if game != self._first]
        for one in ended:
            one.end()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def _watch(self) -> None:
        while not self._is_closed.wait(LOOK_S):
            self.end_idle()

    def __exit__(self, *exception: object) -> None:
        self._is_closed.set()
        with self._lock:
            games, self._games = self._games, {}
        for one in games.values():
            one.end()
