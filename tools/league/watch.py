"""Views that are drawn anew in place, with keys to change between them.

Tests: `tests/tools/league/test_watch.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import ArenaError
from populations.views.views import VIEWS

from ..terminal.output import console
from .documents import Opened, inspected, opened_views
from .keys import Keys, read_keys
from .narrowing import select_rows
from .tables import Shown, rendered, room, warning_lines

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

    from ..terminal.screen import Screen


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Choice of a run and of its rows.

    Attributes:
        run: Run directory.
        population: Single population. None: all.
        player: Policy that rows must name. None: any.
        since: Time of the first event. None: the run's first.
        operand: Last argument, of the view that needs one. None: there is none.
        given: Arguments of the views' functions: each view takes its own.
        measures: Whether exploitability is measured first.
        trust: Whether code that run.yaml names may be imported for that, wherever it is from.
    """

    run: Path
    population: str | None = None
    player: str | None = None
    since: datetime | None = None
    operand: str | None = None
    given: Mapping[str, object] = field(default_factory=dict)
    measures: bool = False
    trust: bool = False

    def read(self, view: str) -> Opened:
        """Return the document of a view as it is now.

        Raises:
            ConfigError: If the run, the population, or what the view is about is not there.
            StorageError: If the journal cannot be read.
        """
        if self.measures and view == "standings":
            # New players appear while the run goes on; only players without a measurement are
            # measured.
            self._measure()
        own = VIEWS[view].arguments(self.given, self.operand)
        (opened,) = opened_views(self.run, [view], self.population, **own)
        document = opened.document
        if view == "payoff":
            # A result has a row for each of its players, so the rows of this player have all its
            # results.
            cells = document["payoff"]
            chosen = [row for row in cells if self.player in (None, row["player"])]
            return opened._replace(document={**document, "payoff": chosen})
        if view in ("events", "games"):
            chosen = select_rows(document[view], player=self.player, since=self.since)
            return opened._replace(document={**document, view: chosen})
        return opened

    def _measure(self) -> None:
        """Measure how exploitable the players are, once each; the run's directory keeps it."""
        from populations.config.run_file import learner_setup
        from populations.config.trust import word_for_run

        from ..players.exploitability import measure_run
        from ..players.game import Game

        with inspected(self.run, self.population) as inspection:
            word = word_for_run(inspection.run_file, inspection.run_dir, trust=self.trust)
            setup = learner_setup(inspection.run_file, root=inspection.run_dir)
            game = Game.of_setup(setup, word=word)
            measure_run(inspection, game, population=self.population)


REFRESH_S = 2.0
HEAD = 5
"""Lines of a screen of 80 columns for the run, names of views, and keys."""

KEYS = "arrows or 1-9: view   + -: rows   w: wide   q: quit"


def watch_views(query: Query, shown: Shown) -> None:
    """Show a view until ``q`` is pressed or a signal ends the command.

    Args:
        query: Run, and choice of its rows.
        shown: View to begin with.

    Raises:
        ArenaError: If the first view cannot be read.
    """
    from rich.live import Live

    # The query is checked before the alternate screen, so that the error stays visible.
    query.read(shown.name)
    screen = console()
    # The context managers restore the terminal, also after a SystemExit from a signal.
    with (
        read_keys() as keys,
        Live(
            console=screen,
            screen=True,
            auto_refresh=False,
            vertical_overflow="crop",
        ) as live,
    ):
        _Watch(query, replace(shown, overhead=shown.overhead + HEAD), screen, live, keys).run()


class _Watch:
    """One session at the screen."""

    def __init__(self, query: Query, shown: Shown, screen: Screen, live: Live, keys: Keys) -> None:
        self._query = query
        self._shown = shown
        self._screen = screen
        self._live = live
        self._keys = keys
        # A view about a player or a second run needs its name, so only the current one is listed.
        self._views = [
            name for name, view in VIEWS.items() if not view.operand or name == shown.name
        ]

    def run(self) -> None:
        """Draw and read keys until the end."""
        while True:
            self._draw()
            next_s = time.monotonic() + REFRESH_S
            size = self._screen.size
            while (left_s := next_s - time.monotonic()) > 0.0:
                # Waits are short, so that a resized window is redrawn soon.
                key = self._keys.wait(min(left_s, 0.25))
                if key in ("q", "escape"):
                    return
                if key and self._turn(key):
                    break
                if self._screen.size != size:
                    break

    def _turn(self, key: str) -> bool:
        """Do what a key asks for, and return whether anything changes."""
        place = self._views.index(self._shown.name)
        views = len(self._views)
        names = {
            "right": self._views[(place + 1) % views],
            "left": self._views[(place - 1) % views],
            **{str(number): name for number, name in enumerate(self._views[:9], 1)},
        }
        if key in names:
            self._shown = replace(self._shown, name=names[key])
        elif key in ("+", "-", "up", "down"):
            rows = self._shown.limit or room(self._shown, self._screen)
            more = 5 if key in ("+", "down") else -5
            self._shown = replace(self._shown, limit=max(rows + more, 5))
        elif key == "w":
            self._shown = replace(self._shown, is_wide=not self._shown.is_wide)
        else:
            return False
        return True

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [self._head()]
        try:
            opened = self._query.read(self._shown.name)
        except ArenaError as error:
            # The view may not exist for this run (cross-play), or the run may have been removed.
            parts.append(Text(str(error)))
        else:
            parts += rendered(self._shown, opened, self._screen)
            parts += map(Text, warning_lines(self._query.run, self._shown.name, opened.document))
        self._live.update(Group(*parts), refresh=True)

    def _head(self) -> RenderableType:
        """Return the names of the views, the shown one in brackets, and the keys."""
        from rich.text import Text

        names = [
            # The current view is marked by brackets too, not only by colour.
            f"[{number}\xa0{name}]" if name == self._shown.name else f"{number}\xa0{name}"
            for number, name in enumerate(self._views, 1)
        ]
        where = os.fspath(self._query.run)
        return Text(f"{where}\n{'  '.join(names)}\n{KEYS}")
