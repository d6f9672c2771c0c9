"""Real runs of real processes that are killed at will."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from arena.learners.spawn import HELPERS
from arena.learners.spawn import MODULE as LEARNER
from arena.processes.parent import STACKS
from experiments.commands import COMMAND
from experiments.faults.simulators import VARIABLE, simulators
from populations.audit.verify import verify_run
from populations.errors import StorageError
from populations.records.rows import RunRow
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader

TINY: tuple[str, ...] = (
    "deterministic=true",
    "environment.num_envs=32",
    "populations.player.size=3",
    "populations.player.network.hidden_sizes=[8]",
    "populations.player.hyperparameters.rollout_length=4",
    "populations.player.hyperparameters.num_epochs=1",
    "populations.player.hyperparameters.num_minibatches=1",
    "assignment.agent_steps=256",
    "ghosts.every_agent_steps=512",
    "pbt.ready_agent_steps=512",
    "pbt.warm_up_agent_steps=512",
    "pbt.min_matches=1",
    "pbt.min_rating_gap=0",
    "pbt.confidence=0",
    "pbt.fraction=0.5",
    "pbt.reference=false",
    "evaluation.share=0.4",
    "checkpoints.keep=1",
    "metrics.sinks=[jsonl]",
    "stop.duration_s=null",
    "stop.agent_steps_per_policy=3000",
    "seed=3",
)
"""Rock-paper-scissors that exploits, freezes and deletes at once, and is over in seconds."""

GONE_S = 2.0
"""Seconds that a dead controller's learners may live."""

ANEW_S = 300.0
"""Longest wait for a process in place of one that was killed."""

POLL_S = 0.01
Victim = Literal["learner", "controller", "both", "helper"]
"""``helper``: a process that works for a learner, such as one of its ranks."""

VICTIMS: tuple[Victim, ...] = ("learner", "controller", "both")


def processes_of(run: Path) -> list[psutil.Process]:
    """Return the learner processes of a run, of any parent."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        is_alive = process.info["status"] != psutil.STATUS_ZOMBIE
        if is_alive and LEARNER in line and any(str(run) in part for part in line):
            found.append(process)
    return found


def helpers_of(run: Path) -> list[psutil.Process]:
    """Return the processes that work for learners of a run, of any parent: ranks, and steppers of
    environments.
    """
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        is_alive = process.info["status"] != psutil.STATUS_ZOMBIE
        if is_alive and not set(HELPERS).isdisjoint(process.info["cmdline"] or []):
            # The process has just ended, or belongs to another user.
            with contextlib.suppress(psutil.Error):
                # The command line names no run, but the helper's stack traces go to the run's logs.
                if str(run) in process.environ().get(STACKS, ""):
                    found.append(process)
    return found


def controller_of(command: int) -> psutil.Process:
    """Return the process that serves, of a command that was started with this process id."""
    # Up to two guard processes stand between the command and the controller.
    process = psutil.Process(command)
    for _ in range(2):
        process = next(iter(process.children()), process)
    return process


def counters(run: Path) -> RunRow | None:
    """Return a run's counters; None as long as there is no journal."""
    if not (run / JOURNAL).exists():
        return None
    with JournalReader(run / JOURNAL) as reader:
        return reader.load(pairs=()).run


def agent_steps(run: Path) -> int:
    """Return the agent steps of a run's finished assignments."""
    row = counters(run)
    return 0 if row is None else row.agent_steps


