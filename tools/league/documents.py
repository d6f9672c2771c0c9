"""Documents of a run's views, for `arena league` and the Python API.

Tests: `tests/integration/test_launch.py`, `tests/tools/api/test_runs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from populations.inspection.views import Inspection


@contextmanager
def inspected(run: Path, population: str | None) -> Iterator[Inspection]:
    """Open a run to read, and close it afterwards.

    Raises:
        ConfigError: If there is no run, or it has no such population.
    """
    from arena.errors import ConfigError
    from populations.inspection.views import Inspection

    # A mistake in the path is no damage: exit 2, not 5.
    if not (run / "run.yaml").is_file():
        raise ConfigError(f"{run} is no run directory: it has no run.yaml")
    with closing(Inspection.open(run)) as inspection:
        known = dict.fromkeys(seat.population for seat in inspection.league.seats)
        if population is not None and population not in known:
            raise ConfigError(
                f"there is no population {population}: the run has {', '.join(known)}"
            )
        yield inspection


def view_document(
    run: Path, view: str, population: str | None = None, **options: object
) -> dict[str, object]:
    """Return the document of a view of `VIEWS`.

    Args:
        run: Run directory.
        view: Name of the view.
        population: Population that it is restricted to. None: all.
        **options: Options of the view's function in `populations.inspection.views`.

    Raises:
        ConfigError: If there is no run, or it has no such population.
        StorageError: If its journal cannot be read.
    """
    return view_documents(run, [view], population, **options)[view]


def view_documents(
    run: Path, names: Sequence[str], population: str | None = None, /, **options: object
) -> dict[str, dict[str, object]]:
    """Return documents of several views at one moment of the run, by view.

    Args:
        run: Run directory.
        names: Names of the views.
        population: Population that they are restricted to. None: all.
        **options: Options of the first view's function.

    Raises:
        ConfigError: If there is no run, or it has no such population.
        StorageError: If its journal cannot be read.
    """
    from populations.gc_pause import collector_paused
    from populations.inspection import views

    # Here: ``import arena`` brings this module, and looks at no view.
    from populations.views.views import VIEWS

    # Opened anew each time, because an inspection is one moment of the run.
    with collector_paused(), inspected(run, population) as inspection:
        return {
            name: dict(
                getattr(views, VIEWS[name].document)(
                    inspection, population, **(options if name == names[0] else {})
                )
            )
            for name in names
        }


class Opened(NamedTuple):
    """Document of a view, and the names that say how players are shown.

    Attributes:
        document: The document.
        populations: Names of the run's populations.
    """

    document: dict[str, object]
    populations: tuple[str, ...]


def opened_view(run: Path, view: str, population: str | None = None, **options: object) -> Opened:
    """Return a view's document as `view_document` does, and the run's populations.

    Raises:
        ConfigError: If there is no run, or it has no such population.
        StorageError: If its journal cannot be read.
    """
    from populations.config.run_file import RUN_FILE, RunFile

    document = view_document(run, view, population, **options)
    # It never changes while a run goes on.
    return Opened(document, tuple(RunFile.load(run / RUN_FILE).config.populations))


def full_name(run: Path, player: str, *, population: str | None) -> str:
    """Return the name in full of a policy or ghost that was named in short or in full.

    Raises:
        ConfigError: If there is no run, or it has no such player.
        StorageError: If its journal cannot be read.
    """
    from populations.league.names import find_player

    with inspected(run, population) as inspection:
        return find_player(player, inspection.tables, population=population).player
