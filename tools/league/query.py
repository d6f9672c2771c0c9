"""Query of the command line about a run, and the documents that answer it.

Tests: `tests/tools/league/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from populations.views.views import VIEWS

from .documents import Opened, inspected, opened_view
from .narrowing import select_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Choice of a run and of its rows.

    Attributes:
        run: Run directory.
        population: Single population. None: all.
        player: Policy that rows must name. None: any.
        since: Time of the first event. None: the run's first.
        given: Arguments of the views' functions: each view takes its own.
        measures: Whether exploitability is measured first.
        trust: Whether code that run.yaml names may be imported for that, wherever it is from.
    """

    run: Path
    population: str | None = None
    player: str | None = None
    since: datetime | None = None
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
            # In each round: players appear while the run goes on, and only new ones are measured.
            self._measure()
        opened = opened_view(self.run, view, self.population, **VIEWS[view].arguments(self.given))
        document = opened.document
        if view == "payoff":
            # As the player: the same results stand there from the other side, too.
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
