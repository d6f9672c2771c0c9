r"""Growth of a run with its duration: a real controller and journal, simulated learners and time.

    python -m experiments.load.month --hours 24
    python -m experiments.load.month --hours 3 --learners 16 --every-h 0.5
    python -m experiments.load.month --hours 24 --override ghosts.keep=null \
        journal.keep_detail_hours=null
    python -m experiments.load.month --ages 24 168 720 --last-hours 4 --coarseness 4

The league of the preset ``connect_four`` at the demo's speed: 4 policies, each learner a training
assignment every three seconds. The controller decides, each transaction is committed to a journal
on disk, the journal's upkeep archives and backs up by the simulated time, and ratings are fitted in
as much simulated time as a fit takes here, times ``--fit-factor``. Only directories of weights are
missing. What was planted about weights that are gone is dropped, so memory is the controller's.

With ``--ages`` only the last hours before each age pass so. The hours before them pass quickly: the
same controller, pool, merges, archive and journal, but ``--coarseness`` times fewer ghosts,
decisions of PBT and evaluations, a training assignment for each ghost instead of one in three
seconds, seldom fits, and large transactions that nothing waits for. Between the two the run is
resumed, as after a crash, with the other configuration.

A line of JSON for every ``--every-h`` hours: rows by table, kept games that hold weights, MiB of
journal and archive, bytes written since the start by the journal and by backups (of write calls, by
the kernel's count), memory, milliseconds of the controller's thread for decisions, commits,
snapshots and fits (medians; of decisions also the 95th percentile), processor share of backups,
ratings beside planted skills, and seconds and memory of a resume in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil
from msgspec.structs import replace

from arena.types import Digest
from arena.wire.messages import Train
from experiments.harness import in_process, parser_of, say
from experiments.load.long_world import (
    GENERATED_FIT_FACTOR,
    HOUR_S,
    LongWorld,
    make_long_world,
    run_file_of,
)
from populations.audit.verify import verify_run
from populations.config.run_file import RunFile, content_digest, learner_setup
from populations.controller.assignments.jobs import Job
from populations.controller.assignments.placement import _decide as placement_decide
from populations.controller.rating_input import fit_input, snapshot
from populations.controller.server.journal_upkeep import JournalUpkeep
from populations.controller.state.state import make_state
from populations.league.standings import standings
from populations.records.aggregates import Row
from populations.records.tables import TABLES
from populations.simulation.world import start
from populations.storage.archive import ARCHIVE
from populations.storage.database import BACKUP, JOURNAL
from populations.storage.journal import Journal, JournalReader

MIB = 2**20
NO_DIRECTORY = "there is no checkpoint"
GENERATED_LINE_H = 24.0
GENERATED_COMMIT_S = 60.0
"""Simulated seconds between two transactions of hours that are passed quickly."""


def written_bytes() -> int:
    """Return the bytes of all write calls of this process so far."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


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
        began_s: Simulated time since which bytes and upkeep are counted.
        is_generating: Whether hours pass quickly, and nothing is measured.
    """

    directory: Path
    journal: Journal
    upkeep: JournalUpkeep
    world: LongWorld
    own_bytes: int = 0
    backup_bytes: int = 0
    upkeep_s: float = 0.0
    began_s: float = 0.0
    is_generating: bool = False
    _waiting: list[Row] = field(default_factory=list)
    _committed_s: float = 0.0

    def take(self, rows: Sequence[Row]) -> None:
        """Commit a transaction: at once, or with others while hours pass quickly."""
        if not self.is_generating:
            self.commit(rows)
            return
        self._waiting += rows
        if self.world.now_s - self._committed_s >= GENERATED_COMMIT_S:
            self.flush()

    def flush(self) -> None:
        """Commit what waits."""
        rows, self._waiting = self._waiting, []
        self._committed_s = self.world.now_s
        self.commit(rows)

    def forget(self) -> None:
        """Count bytes and upkeep from now on."""
        self.own_bytes = self.backup_bytes = 0
        self.upkeep_s, self.began_s = 0.0, self.world.now_s
        self.journal.committed_bytes = 0

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
        snapshot(world.state.league)
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
            "games_that_hold": sum(game.holds for game in tables.games.values()),
            "journal_mib": round((self.directory / JOURNAL).stat().st_size / MIB, 1),
            "archive_mib": round(sum(file.stat().st_size for file in files) / MIB, 1),
            "archive_files": len(files),
            "committed_mib": round(self.journal.committed_bytes / MIB),
            "written_by_journal_mib": round(self.own_bytes / MIB),
            "written_by_upkeep_mib": round(self.backup_bytes / MIB),
            "upkeep_share_of_a_core": round(
                self.upkeep_s / max(world.now_s - self.began_s, 1.0), 5
            ),
            "memory_mib": round(psutil.Process().memory_info().rss / MIB),
            **timings,
            "truth": self.truth(),
            "resume": in_process("load.month", "--resume", self.directory),
        }

    def truth(self) -> dict[str, dict[str, float]]:
        """Return how ratings of policies and ghosts differ from planted skills.

        ``held`` is the share of 95% intervals that hold the skill, ``bias`` the mean of rating
        minus skill in Elo, ``scatter`` its standard deviation, ``width`` the mean interval's.
        """
        world = self.world
        rated = [
            (line, line.rating, line.rating_low, line.rating_high)
            for lines in standings(world.state.league).values()
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
            if not rows:
                continue
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


def print_resume(directory: Path) -> None:
    """Make a controller from a journal, without changing it."""
    began_s = time.perf_counter()
    run_file = RunFile.load(directory / "run.yaml")
    with JournalReader(directory / JOURNAL) as reader:
        tables = reader.load()
    state = make_state(run_file.config, learner_setup(run_file, root=directory), tables)
    took_s = time.perf_counter() - began_s
    memory = psutil.Process().memory_info().rss / MIB
    fit_input(snapshot(state.league))
    say({"seconds": round(took_s, 2), "memory_mib": round(memory)})


def timed_decisions(measured: Measured) -> Callable[..., Job | None]:
    """Return the scheduler's decision on the next assignment, timed."""

    def decide(*arguments: Any) -> Job | None:
        began_s = time.thread_time()
        job = placement_decide(*arguments)
        if job is not None:
            took_ms = 1e3 * (time.thread_time() - began_s)
            kind = "train" if isinstance(job[0], Train) else "evaluate"
            measured.world.timings_ms[f"decide_{kind}"].append(took_ms)
        return job

    return decide


