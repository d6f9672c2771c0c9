"""A whole run as a user starts it, and how fast its policies learned.

The rate of a run: each learner's commits of training are looked at from its first to its last. The
agent steps of all but the first, divided by the time between the two, are what that learner did per
second, evaluation, publishing, waiting and whatever else came between included; start-up is not.
The run's rate is that of its mean learner times their number.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from arena.processes.parent import Child
from arena.resolve import code_directory
from populations.config.run_config import RunConfig
from populations.errors import RunFailed
from populations.records.rows import AssignmentRow
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from populations.yaml_documents import write_document

from ..launch.serving import MAIN

LOOK_EVERY_S = 0.1
START_S = 120.0
"""Seconds until the first commit of training."""

END_S = 60.0
"""Seconds for a run that was told to stop."""

STOPPED = 143
"""Exit code of a run that was told to stop."""


Commits = Mapping[str, Sequence[tuple[float, int]]]
"""Training assignments whose results were committed, by learner: the time at which each was seen in
the journal, in seconds, and its agent steps.
"""


def committed_rate(commits: Commits, *, num_learners: int) -> float:
    """Return the agent steps per second of a run, start-up apart; see the module.

    Args:
        commits: Commits of each learner in order of time.
        num_learners: Number of learners at a time. A learner that died and its successor are two
            names, but one learner.

    Raises:
        RunFailed: If no learner has committed twice.
    """
    # rate = L sum_l (steps after l's first commit) / sum_l (l's last - first commit)
    agent_steps = sum(steps for span in commits.values() for _, steps in span[1:])
    learner_seconds = sum(span[-1][0] - span[0][0] for span in commits.values())
    # Two commits that one look finds have the same time, so their difference may be 0.
    if agent_steps == 0 or learner_seconds <= 0.0:
        raise RunFailed(
            f"the run was too short: no learner committed training twice in "
            f"{sum(map(len, commits.values()))} commits; give it more --run-seconds"
        )
    return num_learners * agent_steps / learner_seconds


class _Watch:
    """Watcher of new commits in a journal that another process writes."""

    def __init__(self, path: Path, *, num_learners: int) -> None:
        self._path = path
        # Assignments finish out of order: each learner has one running and one queued.
        self._num_open = 4 * num_learners
        self._seen: set[int] = set()
        self._after = 0
        self.commits: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)

    def look(self) -> None:
        """Note what was committed since the last look."""
        if not self._path.exists():
            return
        # The clock is read before the journal, because reading a long journal takes some time.
        now = time.perf_counter()
        with contextlib.closing(JournalReader(self._path)) as reader:
            rows = reader.assignments(after=self._after, statuses=["finished"])
        for row in rows:
            if row.assignment_id not in self._seen:
                self._seen.add(row.assignment_id)
                self._note(row, now)
        # Only the newest assignments are read, because a run makes thousands of them.
        self._after = max(0, max(self._seen, default=0) - self._num_open)

    def _note(self, row: AssignmentRow, now: float) -> None:
        # Assignments of 0 steps only publish an initial checkpoint.
        if row.kind == "train" and row.agent_steps > 0 and row.learner is not None:
            self.commits[row.learner].append((now, row.agent_steps))


def launched_rate(
    config: RunConfig, *, run_dir: Path, num_learners: int, run_seconds: float
) -> float:
    """Launch a run, stop it after a while, and return the agent steps per second of its trainees.

    Args:
        config: With stops that are further away.
        run_dir: Directory that does not exist yet; its configuration is written beside it.
        num_learners: Learner processes.
        run_seconds: Seconds from the first commit of training until the stop. Learners publish
            what they have done by then.

    Raises:
        RunFailed: If the run fails or is too short to tell.
    """
    # The files lie beside the run directory, which only the run itself may make.
    config_path, log_path = run_dir.with_suffix(".yaml"), run_dir.with_suffix(".log")
    write_document(config.model_dump(mode="json"), config_path)
    arguments = ["launch", str(config_path), "--run-dir", str(run_dir), "--json"]
    arguments += ["--learners", str(num_learners), "--code", code_directory()]
    process = Child(MAIN, arguments, log=log_path, dies_with_parent=False)
    watch = _Watch(run_dir / JOURNAL, num_learners=num_learners)
    try:
        _attend(process, watch, run_seconds=run_seconds)
    finally:
        # The process is ended even if the measurement is interrupted.
        _end(process)
    # The stop has committed the partial assignments of the learners.
    watch.look()
    # Code 0 means that the run reached its own limits before the stop.
    if (code := process.wait()) not in (0, STOPPED):
        raise _failure(f"ended with code {code}", process)
    if not watch.commits:
        raise _failure("trained nothing", process)
    return committed_rate(watch.commits, num_learners=num_learners)


def _attend(process: Child, watch: _Watch, *, run_seconds: float) -> None:
    """Look for commits, stop the run at its time, and return when it has ended or is overdue."""
    # The first deadline is for the first commit, the second one for the end after the stop.
    deadline_s = time.perf_counter() + START_S
    told = False
    while process.poll() is None and time.perf_counter() < deadline_s:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_EVERY_S)
        watch.look()
        if not told and watch.commits:
            stop_s = min(span[0][0] for span in watch.commits.values()) + run_seconds
            deadline_s = stop_s + END_S
            if time.perf_counter() >= stop_s:
                told = True
                process.terminate()


def _end(process: Child) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    process.close()


def _failure(what: str, process: Child) -> RunFailed:
    return RunFailed(f"the measured run {what}: {' '.join(process.last_lines())}")
