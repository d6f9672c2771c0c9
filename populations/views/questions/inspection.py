"""A run directory at one moment, as documents and commands read it.

Inspection never talks to the controller: it reads the journal through a read-only connection, and
`status.json`. It works during a run, after a SIGKILL, and after the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from populations.config.run_file import RUN_FILE, RunFile, learner_setup, require_recorded
from populations.core import SearchSpace
from populations.league.league import League
from populations.league.lineage import History
from populations.league.removed_rows import KINDS
from populations.league.standings import Standing, champion, standings
from populations.records.rows import Document as Document
from populations.records.tables import Tables
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.views.questions.cells import Names
from populations.views.questions.ratings import RATING, CheckpointFit


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
    def rated(self) -> tuple[Tables, CheckpointFit]:
        """All rated checkpoints, and the rows of the moment, which may be later than the
        inspection's.
        """
        # Training results, most of the rows of pairs, rate nothing.
        tables = self.reader.load(pairs=RATING)
        return tables, CheckpointFit(folded(tables, self.run_file, self.run_dir), tables)

    def history(self) -> History:
        """Return all generations, those whose rows were removed included."""
        return History.of(self.tables, self.reader.events(kinds=KINDS))

    def space(self, population: str) -> SearchSpace:
        """Return what may be explored in a population."""
        return self.run_file.config.populations[population].search_space

    def standings(self, population: str | None = None) -> dict[str, list[Standing]]:
        """Return the standings of all populations, or of one."""
        found = standings(self.tables, self.league)
        return {name: found[name] for name in found if population in (None, name)}

    def names(self) -> Names:
        """Return the names of the standings' players, by population and entrant."""
        return {
            (name, line.weights or line.player): line.player
            for name, lines in self.standings().items()
            # Reversed: of a policy and a ghost with its weights the first line gives the name.
            for line in reversed(lines)
        }

    def champions(self, population: str | None = None) -> dict[str, Standing]:
        """Return the champion of each population that has one, as the last fit decided."""
        found = self.standings(population).items()
        return {name: best for name, lines in found if (best := champion(lines)) is not None}


def folded(tables: Tables, run_file: RunFile, run_dir: Path) -> League:
    """Return the league that a run's rows fold to."""
    setup = learner_setup(run_file, root=run_dir)
    return League.fold(
        tables,
        seats=setup.seats,
        half_life_matches=run_file.config.payoffs.half_life_matches,
        mixes_teammates=bool(setup.agent_seats),
    )
