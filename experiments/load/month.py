r"""Growth of a run with its duration: a real controller and journal, simulated learners and time.

    python -m experiments.load.month --hours 24
    python -m experiments.load.month --hours 3 --learners 16 --every-h 0.5
    python -m experiments.load.month --hours 24 --override ghosts.keep=null \
        journal.keep_detail_hours=null

The league of the preset ``connect_four`` at the demo's speed: 4 policies, each learner a training
assignment every three seconds. The controller decides, each transaction is committed to a journal
on disk, the journal's upkeep archives and backs up by the simulated time, and ratings are fitted in
as much simulated time as a fit takes here, times ``--fit-factor``. Only directories of weights are
missing. What was planted about weights that are gone is dropped, so memory is the controller's.

A line of JSON for every ``--every-h`` hours: rows by table, MiB of journal and archive, bytes
written since the start by the journal and by backups (of write calls, by the kernel's count),
memory, milliseconds of the controller's thread for decisions, commits, snapshots and fits (medians;
of decisions also the 95th percentile), processor share of backups, ratings beside planted skills,
and seconds and memory of a resume in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil

from arena.types import Digest
from populations.config.run_config import load_config
from populations.config.run_file import RunFile, learner_setup
from populations.controller.assignments.scheduler import _decide as scheduler_decide
from populations.controller.rating_fit import fit_input, fit_ratings, snapshot
from populations.controller.server.journal_upkeep import JournalUpkeep
from populations.controller.state.commands import Command, FitRatings
from populations.controller.state.events import RatingsFitted
from populations.controller.state.state import make_state
from populations.league.standings import standings
from populations.records.rows import AssignmentRow, Row
from populations.records.tables import TABLES
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.planted import PlantedModel
from populations.simulation.world import World, make_learner, make_tables, start
from populations.storage.archive import ARCHIVE
from populations.storage.database import BACKUP, JOURNAL
from populations.storage.journal import Journal, JournalReader

HOUR_S = 3600.0
MIB = 2**20
NEWEST = 1000
DEMO = (
    "ghosts.every_agent_steps=500000",
    "stop.agent_steps_per_policy=1000000000000",
)


def written_bytes() -> int:
    """Return the bytes of all write calls of this process so far."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


@dataclass(slots=True)
class LongWorld(World):
    """A world whose rows are committed to a journal, and whose fits take simulated time.

    Attributes:
        fit_factor: Simulated seconds of a second's fit.
        timings_ms: Measurements since the last line, by kind.
    """

    fit_factor: float = 1.0
    timings_ms: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def carry_out(self, command: Command) -> None:
        """Carry out a command; a fit answers later."""
        if not isinstance(command, FitRatings):
            # Not super(): dataclasses with slots are made anew, which breaks it.
            World.carry_out(self, command)
            return
        began_s = time.thread_time()
        fitted = fit_ratings(fit_input(command.known))
        took_s = time.thread_time() - began_s
        self.timings_ms["fit"].append(1e3 * took_s)
        event = RatingsFitted(rows=fitted.rows, spreads=fitted.spreads, centres=fitted.centres)
        self._plan(self.fit_factor * took_s, lambda: self._take(event))

    def _take(self, event: RatingsFitted) -> None:
        self.handle(event)

    def forget_weights(self) -> None:
        """Drop what was planted about weights that nothing can name any more."""
        tables = self.state.tables
        digests = {row.weights_digest for row in tables.checkpoints.values()}
        digests |= {ghost.weights_digest for ghost in tables.ghosts.values()}
        learner = self.learner
        # Of assignments that are carried out, but not finished yet.
        digests |= set(list(learner.weights)[-NEWEST:])
        learner.weights = {one: truth for one, truth in learner.weights.items() if one in digests}
        learner.origins = {one: own for one, own in learner.origins.items() if own in digests}


def run_file_of(options: argparse.Namespace) -> RunFile:
    """Return the run file of the league."""
    changes = [*DEMO, f"learners={options.learners}", *options.override]
    config = load_config("connect_four", changes)
    return simulated_run(simulated_config(config, num_policies=options.policies))