@contextlib.contextmanager
def opened(directory: Path, options: argparse.Namespace) -> Iterator[Measured]:
    """Make a run, not yet started."""
    directory.mkdir(parents=True, exist_ok=True)
    run_file = run_file_of(options)
    run_file.save(directory / "run.yaml")
    world = make_long_world(run_file, fit_factor=options.fit_factor)
    tables = world.state.tables
    tables.run = replace(tables.run, configuration=content_digest(directory / "run.yaml"))
    rows: list[Row] = [tables.run, *tables.policies.values(), *tables.generations.values()]
    with Journal.create(directory / JOURNAL, rows) as journal:
        journal.backup(directory / BACKUP)
        config = run_file.config.journal
        upkeep = JournalUpkeep(directory, journal, config, clock=lambda: world.now_s)
        measured = Measured(directory=directory, journal=journal, upkeep=upkeep, world=world)
        world.watch = measured.take
        decide = timed_decisions(measured)
        with patch("populations.controller.assignments.placement._decide", decide):
            yield measured
        measured.upkeep.finish()


def resumed(measured: Measured, options: argparse.Namespace, *, generating: bool) -> None:
    """Go on with another configuration where the controller stands, as after its crash."""
    measured.flush()
    measured.upkeep.wait()
    measured.upkeep.abandon()
    measured.is_generating = generating
    run_file = run_file_of(options, coarseness=options.coarseness if generating else 1)
    run_file.save(measured.directory / "run.yaml")
    # A killed process loses no commit without synchronous writes; only a power loss can lose one.
    level = "OFF" if generating else "FULL"
    measured.journal._connection.execute(f"PRAGMA synchronous = {level}")
    world = measured.world = make_long_world(
        run_file,
        fit_factor=GENERATED_FIT_FACTOR if generating else options.fit_factor,
        tables=measured.journal.load(),
        before=measured.world,
    )
    measured.upkeep = JournalUpkeep(
        measured.directory,
        measured.journal,
        run_file.config.journal,
        clock=lambda: world.now_s,
    )
    measured.forget()
    world.watch = measured.take
    start(world)


