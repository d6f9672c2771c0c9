"""Documents of a run's views, for `arena league` and the Python API.

Tests: `tests/integration/test_launch.py`, `tests/tools/api/test_runs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arena.errors import ConfigError

if TYPE_CHECKING:
    from populations.views.questions.inspection import Inspection
    from populations.views.view import View


def require_run(run: Path) -> None:
    """Refuse a directory that has no run: a mistake in the path is no damage, exit 2 and not 5.

    Raises:
        ConfigError: If there is no run.
    """
    if not (run / "run.yaml").is_file():
        raise ConfigError(f"{run} is no run directory: it has no run.yaml")


@contextmanager
def inspected(run: Path, population: str | None) -> Iterator[Inspection]:
    """Open a run to read, and close it afterwards.

    Raises:
        ConfigError: If there is no run, or it has no such population.
    """
    from populations.views.questions.inspection import Inspection

    require_run(run)
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
    from arena.rules import nearest
    from populations.views.views import VIEWS

    if name not in VIEWS:
        raise ConfigError(
            f"there is no view {name!r}{nearest(name, VIEWS)}; views are {', '.join(VIEWS)}"
        )
    return VIEWS[name]


def view_document(
    run: Path, view: str, population: str | None = None, **options: object
) -> dict[str, Any]:
    """Return the document of a view, as `opened_views` does."""
    return dict(opened_views(run, [view], population, **options)[0].document)


def opened_views(
    run: Path, names: Sequence[str], population: str | None = None, /, **options: object
) -> list[Opened]:
    """Return documents of views of `VIEWS` at one moment, now, and the run's populations.

    Args:
        run: Run directory.
        names: Names of the views.
        population: Population that they are restricted to. None: all.
        **options: Options of the first view's document.

    Raises:
        ConfigError: If there is no run, or it has no such population.
        StorageError: If its journal cannot be read.
    """
    from populations.gc_pause import collector_paused
    from populations.views.views import document

    # Each call opens a new inspection, because an inspection shows one moment of the run.
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
