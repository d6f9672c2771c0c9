"""Growth of a run's directory with its duration, and bytes that are written on the way.

    python -m experiments.load.month --hours 24

Commits rows assignment by assignment, at the demo's rate (4 policies, 2 learners: 55,000
assignments, 750,000 tallies and 11,500 ghosts a day), and backs the journal up as a controller does
by the run's time. Prints now and then the sizes of the journal and of the committed rows, and the
bytes written: by the journal itself (log and file), by backups, and by copies of the whole journal
every ten minutes. Bytes are those of write calls, by the kernel's count.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from arena.types import AssignmentId, Entrant, PolicyId, Tally
from experiments.load.big_journal import BigLeague, Size, big_run_file
from populations.config.run_file import learner_setup
from populations.config.sections import JournalConfig
from populations.controller.server.journal_upkeep import JournalUpkeep
from populations.league.league import League
from populations.records.rows import PolicyRow, Row, RunRow
from populations.records.tables import Tables
from populations.storage.archive import ARCHIVE
from populations.storage.database import BACKUP, JOURNAL
from populations.storage.journal import Journal

DAY_S = 86_400
HOUR_S = 3600.0
COPY_EVERY_S = 600.0
ASSIGNMENTS_PER_DAY = 55_000
EVALUATIONS_PER_DAY = 25_000
GHOSTS_PER_DAY = 11_500
POLICIES = 4
MIB = 2**20


def written_bytes() -> int:
    """Return the bytes of all write calls of this process so far."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


class Commits(BigLeague):
    """A league that grows by one assignment after the other, as a controller commits it."""

    def commits(self, days: float) -> Iterator[tuple[float, list[Row]]]:
        """Yield the run's time in seconds and the rows of each assignment."""
        num_turns = int(days * ASSIGNMENTS_PER_DAY / POLICIES)
        self.size = Size(
            policies=POLICIES,
            assignments=num_turns,
            ghosts=int(days * GHOSTS_PER_DAY / POLICIES),
            opponents=8,
        )
        evaluations = 0.0
        for turn in range(num_turns):
            for index in range(POLICIES):
                policy = PolicyId(f"player/p{index:03d}")
                self._train(policy, turn)
                elapsed_s = DAY_S * (turn * POLICIES + index + 1) / ASSIGNMENTS_PER_DAY
                yield elapsed_s, self._rows_with(policy)
                evaluations += EVALUATIONS_PER_DAY / ASSIGNMENTS_PER_DAY
                if evaluations >= 1.0 and turn:
                    evaluations -= 1.0
                    self._evaluate(policy)
                    yield elapsed_s, self._rows_with(policy)

    def _play(self, entrants: tuple[Entrant, ...], gap: float) -> Tally:
        # Skills grow without end, and chances are powers of ten.
        return super()._play(entrants, min(max(gap, -2000.0), 2000.0))

    def _rows_with(self, policy: PolicyId) -> list[Row]:
        newest = self.latest[policy][0]
        own = PolicyRow(
            policy=policy,
            population="player",
            index=int(policy[-3:]),
            generation=newest.generation,
            agent_steps=newest.agent_steps,
            checkpoint=newest.key,
            hyperparameters={"learning_rate": 3e-4, "gamma": 0.99},
        )
        run = RunRow(run="month", assignments_finished=self.num_assignments)
        rows = [*self._taken(), *self.records.values(), *self.pairs.values(), own, run]
        self.records.clear()
        self.pairs.clear()
        return rows


@dataclass(slots=True, kw_only=True)
class Figures:
    """Counts so far.

    Attributes:
        own: Bytes that the journal itself has written: its log, and from there its file.
        backups: Number of backups.
        backup: Bytes that they have written, by the kernel's count.
        copies: Bytes that copies of the whole journal every ten minutes would have written.
        processor_s: Processor time of the last backup.
        longest_commit_s: Longest time of a commit of an assignment's rows.
        longest_turn_s: Longest time that the controller's thread spent on the file's upkeep.
        turns_s: All of that time.
        at_s: Run's times of the last backups.
    """

    own: int = 0
    backups: int = 0
    backup: int = 0
    copies: int = 0
    processor_s: float = 0.0
    longest_commit_s: float = 0.0
    longest_turn_s: float = 0.0
    turns_s: float = 0.0
    at_s: list[float] = field(default_factory=lambda: [0.0])

    def count_backup(self, elapsed_s: float, *, written: int, processor_s: float) -> None:
        """Count one."""
        self.backups += 1
        self.backup += written
        self.processor_s = processor_s
        self.at_s = [*self.at_s[-4:], elapsed_s]