def make_long_world(run_file: RunFile, options: argparse.Namespace) -> LongWorld:
    """Make the league, not yet started."""
    setup = learner_setup(run_file, root=Path("simulated"))
    # Planted skills grow slower and slower: a league of weeks is near its end.
    model = PlantedModel()
    learner = make_learner(
        setup, run_file.config, model, agent_steps_per_s=35_000.0, matches_per_s=1000.0
    )
    return LongWorld(
        state=make_state(run_file.config, setup, make_tables(run_file)),
        setup=setup,
        learner=learner,
        fit_factor=options.fit_factor,
    )


@dataclass(slots=True)
class Measured:
    """Work of the journal, and its cost so far.

    Attributes:
        directory: Run directory.
        journal: Its journal.
        upkeep: Care of it.
        world: The league.
        own_bytes: Bytes that the journal has written.
        backup_bytes: Bytes that backups and archives have written.
        upkeep_s: Processor time of all upkeep.
    """

    directory: Path
    journal: Journal
    upkeep: JournalUpkeep
    world: LongWorld
    own_bytes: int = 0
    backup_bytes: int = 0
    upkeep_s: float = 0.0

    def commit(self, rows: Sequence[Row]) -> None:
        """Commit a transaction, and care for the journal, which then is waited for."""
        if not rows:
            return
        before, began_s = written_bytes(), time.perf_counter()
        self.journal.commit(rows)
        self.world.timings_ms["commit"].append(1e3 * (time.perf_counter() - began_s))
        between, began_s = written_bytes(), time.process_time()
        self.own_bytes += between - before
        self.upkeep.turn(self.world.state.tables)
        self.upkeep.wait()
        self.upkeep_s += time.process_time() - began_s
        self.backup_bytes += written_bytes() - between

    def line(self) -> dict[str, object]:
        """Return the figures since the last line, and forget them."""
        world, tables = self.world, self.world.state.tables
        began_s = time.thread_time()
        snapshot(world.state.league, tables)
        world.timings_ms["snapshot"].append(1e3 * (time.thread_time() - began_s))
        timings = {
            kind: {
                "number": len(taken),
                "median_ms": round(float(np.median(taken)), 2),
                "p95_ms": round(float(np.percentile(taken, 95)), 2),
            }
            for kind, taken in sorted(world.timings_ms.items())
        }
        world.timings_ms.clear()
        files = list((self.directory / ARCHIVE).glob("*"))
        return {
            "hours": round(world.now_s / HOUR_S, 2),
            "rows": self.rows(),
            "journal_mib": round((self.directory / JOURNAL).stat().st_size / MIB, 1),
            "archive_mib": round(sum(file.stat().st_size for file in files) / MIB, 1),
            "archive_files": len(files),
            "committed_mib": round(self.journal.committed_bytes / MIB),
            "written_by_journal_mib": round(self.own_bytes / MIB),
            "written_by_upkeep_mib": round(self.backup_bytes / MIB),
            "upkeep_share_of_a_core": round(self.upkeep_s / world.now_s, 5),
            "memory_mib": round(psutil.Process().memory_info().rss / MIB),
            **timings,
            "truth": self.truth(),
            "resume": resume(self.directory),
        }

    def truth(self) -> dict[str, dict[str, float]]:
        """Return how ratings of policies and ghosts differ from planted skills.

        ``held`` is the share of 95% intervals that hold the skill, ``bias`` the mean of rating
        minus skill in Elo, ``scatter`` its standard deviation, ``width`` the mean interval's.
        """
        world = self.world
        rated = [
            (line, line.rating, line.rating_low, line.rating_high)
            for lines in standings(world.state.tables, world.state.league).values()
            for line in lines
        ]
        found: dict[str, dict[str, float]] = {}
        for kind in ("policy", "ghost"):
            rows = [
                (rating - world.learner.weights[Digest(line.weights)].skill, low, high, rating)
                for line, rating, low, high in rated
                if line.kind == kind
                and line.weights is not None
                and rating is not None
                and low is not None
                and high is not None
            ]
            errors = np.array([error for error, *_ in rows])
            held = [low <= rating - error <= high for error, low, high, rating in rows]
            found[kind] = {
                "number": len(rows),
                "held": round(float(np.mean(held)), 3),
                "bias": round(float(errors.mean()), 1),
                "scatter": round(float(errors.std()), 1),
                "width": round(float(np.mean([high - low for _, low, high, _ in rows])), 1),
            }
        return found

    def rows(self) -> dict[str, int]:
        """Return the number of rows of each table of the journal."""
        with JournalReader(self.directory / JOURNAL) as reader:
            connection = reader._connection
            return {
                table.name: connection.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0]
                for table in TABLES
            }


