"""Runs to look at, while they go on, after a crash, or after their end.

Tests: `tests/tools/api/test_runs.py`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from arena.errors import ConfigError

from ..league.documents import inspected, require_run, view_document, view_named


class Records(list[dict[str, Any]]):
    """List of records: dictionaries of plain data with texts as keys, in the order of a view."""

    def to_pandas(self) -> Any:  # noqa: ANN401  (pandas need not be installed)
        """Return the records as a ``pandas.DataFrame``, one row each.

        A key that a record lacks is a missing value in its row. Nested values stay objects.

        Raises:
            ConfigError: If pandas is not installed.
        """
        try:
            # pandas is imported by name, because it is not a dependency of Arena.
            pandas = importlib.import_module("pandas")
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"to_pandas needs the package pandas, which cannot be imported ({error}): "
                "pip install pandas"
            ) from error
        return pandas.DataFrame.from_records(list(self))


def records_of(rows: Iterable[Mapping[str, Any]]) -> Records:
    """Return copies of rows as records."""
    return Records(dict(row) for row in rows)


class Run:
    """A run directory. Each method reads it anew, without disturbing the run.

    The records are the rows of ``arena league RUN VIEW --csv``, with nested values as they are.
    Ratings are on the Elo scale, with ``bot:random`` at 0 and 95% intervals.

    Every method raises ``ConfigError`` if there is no run, or it has no such population, and
    ``populations.errors.StorageError`` if its journal cannot be read.

    Attributes:
        run_dir: Run directory.
    """

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self.run_dir = Path(run_dir)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.run_dir)!r})"

    def status(self) -> dict[str, Any]:
        """Return the state of the run: committed counts, and live figures while it goes on.

        Returns:
            Document of ``arena league RUN status --json``: ``state`` (``running``, ``stopped``,
                ``finished``, ``failed`` or ``crashed``), ``agent_steps``, ``matches``,
                ``champion`` and others.
        """
        return view_document(self.run_dir, "status")

    def standings(self, *, population: str | None = None) -> Records:
        """Return all players with their ratings and results, the best first.

        Args:
            population: Population of the players. None: all.
        """
        return self.records("standings", population=population)

    def payoff(self, *, population: str | None = None, by_seats: bool = False) -> Records:
        """Return the results of the players against each other, from evaluation matches.

        Args:
            population: Population of the players. None: all.
            by_seats: Whether each pair of seats has a record, instead of one over all seats.
        """
        return self.records("payoff", population=population, by_seats=by_seats)

    def events(
        self,
        *,
        kind: str | Sequence[str] | None = None,
        player: str | None = None,
        population: str | None = None,
    ) -> Records:
        """Return every decision with its reason and numbers, the oldest first.

        Args:
            kind: Kind of the events, or several. None: all.
            player: Subject of the events: a policy, ghost or learner. None: any.
            population: Population of the subjects; events about the whole run are included. None:
                all.

        Raises:
            ConfigError: If there is no such kind.
        """
        from ..league.narrowing import checked_kinds

        kinds = checked_kinds([kind] if isinstance(kind, str) else kind)
        found = self.records("events", population=population, kinds=kinds)
        return Records(row for row in found if player in (None, row["subject"]))

    def hyperparameters(self, *, population: str | None = None) -> Records:
        """Return the current hyperparameters of each policy.

        Args:
            population: Population of the policies. None: all.
        """
        return self.records("hyperparameters", population=population)

    def ratings_over_time(self, *, population: str | None = None) -> Records:
        """Return the ratings of all recorded checkpoints that have played evaluation matches.

        All of them are of the last fit, so they can be compared.

        Args:
            population: Population of the policies. None: all.

        Returns:
            One record for each checkpoint: ``population``, ``player`` (the policy),
                ``agent_steps``, ``time`` (beginning of the training that made it, UTC; None:
                unknown), ``rating``, ``rating_low``, ``rating_high``, ``generation``, and
                ``cause``, the event that began the generation.
        """
        return self.records("ratings", population=population)

    def champions(self, *, population: str | None = None) -> Records:
        """Return each player that has led its population, the oldest first.

        Args:
            population: Population that they led. None: all.

        Returns:
            Records with ``population``, ``player``, ``since`` and ``until`` (UTC; None: it leads
                now).
        """
        from populations.views.questions.champions import champions_of

        with inspected(self.run_dir, population) as inspection:
            return records_of(champions_of(inspection, population))

    def learners(self) -> Records:
        """Return each learner: what it does, its speed, shares of its time, restarts, faults."""
        return self.records("learners")

    def why(self, player: str) -> Records:
        """Return the life of a policy or ghost as sentences with their numbers, oldest first.

        Args:
            player: Name such as ``player/p003``, ``p003`` or ``p003@120000``.
        """
        return self.records("why", player=player)

    def diff(
        self, other: str | os.PathLike[str] | Run, *, population: str | None = None
    ) -> Records:
        """Return what this run and another one have in ``first`` and ``second``, side by side.

        Ratings are on each run's own scale, and do not say which run has the better players:
        ``arena.evaluate`` lets them meet.

        Args:
            other: Directory of the second run, or the run.
            population: Population of policies and players. None: all.

        Returns:
            Records with ``section``, ``population``, ``key``, ``first`` and ``second``: all
                figures of the runs, of PBT and of players, and the keys of the configuration and
                the versions of packages that differ.
        """
        directory = other.run_dir if isinstance(other, Run) else other
        return self.records("diff", population=population, other=directory)

    def records(self, view: str, *, population: str | None = None, **options: object) -> Records:
        """Return the rows of any view of ``arena league``, such as ``mixture`` or ``games``.

        Args:
            view: Name of the view.
            population: Population that it is restricted to. None: all.
            **options: Options of the view, such as ``player`` of ``why``.

        Raises:
            ConfigError: If there is no such view, or it has no such option.
        """
        shape = view_named(view)
        if wrong := options.keys() - shape.arguments(options).keys():
            raise ConfigError(f"the view {view} has no option {', '.join(sorted(wrong))}")
        document = view_document(self.run_dir, view, population, **options)
        return records_of(shape.rows(document))


def open(run_dir: str | os.PathLike[str]) -> Run:
    """Open a run to look at it.

    Args:
        run_dir: Run directory.

    Raises:
        ConfigError: If there is no run in it.
    """
    run = Run(run_dir)
    require_run(run.run_dir)
    return run
