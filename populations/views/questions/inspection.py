"""A run directory at one moment, as documents and commands read it, and one fit of its checkpoints.

Inspection never talks to the controller: it reads the journal through a read-only connection, and
`status.json`. It works during a run, after a SIGKILL, and after the end. Ratings of two fits cannot
be compared; those that are shown over training are all of the last one.

Tests: `tests/populations/views/test_ratings.py`, `tests/populations/views/test_inspection.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from msgspec.structs import asdict

from arena.errors import ConfigError
from arena.matches.comparisons import MAX_SEAT_PAIRS, is_by_seats
from arena.types import Entrant
from populations.config.run_file import RUN_FILE, RunFile, learner_setup, require_recorded
from populations.controller.rating_fit import fit_ratings
from populations.controller.rating_input import fit_input, snapshot
from populations.core import SearchSpace
from populations.league.league import League
from populations.league.lineage import REMOVED_KINDS, History
from populations.league.mixture import Mixture, nash_mixtures
from populations.league.ratings import Interval, Ratings, interval_fields
from populations.league.standings import Standing, champion, standings
from populations.ratings.model import Z95
from populations.ratings.results import Rated
from populations.records.aggregates import PairRow
from populations.records.rows import Document as Document
from populations.records.rows import EventRow
from populations.records.tables import Tables
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.views.parts import picked
from populations.views.questions.results import Names, payoff_cells
from populations.views.sentences import event_document

ASSIGNED = ("start_assigned", "train_assigned")
"""Kinds of the events of an assignment that makes checkpoints; their subjects are its id."""


RATING = ("evaluate", "merged")
"""Kinds of the results of pairs that rate checkpoints."""


@dataclass(frozen=True)
class CheckpointFit:
    """Last fit of a run: of all recorded checkpoints that have played evaluation matches.

    Attributes:
        league: Fold of the rows of the moment, results of pairs included.
    """

    league: League

    @property
    def tables(self) -> Tables:
        """Rows of the moment, which may be later than an inspection's."""
        return self.league.tables

    def difference(self, first: Rated, second: Rated) -> Interval | None:
        """Return how much better ``first`` is, with the interval of the difference; None if one of
        them is unrated, or of another population.

        It is the difference of the ratings as they are shown: a champion's is less its optimism.
        """
        ratings = self._ratings.get(first[0])
        gap = None if ratings is None else ratings.difference(first[1], second[1])
        if ratings is None or gap is None or first[0] != second[0]:
            return None
        mean = (ratings.rating(first[1]) or 0.0) - (ratings.rating(second[1]) or 0.0)
        half = Z95 * gap[1]
        return Interval(mean, mean - half, mean + half)

    def intervals(self) -> dict[Rated, Interval]:
        """Return the rating of each entrant; ``bot:random`` is at 0 on each scale."""
        rated = ((name, Ratings(row)) for name, row in self.tables.ratings.items())
        return {
            (population, Entrant(entrant)): interval
            for population, ratings in rated
            for entrant in ratings.best_first
            if (interval := ratings.interval(entrant)) is not None
        }

    @cached_property
    def _ratings(self) -> dict[str, Ratings]:
        """Ratings with what errors have in common, which the journal does not have.

        The fit is repeated for that; matches since then change what is common by little.
        """
        rows = self.tables.ratings
        known = snapshot(self.league, rated=rows)
        again = fit_ratings(fit_input(known))
        return {name: Ratings(row, again[name].spread) for name, row in rows.items()}


def rating_points(fit: CheckpointFit, *, assigned: Iterable[EventRow]) -> dict[str, list[Document]]:
    """Return the rated checkpoints of each policy in the order of their training, by population.

    Args:
        fit: Rows of the run with their ratings.
        assigned: Events of kinds `ASSIGNED`.
    """
    tables, ratings = fit.tables, fit.intervals()
    # The last of equal subjects: an assignment that failed is given out again.
    times = {event.subject: event.time for event in assigned}
    lines: dict[str, dict[str, list[Document]]] = {}
    for policy in tables.policies.values():
        lines.setdefault(policy.population, {})[policy.policy] = []
    for row in sorted(
        tables.checkpoints.values(), key=lambda one: (one.agent_steps, one.generation)
    ):
        population = tables.policies[row.policy].population
        interval = ratings.get((population, Entrant(row.weights_digest)))
        if interval is None:
            continue
        entrant = row.trainee
        generation = tables.generations.get(entrant)
        lines[population][row.policy].append(
            {
                "agent_steps": row.agent_steps,
                "time": times.get(str(row.assignment_id)),
                **interval_fields(interval),
                "generation": row.generation,
                "cause": None if generation is None else generation.cause,
            }
        )
    return {
        population: [{"player": policy, "points": points} for policy, points in own.items()]
        for population, own in lines.items()
    }