@dataclass(slots=True)
class KilledRun:
    """A run that goes on whatever is done to it. Owned by one thread.

    Attributes:
        run: Its directory.
        log: File that its controllers write to.
        environment: Variables for its processes, beside this process's own.
        prefix: Words before the command of a controller.
        process: The controller now.
        num_kills: Processes that were killed, by kind of victim.
        num_resumes: Controllers that went on where another one stood.
        num_simulators: Simulators that ran just before the kills, all kills together.
        slowest_s: The longest that learners outlived their controller.
        faults: Faults that `verify_run` found between each kill and its resume.
        num_verified: Checkpoints and ghosts that were read back for that, all looks together.
        num_games: Evaluation games that were kept, all looks together.
        num_that_hold: Those of them that kept the weights of their players.
    """

    run: Path
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()
    process: subprocess.Popen[bytes] | None = None
    num_kills: dict[Victim, int] = field(default_factory=dict)
    num_resumes: int = 0
    num_simulators: int = 0
    slowest_s: float = 0.0
    faults: list[str] = field(default_factory=list)
    num_verified: int = 0
    num_games: int = 0
    num_that_hold: int = 0

    def start(self, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Start a controller: ``launch`` with these arguments."""
        command = [*self.prefix, *COMMAND, "launch", *arguments, "--run-dir", str(self.run)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.environment, **(environment or {})},
            )

    def resume(self, *, environment: Mapping[str, str] | None = None) -> None:
        """Start a controller where another one stood."""
        self.start("--resume", environment=environment)
        self.num_resumes += 1

    def is_over(self) -> bool:
        """Return whether the controller has ended by itself."""
        return self.process is None or self.process.poll() is not None

    def wait(self, *, timeout_s: float) -> int:
        """Wait for the controller's end, and return its exit code."""
        assert self.process is not None, "start comes first"
        return self.process.wait(timeout=timeout_s)

    def await_finished(self, goal: int, *, timeout_s: float = 600.0) -> bool:
        """Wait until so many assignments are committed; False if the run ended before."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            is_over = self.is_over()
            row = counters(self.run)
            if row is not None and row.assignments_finished >= goal:
                return True
            if is_over:
                return False
            time.sleep(POLL_S)
        raise TimeoutError(f"{self.run}: {goal} assignments took over {timeout_s} s")

    def kill(self, victim: Victim, rng: random.Random) -> None:
        """Kill at once; if the controller was among them, see that all are gone, and go on."""
        self.num_kills[victim] = self.num_kills.get(victim, 0) + 1
        self.num_simulators += len(simulators(self.token))
        if victim == "helper":
            self._kill_helper(rng)
        elif victim != "controller":
            self._kill_learner(rng)
        if victim in ("controller", "both"):
            assert self.process is not None, "start comes first"
            self.process.kill()
            self.process.wait()
            self.await_nobody()
            self.verify()
            self.resume()

    def _kill_learner(self, rng: random.Random) -> None:
        """Kill a learner, and see that all that it started is gone."""
        learner = rng.choice(self._await_some(processes_of))
        # Orphans are adopted by the learner's guard, so its descendants include them.
        guard = learner.parent()
        started = [] if guard is None else guard.children(recursive=True)
        learner.kill()
        _, left = psutil.wait_procs(started, timeout=GONE_S)
        if left:
            raise TimeoutError(f"{left} outlived their learner")

    def _kill_helper(self, rng: random.Random) -> None:
        """Kill a helper, and wait until its learner has started another one."""
        helper = rng.choice(self._await_some(helpers_of))
        learner = next(one for one in helper.parents() if LEARNER in one.cmdline())
        helper.kill()
        deadline_s = time.monotonic() + ANEW_S
        # The learner may also end: after two failures in a row its controller dismisses it.
        while learner.is_running() and not self._works_for(learner, but=helper):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{learner} has started no other helper")
            time.sleep(POLL_S)

    def _works_for(self, learner: psutil.Process, *, but: psutil.Process) -> bool:
        """Return whether a learner has a helper, but for one."""
        with contextlib.suppress(psutil.NoSuchProcess):
            below = {*learner.children(recursive=True)} - {but}
            return not below.isdisjoint(helpers_of(self.run))
        return False

    def _await_some(self, which: Callable[[Path], list[psutil.Process]]) -> list[psutil.Process]:
        """Wait for one, and return all: another may have been killed a moment ago."""
        deadline_s = time.monotonic() + ANEW_S
        while not (found := which(self.run)):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self.run} has none of {which.__name__}")
            time.sleep(POLL_S)
        return found

    def await_nobody(self) -> None:
        """Note how long the learners of a dead controller live, and what they started.

        Raises:
            TimeoutError: If that is too long.
        """
        started_s = time.monotonic()
        while left := self.left():
            lived_s = time.monotonic() - started_s
            if lived_s > GONE_S:
                raise TimeoutError(f"{[p.pid for p in left]} outlived their controller")
            time.sleep(POLL_S)
        self.slowest_s = max(self.slowest_s, time.monotonic() - started_s)

    def left(self) -> list[psutil.Process]:
        """Return processes of this run's learners, of their helpers and of environments."""
        return processes_of(self.run) + helpers_of(self.run) + simulators(self.token)

    @property
    def token(self) -> str:
        """Return what the simulators of this run are known by; empty: it has none."""
        return self.environment.get(VARIABLE, "")

    def verify(self) -> None:
        """Check all that the directory can show, as `arena verify` does."""
        try:
            self.faults += verify_run(self.run).faults
            with JournalReader(self.run / JOURNAL) as reader:
                tables = reader.load(pairs=())
        except StorageError as error:
            self.faults.append(str(error))
            return
        present = [row for row in tables.checkpoints.values() if row.state == "present"]
        self.num_verified += len(present) + len(tables.ghosts)
        self.num_games += len(tables.games)
        self.num_that_hold += sum(game.holds for game in tables.games.values())


@contextlib.contextmanager
def killed_run(
    directory: Path,
    *,
    environment: Mapping[str, str] | None = None,
    name: str = "run",
    prefix: Sequence[str] = (),
) -> Iterator[KilledRun]:
    """Yield a run in a directory; nothing of it is alive afterwards."""
    run = KilledRun(
        run=directory / name,
        log=directory / f"{name}.log",
        environment=environment or {},
        prefix=prefix,
    )
    try:
        yield run
    finally:
        if run.process is not None and run.process.poll() is None:
            run.process.kill()
            run.process.wait()
        for process in run.left():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def end_on_signals() -> None:
    """Let SIGTERM end this process as Ctrl-C does, so that what it has started ends with it."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # A shell ignores SIGINT for background jobs, and runs, which are stopped by it, would inherit
    # that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