def pass_hours(measured: Measured, until_h: float, *, every_h: float) -> None:
    """Let time pass, and print the figures now and then."""
    world = measured.world
    say_at_s = world.now_s + every_h * HOUR_S
    while world.now_s < until_h * HOUR_S and world.advance():
        if world.now_s >= min(say_at_s, until_h * HOUR_S):
            say_at_s += every_h * HOUR_S
            world.forget_weights()
            measured.flush()
            say(measured.line())


def measure(directory: Path, options: argparse.Namespace) -> None:
    """Grow a run and print the figures."""
    with opened(directory, options) as measured:
        start(measured.world)
        if not options.ages:
            pass_hours(measured, options.hours, every_h=options.every_h)
        for age in options.ages:
            resumed(measured, options, generating=True)
            pass_hours(measured, age - options.last_hours, every_h=GENERATED_LINE_H)
            resumed(measured, options, generating=False)
            pass_hours(measured, age, every_h=options.every_h)
    say(in_process("load.month", "--verify", directory))


def print_verified(directory: Path) -> None:
    """Verify a run as `arena verify` does; directories of weights are missing."""
    began_s = time.perf_counter()
    report = verify_run(directory)
    took_s = time.perf_counter() - began_s
    faults = [fault for fault in report.faults if not _is_of_directories(fault)]
    memory = psutil.Process().memory_info().rss / MIB
    say({"verify_s": round(took_s, 1), "memory_mib": round(memory), "faults": faults})


def _is_of_directories(fault: str) -> bool:
    """Return whether a fault is that directories are missing, and nothing besides."""
    is_loss = fault.startswith("acknowledged work is lost") and "; " not in fault
    return NO_DIRECTORY in fault or (is_loss and fault.endswith("recorded, and missing"))


def main() -> None:
    """Read the arguments and measure."""
    parser = parser_of(__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="simulated hours to grow for")
    parser.add_argument("--every-h", type=float, default=1.0, help="simulated hours between lines")
    parser.add_argument("--learners", type=int, default=2, help="simulated learners")
    parser.add_argument("--policies", type=int, default=4, help="policies of the population")
    parser.add_argument(
        "--fit-factor", type=float, default=1.0, help="simulated seconds of a second's fit"
    )
    parser.add_argument(
        "--ages", type=float, nargs="+", default=[], help="hours at which to look; see above"
    )
    parser.add_argument(
        "--last-hours", type=float, default=1.0, help="hours before each age that are simulated"
    )
    parser.add_argument(
        "--coarseness", type=int, default=4, help="factor by which ghosts are fewer before them"
    )
    parser.add_argument("--override", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--run", type=Path, help="run directory; default: a temporary one")
    parser.add_argument("--resume", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--verify", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.resume is not None:
        print_resume(options.resume)
    elif options.verify is not None:
        print_verified(options.verify)
    elif options.run is not None:
        measure(options.run, options)
    else:
        with tempfile.TemporaryDirectory() as directory:
            measure(Path(directory), options)


if __name__ == "__main__":
    main()
