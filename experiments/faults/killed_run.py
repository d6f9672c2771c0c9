"""A deterministic run that is killed again and again, beside one that is left alone.

    python -m experiments.faults.killed_run --kills 20          # progress on standard error
    python -m experiments.faults.killed_run --kills 20 --json   # the figures as JSON

Kills learners, the controller, or both with SIGKILL, each time at another number of committed
assignments and a random moment after it. Both runs must come to the same decisions, tallies and
weights digests, `arena verify` must find nothing after each kill of a controller and at the end,
and no process may be left. Exit code 1 if not.

Two deterministic runs with equal configurations and seeds have equal outcomes, whatever was killed
in between. Attempts, epochs, seconds and who did the work are no decisions.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from msgspec.structs import replace

from arena.types import LearnerId
from experiments.faults.killing import (
    TINY,
    KilledRun,
    Victim,
    end_on_signals,
    killed_run,
    marks,
    processes_of,
)
from populations.records.aggregates import Row
from populations.records.rows import AssignmentRow, CheckpointRow, EventRow, RunRow
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader

DECISIONS = (
    "exploited",
    "explored",
    "fell_back",
    "ghost_created",
    "ghosts_thinned",
    "results_merged",
    "immigrated",
    "kept",
    "learning_rate_halved",
    "quarantined",
)
"""Kinds of events that say what was decided; what was given out is in the assignments."""

Outcome = Mapping[str, Sequence[object]]

VICTIMS: tuple[Victim, ...] = ("learner", "controller", "both")
END_S = 300.0
AFTER_S = 0.03
"""Most seconds between a commit and a kill."""

MARGIN = 4
"""Assignments before the end at which nothing is killed any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Result of a killed run.

    Attributes:
        seed: Seed of moments and victims.
        kills: Number of kills by victim.
        resumes: Controllers that went on.
        assignments: Assignments of either run.
        decisions: Decisions of either run: PBT's and ghosts.
        tallies: Tallies of either run.
        weights: Different weights digests, of either run.
        differences: Between the two; empty.
        faults: Faults of the killed run, by `arena verify`; empty if sound.
        processes_left: 0.
        gone_after_s: The longest that learners outlived a controller.
    """

    seed: int
    kills: dict[Victim, int]
    resumes: int
    assignments: int
    decisions: int
    tallies: int
    weights: int
    differences: list[str]
    faults: list[str]
    processes_left: int
    gone_after_s: float

    @property
    def is_sound(self) -> bool:
        """Whether nothing was lost."""
        return not self.differences and not self.faults and not self.processes_left


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    end_on_signals()
    with tempfile.TemporaryDirectory(prefix="arena-killed-") as directory:
        figures = measure(Path(directory), kills=options.kills, seed=options.seed)
    document = {"schema": 1, **asdict(figures)}
    if options.json:
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
    else:
        sys.stdout.writelines(f"{name}: {value}\n" for name, value in document.items())
    return 0 if figures.is_sound else 1


def measure(directory: Path, *, kills: int, seed: int) -> Figures:
    """Run once alone and once with kills, and compare."""
    alone = undisturbed(directory)
    rng = random.Random(seed)
    with killed_run(directory, name="killed") as run:
        run.start("rock_paper_scissors", *TINY)
        for mark in marks(kills, below=len(alone["assignments"]) - MARGIN, rng=rng):
            _kill_after(run, mark, rng)
        if run.wait(timeout_s=END_S) != 0:
            raise RuntimeError(run.log.read_text()[-4000:])
        run.await_nobody()
        run.verify()
        return _figures(run, alone, seed=seed)


def undisturbed(directory: Path) -> Outcome:
    """Return the outcome of the same run without kills."""
    with killed_run(directory, name="alone") as run:
        run.start("rock_paper_scissors", *TINY)
        if run.wait(timeout_s=END_S) != 0:
            raise RuntimeError(run.log.read_text()[-4000:])
        return outcome(run.run)


def _kill_after(run: KilledRun, mark: int, rng: random.Random) -> None:
    victim = rng.choice(VICTIMS)
    if not run.await_finished(mark):
        raise RuntimeError(f"the run ended before assignment {mark}: {run.log.read_text()[-4000:]}")
    time.sleep(rng.uniform(0.0, AFTER_S))  # a moment that no condition can be waited for
    sys.stderr.write(f"kill {victim} after assignment {mark}\n")
    run.kill(victim, rng)


def _figures(run: KilledRun, alone: Outcome, *, seed: int) -> Figures:
    killed = outcome(run.run)
    weights = {getattr(row, "weights_digest", "") for row in killed["checkpoints"]}
    return Figures(
        seed=seed,
        kills=run.num_kills,
        resumes=run.num_resumes,
        assignments=len(killed["assignments"]),
        decisions=len(killed["decisions"]),
        tallies=len(killed["tallies"]),
        weights=len(weights),
        differences=differences(alone, killed),
        faults=run.faults,
        processes_left=len(processes_of(run.run)),
        gone_after_s=round(run.slowest_s, 3),
    )


def outcome(run: Path) -> Outcome:
    """Return all that two equal deterministic runs have in common, by table."""
    with JournalReader(run / JOURNAL) as reader, reader.snapshot():
        tables = reader.load()
        assignments = reader.assignments(statuses=("finished", "failed"))
        tallies = reader.tallies()
        events = reader.events(kinds=DECISIONS)
    return {
        "run": [_timeless_run(tables.run)],
        "policies": [replace(row, speed=0.0) for row in tables.policies.values()],
        "checkpoints": [_settled(row) for row in tables.checkpoints.values()],
        "ghosts": [replace(row, linked=True) for row in tables.ghosts.values()],
        "generations": list(tables.generations.values()),
        "ratings": list(tables.ratings.values()),
        "assignments": [_anybodys(row) for row in assignments],
        "tallies": tallies,
        "decisions": [_timeless_event(row) for row in events],
    }


def differences(first: Outcome, second: Outcome) -> list[str]:
    """Return the tables in which two outcomes differ, each with its first difference."""
    found = []
    for table, rows in first.items():
        others = second[table]
        if list(rows) == list(others):
            continue
        pairs = zip(rows, others, strict=False)
        at = next((i for i, (one, other) in enumerate(pairs) if one != other), -1)
        where = f"first at row {at}: {rows[at]} | {others[at]}" if at >= 0 else "one goes on"
        found.append(f"{table}: {len(rows)} and {len(others)} rows, {where}")
    return found


def _timeless_run(row: RunRow) -> Row:
    # The digest of run.yaml is that of its run's name, too.
    row = replace(row, run="", configuration="")
    return replace(row, epoch=0, elapsed_s=0.0, closing_s=0.0, training_s=0.0, evaluation_s=0.0)


def _settled(row: CheckpointRow) -> Row:
    """Return the row without its state: a directory may go after the last commit."""
    return replace(row, state="deleted") if row.state == "doomed" else row


def _anybodys(row: AssignmentRow) -> Row:
    """Return the decision and its result without its learner."""
    return replace(
        row,
        attempt=0,
        message=replace(row.message, attempt=0),
        learner=LearnerId(""),
        duration_s=0.0,
        metrics={},
    )


def _timeless_event(row: EventRow) -> Row:
    return replace(row, sequence=0, time="")


if __name__ == "__main__":
    sys.exit(main())