def resume(directory: Path) -> dict[str, float]:
    """Resume the run in a process of its own, and return seconds and memory."""
    command = [sys.executable, "-m", "experiments.load.month", "--resume", str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    text = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout
    found: dict[str, float] = json.loads(text)
    return found


def print_resume(directory: Path) -> None:
    """Make a controller from a journal, without changing it."""
    began_s = time.perf_counter()
    run_file = RunFile.load(directory / "run.yaml")
    with JournalReader(directory / JOURNAL) as reader:
        tables = reader.load()
    state = make_state(run_file.config, learner_setup(run_file, root=directory), tables)
    took_s = time.perf_counter() - began_s
    memory = psutil.Process().memory_info().rss / MIB
    fit_input(snapshot(state.league, tables))
    sys.stdout.write(json.dumps({"seconds": round(took_s, 2), "memory_mib": round(memory)}))


def timed_decisions(world: LongWorld) -> Callable[..., AssignmentRow | None]:
    """Return the scheduler's decision on the next assignment, timed."""

    def decide(*arguments: Any) -> AssignmentRow | None:
        began_s = time.thread_time()
        row = scheduler_decide(*arguments)
        if row is not None:
            took_ms = 1e3 * (time.thread_time() - began_s)
            world.timings_ms[f"decide_{row.kind}"].append(took_ms)
        return row

    return decide


def measure(directory: Path, options: argparse.Namespace) -> None:
    """Grow a run and print the figures."""
    directory.mkdir(parents=True, exist_ok=True)
    run_file = run_file_of(options)
    run_file.save(directory / "run.yaml")
    world = make_long_world(run_file, options)
    tables = world.state.tables
    rows: list[Row] = [tables.run, *tables.policies.values(), *tables.generations.values()]
    with Journal.create(directory / JOURNAL, rows) as journal:
        journal.backup(directory / BACKUP)
        upkeep = JournalUpkeep(
            directory, journal, run_file.config.journal, clock=lambda: world.now_s
        )
        measured = Measured(directory=directory, journal=journal, upkeep=upkeep, world=world)
        world.watch = measured.commit
        decide = timed_decisions(world)
        with patch("populations.controller.assignments.scheduler._decide", decide):
            start(world)
            say_at_s = options.every_h * HOUR_S
            while world.now_s < options.hours * HOUR_S and world.advance():
                if world.now_s >= say_at_s:
                    say_at_s += options.every_h * HOUR_S
                    world.forget_weights()
                    sys.stdout.write(json.dumps(measured.line()) + "\n")
                    sys.stdout.flush()
        upkeep.finish()


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=24.0, help="simulated hours to grow for")
    parser.add_argument("--every-h", type=float, default=1.0, help="simulated hours between lines")
    parser.add_argument("--learners", type=int, default=2, help="simulated learners")
    parser.add_argument("--policies", type=int, default=4, help="policies of the population")
    parser.add_argument(
        "--fit-factor", type=float, default=1.0, help="simulated seconds of a second's fit"
    )
    parser.add_argument("--override", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--run", type=Path, help="run directory; default: a temporary one")
    parser.add_argument("--resume", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.resume is not None:
        print_resume(options.resume)
    elif options.run is not None:
        measure(options.run, options)
    else:
        with tempfile.TemporaryDirectory() as directory:
            measure(Path(directory), options)


if __name__ == "__main__":
    main()