def measure(
    directory: Path, *, hours: float, say_every_h: float, keep_detail_hours: float | None
) -> None:
    """Grow a run and print the figures."""
    run_file = big_run_file()
    league = League(
        seats=learner_setup(run_file, root=directory).seats,
        half_life_matches=run_file.config.payoffs.half_life_matches,
    )
    commits = Commits(size=Size(), league=league, rng=np.random.default_rng(1))
    path, figures = directory / JOURNAL, Figures()
    say_at_s, copy_at_s, elapsed_s = say_every_h * HOUR_S, COPY_EVERY_S, 0.0
    with Journal.create(path, [RunRow(run="month")]) as journal:
        journal.backup(directory / BACKUP)
        config = JournalConfig(keep_detail_hours=keep_detail_hours)
        upkeep = JournalUpkeep(directory, journal, config, clock=lambda: elapsed_s)
        for elapsed_s, rows in commits.commits(hours / 24):
            before, turn_s = written_bytes(), time.perf_counter()
            journal.commit(rows)
            figures.longest_commit_s = max(figures.longest_commit_s, time.perf_counter() - turn_s)
            figures.own += written_bytes() - before
            before, began_s, counted = written_bytes(), time.process_time(), upkeep.written_bytes
            tables = tables_at(elapsed_s, commits)
            turn_s = time.perf_counter()
            upkeep.turn(tables)
            turn_s = time.perf_counter() - turn_s
            figures.longest_turn_s = max(figures.longest_turn_s, turn_s)
            figures.turns_s += turn_s
            upkeep.wait()
            if upkeep.written_bytes > counted:
                figures.count_backup(
                    elapsed_s,
                    written=written_bytes() - before,
                    processor_s=time.process_time() - began_s,
                )
            if elapsed_s >= copy_at_s:
                copy_at_s += COPY_EVERY_S
                figures.copies += path.stat().st_size
            if elapsed_s >= say_at_s:
                say_at_s += say_every_h * HOUR_S
                print_state(elapsed_s, path, figures, journal.committed_bytes)
        upkeep.finish()


def tables_at(elapsed_s: float, commits: Commits) -> Tables:
    """Return what upkeep reads of the tables."""
    run = RunRow(
        run="month", elapsed_s=elapsed_s, next_assignment=AssignmentId(commits.num_assignments + 1)
    )
    return Tables(
        run=run,
        policies={},
        checkpoints={},
        ghosts={},
        generations={},
        assignments={},
        ratings={},
        num_events=commits.num_events,
        num_tallies=commits.num_tallies,
        last_evaluation_sequence=commits.num_tallies,
    )


def print_state(elapsed_s: float, path: Path, figures: Figures, committed: int) -> None:
    """Print sizes and bytes written so far."""
    files = list((path.parent / ARCHIVE).glob("*"))
    archive = sum(file.stat().st_size for file in files)
    pauses = [(b - a) / HOUR_S for a, b in itertools.pairwise(figures.at_s)]
    sys.stdout.write(
        f"{elapsed_s / HOUR_S:6.1f} h: journal {path.stat().st_size / MIB:.0f} MiB, rows "
        f"{committed / MIB:.0f} MiB, written by the journal {figures.own / MIB:.0f} MiB, by "
        f"{figures.backups} backups {figures.backup / MIB:.0f} MiB (whole copies every 10 minutes: "
        f"{figures.copies / MIB:.0f} MiB), last pauses {[round(one, 1) for one in pauses]} h, "
        f"processor {figures.processor_s:.2f} s; archive {archive / MIB:.0f} MiB in {len(files)} "
        f"files; upkeep on the controller's thread at most {1e3 * figures.longest_turn_s:.1f} ms, "
        f"in all {figures.turns_s:.1f} s (a commit: {1e3 * figures.longest_commit_s:.1f} ms)\n"
    )
    sys.stdout.flush()


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=24.0, help="Run's time to grow for")
    parser.add_argument("--say-every-h", type=float, default=6.0, help="Hours between lines")
    parser.add_argument(
        "--keep-detail-hours", type=float, help="Hours until details are archived; default: never"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        measure(
            Path(directory),
            hours=arguments.hours,
            say_every_h=arguments.say_every_h,
            keep_detail_hours=arguments.keep_detail_hours,
        )


if __name__ == "__main__":
    main()