@dataclass(frozen=True)
class Inspection:
    """Run directory at one moment."""

    run_dir: Path
    run_file: RunFile
    reader: JournalReader
    tables: Tables
    league: League

    @classmethod
    def open(cls, run_dir: Path) -> Inspection:
        """Read a run directory.

        Raises:
            ConfigError: If there is no run in it.
            StorageError: If its journal cannot be read.
        """
        run_file = RunFile.load(run_dir / RUN_FILE)
        reader = JournalReader(run_dir / JOURNAL)
        # Pairs are by far the most rows, and only two views need them: these read them themselves.
        tables = reader.load(pairs=())
        require_recorded(run_dir, tables.run.configuration)
        return cls(run_dir, run_file, reader, tables, folded(tables, run_file, run_dir))

    def close(self) -> None:
        """Close the journal's reader."""
        self.reader.close()

    @cached_property
    def rated(self) -> CheckpointFit:
        """All rated checkpoints."""
        # Training results, most of the rows of pairs, rate nothing.
        tables = self.reader.load(pairs=RATING)
        return CheckpointFit(folded(tables, self.run_file, self.run_dir))

    def history(self) -> History:
        """Return all generations, those whose rows were removed included."""
        return History.of(self.tables, self.reader.events(kinds=REMOVED_KINDS))

    def space(self, population: str) -> SearchSpace:
        """Return what may be explored in a population."""
        return self.run_file.config.populations[population].search_space

    def populations(self, population: str | None = None) -> list[str]:
        """Return the populations that play, or one of them."""
        names = dict.fromkeys(seat.population for seat in self.league.seats)
        return [name for name in names if population in (None, name)]

    def generations(self, population: str | None = None) -> list[Document]:
        """Return generations in order of beginning; ``parent`` is the policy and generation of the
        weights.
        """
        return [
            {**asdict(row), "hyperparameters": dict(row.hyperparameters)}
            for row in self.history().generations.values()
            if population in (None, row.population)
        ]

    def events(
        self, population: str | None = None, *, kinds: Sequence[str] | None = None
    ) -> list[Document]:
        """Return events as documents, oldest first; those about the whole run are of each
        population.
        """
        return [
            event_document(row)
            for row in self.reader.events(kinds=kinds)
            if population is None or row.subject.split("/")[0] in (population, "")
        ]

    def cyclicity(self, population: str | None = None) -> dict[str, float | None]:
        """Return the share of results that no rating can express; None before a fit."""
        fits = self.tables.ratings
        return {
            name: fits[name].cyclicity if name in fits else None
            for name in self.populations(population)
        }

    def fits(self, population: str | None = None) -> dict[str, Document]:
        """Return the misfit of each rated population: Elo per pair and against ``bot:random``, and
        its significance.
        """
        return {
            name: picked(row, "pair_deviation", "anchor_deviation", "misfit")
            for name, row in self.tables.ratings.items()
            if population in (None, name)
        }

    def cells(self, *, by_seats: bool = False) -> list[Document]:
        """Return the results of the players against each other, from evaluation matches.

        Args:
            by_seats: Whether each pair of seats has a cell, instead of one over all seats.

        Raises:
            ConfigError: If the seats are too many for that.
        """
        seats = self.league.seats
        if by_seats and not is_by_seats(seats):
            raise ConfigError(
                f"a run has results of each pair of seats if there are {MAX_SEAT_PAIRS} at most; "
                f"with {len(seats)} seats it has those of players in all seats together"
            )
        return payoff_cells(self.met, seats=seats, names=self.names(), by_seats=by_seats)

    @cached_property
    def met(self) -> list[PairRow]:
        """Results of the pairs that met in evaluation matches, in order of their first match."""
        return self.reader.pairs(kind="evaluate")

    def is_kept(self, line: Standing) -> bool:
        """Return whether a player's weights are there, as far as the journal knows."""
        if line.key is None:
            return False
        # Ghosts have no such row: they stay.
        checkpoint = self.tables.checkpoints.get(line.key)
        return checkpoint is None or checkpoint.state == "present"

    def mixtures(self, is_present: Callable[[Standing], bool] | None = None) -> dict[str, Mixture]:
        """Find the Nash mixture of each population, of players whose weights are there.

        Args:
            is_present: Whether a player's weights are there. None: by `is_kept`.

        Raises:
            ConfigError: As `populations.league.mixture.nash_mixtures`.
        """
        keeps = is_present or self.is_kept
        present = {name: [*filter(keeps, lines)] for name, lines in self.standings().items()}
        return nash_mixtures(present, self.met, seats=self.league.seats)

    def standings(self, population: str | None = None) -> dict[str, list[Standing]]:
        """Return the standings of all populations, or of one."""
        found = self._standings
        return {name: found[name] for name in found if population in (None, name)}

    @cached_property
    def _standings(self) -> dict[str, list[Standing]]:
        # A document asks several times, and there may be ten thousands of ghosts.
        return standings(self.league)

    def names(self) -> Names:
        """Return the names of the standings' players, by population and entrant."""
        return {
            (name, line.weights or line.player): line.player
            for name, lines in self.standings().items()
            # The order is reversed: of a policy and a ghost with its weights the first line gives
            # the name.
            for line in reversed(lines)
        }

    def champions(self, population: str | None = None) -> dict[str, Standing]:
        """Return the champion of each population that has one, as the last fit decided."""
        found = self.standings(population).items()
        return {name: best for name, lines in found if (best := champion(lines)) is not None}


def folded(tables: Tables, run_file: RunFile, run_dir: Path) -> League:
    """Return the league that a run's rows fold to."""
    setup = learner_setup(run_file, root=run_dir)
    return League(
        tables,
        seats=setup.seats,
        half_life_matches=run_file.config.payoffs.half_life_matches,
        mixes_teammates=bool(setup.agent_seats),
    )
