"""Runs that begin well, fall into trouble and get out of it: the harness of `test_whose_fault`.

Whatever the trouble is, no policy is changed by it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from arena.checkpoints.files import verify_directory
from arena.types import PolicyId
from arena.wire.messages import Train
from populations.records.rows import AssignmentRow, CheckpointRow, EventRow
from populations.records.tables import Tables
from populations.storage.journal import JournalReader
from populations.storage.store import newest_last
from tests.faults.runs import ASSETS, check_left, learners_of
from tests.faults.troubles import Trouble

FLAG = "ARENA_TROUBLE"
"""As in `tests/assets/trouble.py`, which only the command can import."""

HASTY = (sys.executable, "-m", "tests.faults.hasty")
WAIT_S = 120.0
LEAVE_S = 60.0
LOOK_S = 0.1
LOG_BYTES = 2_000_000
"""No process's log is longer, whatever it prints."""
WORKED = 3
"""Assignments that each policy finishes before the trouble, after it, and beside it."""

CHANGED = (
    *("quarantined", "learning_rate_halved", "exploited", "explored", "reset", "immigrated"),
    "exploit_abandoned",
)
"""Events of policies that are changed: with ``pbt.exploit: none`` there are none of them."""


@dataclass
class Run:
    """A run of the command `arena launch`, which goes on until a test ends it.

    Attributes:
        directory: The run's.
        flag: File that names the trouble.
        process: The newest of the command.
    """

    directory: Path
    flag: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self, config: Mapping[str, object] | None = None) -> None:
        """Launch it, or resume where there is no configuration."""
        arguments = ["--resume"]
        if config is not None:
            path = self.directory.parent / "config.yaml"
            path.write_text(json.dumps(config))  # JSON is valid YAML
            arguments = [str(path)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*HASTY, "launch", *arguments, "--run-dir", str(self.directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                cwd=ASSETS,
                env={**os.environ, FLAG: str(self.flag), "PYTHONPATH": str(ASSETS.parents[1])},
            )

    @property
    def log(self) -> Path:
        """What the command says."""
        return self.directory.parent / "launch.log"

    @property
    def text(self) -> str:
        """What the user has read so far: the command's lines, and what events say."""
        told = [
            json.dumps([row.kind, row.subject, row.data])
            for row in self.events()
            if not row.kind.endswith("_assigned")
        ]
        return "\n".join([self.log.read_text(), *told])

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """End it as a user would, with everything saved."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(LEAVE_S) == 143, self.log.read_text()

    def kill_learners(self) -> None:
        """End its learners, which come again."""
        for learner in learners_of(self.directory):
            learner.kill()

    def wait_for(self, condition: Callable[[], object], *, timeout_s: float = WAIT_S) -> None:
        """Wait while the run goes on."""
        assert self.process is not None
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {self.text}"
            # The wait leaves the processor to the run between two reads of the journal.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LOOK_S)
                raise AssertionError(f"it ended: {self.text}")

    def tables(self) -> Tables:
        with JournalReader(self.directory / "journal.db") as reader:
            return reader.load()

    def events(self, *kinds: str) -> list[EventRow]:
        with JournalReader(self.directory / "journal.db") as reader:
            return reader.events(kinds=kinds or None)

    def trained(self) -> list[AssignmentRow]:
        """Finished assignments that have trained somebody, in order."""
        with JournalReader(self.directory / "journal.db") as reader:
            rows = reader.assignments(statuses=["finished"], kind="train")
        return [row for row in rows if row.agent_steps]

    def have_trained(self, *, since: int = 0) -> Callable[[], bool]:
        """Whether each active policy has finished some assignments after a number of all."""

        def condition() -> bool:
            if not (self.directory / "journal.db").exists():
                return False
            done = [p for row in self.trained()[since:] for p in trainees(row)]
            active = (row for row in self.tables().policies.values() if row.state == "active")
            return all(done.count(row.policy) >= WORKED for row in active)

        return condition


def trainees(row: AssignmentRow) -> tuple[PolicyId, ...]:
    """The policies that an assignment trains."""
    assert isinstance(row.message, Train)
    return tuple(trainee.policy for trainee in row.message.trainees)


@contextlib.contextmanager
def running(directory: Path, config: Mapping[str, object]) -> Iterator[Run]:
    """A run whose policies have all trained; whatever a test finds out, it is over afterwards."""
    run = Run(directory=directory / "run", flag=directory / "trouble")
    try:
        run.start(config)
        run.wait_for(run.have_trained())
        yield run
    finally:
        if run.process is not None and run.is_running():
            # The second signal ends the run at once; a kill would leave its socket.
            for _ in range(2):
                run.process.send_signal(signal.SIGTERM)
            run.process.wait(LEAVE_S)


def begin(run: Run, trouble: Trouble) -> None:
    """Let it begin, for all of it at once."""
    told = run.flag.with_name("told")
    told.write_text(f"{trouble.name}\n{trouble.share}\n{trouble.whom}")
    told.replace(run.flag)
    if trouble.anew:
        run.kill_learners()


def suffer(run: Run, trouble: Trouble) -> None:
    """Fall into trouble, and out of it; the run is over afterwards, and all is well again."""
    began = len(run.trained())
    begin(run, trouble)
    if trouble.comes == "trains":
        run.wait_for(lambda: re.search(trouble.sentence, run.text))
        run.wait_for(run.have_trained(since=began))
    elif trouble.comes == "ends":
        assert run.process is not None
        assert run.process.wait(2 * WAIT_S) == 3, run.log.read_text()
    else:
        # A learner without descriptors may die of it. Then one pause names the death, and another
        # one names the trouble itself.
        run.wait_for(lambda: _pauses_name(run, trouble))
    assert re.search(trouble.sentence, run.text), run.text
    if trouble.comes == "ends":
        assert _pauses_name(run, trouble), run.text
    run.flag.unlink()
    if trouble.comes == "resumes":
        run.wait_for(run.have_trained(since=len(run.trained())))
    if run.is_running():
        run.stop()


def _pauses_name(run: Run, trouble: Trouble) -> bool:
    """Return whether a pause of the run names the trouble."""
    said = (json.dumps(event.data) for event in run.events("paused"))
    return any(re.search(trouble.sentence, text) for text in said)


def resume(run: Run) -> None:
    """Go on until every policy has trained again."""
    since = len(run.trained())
    run.start()
    run.wait_for(run.have_trained(since=since))
    run.stop()


def check_policies(run: Run, *, changed: Collection[PolicyId] = ()) -> None:
    """Nothing of any policy has changed but by its own training; no invariant is broken.

    Its weights are those of its own last finished assignment, byte for byte.

    Args:
        run: A run that is over.
        changed: Policies of which it may have.
    """
    check_left(run.directory)
    assert all(log.stat().st_size < LOG_BYTES for log in (run.directory / "logs").iterdir())
    tables = run.tables()
    assert not [row for row in run.events(*CHANGED) if row.subject not in changed]
    newest: dict[PolicyId, int] = {}
    for done in run.trained():
        newest |= dict.fromkeys(trainees(done), done.assignment_id)
    born = {row.subject: row.data for row in run.events("policy_created")}
    for policy, row in tables.policies.items():
        if policy in changed:
            continue
        assert (row.state, row.generation, row.rescues) == ("active", 0, 0)
        assert row.hyperparameters == born[policy]["hyperparameters"]
        assert row.checkpoint is not None
        checkpoint = tables.checkpoints[row.checkpoint]
        assert checkpoint.key == newest_of(tables, policy).key
        assert checkpoint.assignment_id == newest[policy]
        manifest = verify_directory(run.directory / checkpoint.key)
        assert (manifest.policy, manifest.weights_digest) == (policy, checkpoint.weights_digest)


def newest_of(tables: Tables, policy: PolicyId) -> CheckpointRow:
    """A policy's newest checkpoint that is intact."""
    own = (row for row in tables.checkpoints.values() if row.policy == policy)
    return max((row for row in own if row.state == "present"), key=newest_last)
