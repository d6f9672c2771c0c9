"""Documents of a run's views, for `arena league` and the Python API.

Tests: `tests/integration/test_launch.py`, `tests/tools/api/test_runs.py`,
`tests/tools/league/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from populations.views.view import View
from populations.views.views import VIEWS

from .narrowing import select_rows

if TYPE_CHECKING:
    from populations.views.questions.inspection import Inspection


@contextmanager
def inspected(run: Path, population: str | None) -> Iterator[Inspection]:
    """Open a run to read, and close it afterwards.

    Raises:
        ConfigError: If there is no run, or it has no such population.
    """
    from arena.errors import ConfigError
    from populations.views.questions.inspection import Inspection

    # A mistake in the path is no damage: exit 2, not 5.
    if not (run / "run.yaml").is_file():
        raise ConfigError(f"{run} is no run directory: it has no run.yaml")
    with closing(Inspection.open(run)) as inspection:
        known = inspection.populations()
        if population is not None and population not in known:
            raise ConfigError(
                f"there is no population {population}: the run has {', '.join(known)}"
            )
        yield inspection


class Opened(NamedTuple):
    """Document of a view, and the names that say how players are shown.

    Attributes:
        document: The document.
        populations: Names of the run's populations.
    """

    document: Mapping[str, Any]
    populations: tuple[str, ...]


def view_named(name: str) -> View:
    """Return a view by its name.

    Raises:
        ConfigError: If there is none.
    """
    from arena.errors import ConfigError
    from populations.yaml_documents import nearest

    if name not in VIEWS:
        raise ConfigError(
            f"there is no view {name!r}{nearest(name, VIEWS)}; views are {', '.join(VIEWS)}"
        )
    return VIEWS[name]


def view_document(
    run: Path, view: str, population: str | None = None, **options: object
) -> dict[str, Any]:
    """Return the document of a view, as `opened_view` does."""
    return dict(opened_view(run, view, population, **options).document)


def opened_view(run: Path, view: str, population: str | None = None, **options: object) -> Opened:
    """Return the document of a view of `VIEWS` as it is now, and the run's populations.

    Args:
        run: Run directory.
        view: Name of the view.
        population: Population that it is restricted to. None: all.
        **options: Options of the view's document.

    Raises:
        ConfigError: If there is no run, or it has no such population.
        StorageError: If its journal cannot be read.
    """
    return opened_views(run, [view], population, **options)[0]


def opened_views(
    run: Path, names: Sequence[str], population: str | None = None, /, **options: object
) -> list[Opened]:
    """Return documents of several views at one moment; options are those of the first."""
    from populations.gc_pause import collector_paused
    from populations.views.views import document

    # Opened anew each time, because an inspection is one moment of the run.
    with collector_paused(), inspected(run, population) as inspection:
        populations = tuple(inspection.run_file.config.populations)
        return [
            Opened(document(inspection, name, population, **given), populations)
            for name, given in zip(names, (options, *({} for _ in names)), strict=False)
        ]


def full_name(run: Path, player: str, *, population: str | None) -> str:
    """Return the name in full of a policy or ghost that was named in short or in full.

    Raises:
        ConfigError: If there is no run, or it has no such player.
        StorageError: If its journal cannot be read.
    """
    from populations.league.names import find_player

    with inspected(run, population) as inspection:
        return find_player(player, inspection.tables, population=population).player


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
