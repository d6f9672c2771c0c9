"""Runs of `tests/assets/faulty.py`: small, from the command line or in this process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from arena.environment_spec import EnvironmentRequest
from arena.envs.inspect import inspect_environment
from experiments.faults.killing import counters
from populations.audit.verify import verify_run
from populations.config.run_config import validate_config
from populations.config.run_file import new_run_file
from populations.controller.server.run_directory import OpenRun, create_run
from populations.controller.server.server import Server, utc_now
from populations.controller.state.leases import Patience
from populations.launchers.make import make_launcher
from populations.records.aggregates import Row
from populations.records.rows import EventRow
from populations.storage.journal import JournalReader
from populations.storage.lock import RunLock
from tests.faults.workers import ASSETS as ASSETS
from tests.integration.conftest import ARENA
from tests.support import wait_until

IMPATIENT = Patience(
    heartbeat_s=0.1, liveness_s=4.0, stall_s=3.0, backoff_s=(0.05, 1.0), grace_s=2.0
)
END_S = 120.0

LEAVING_S = 2.0
"""How long after the controller a learner may still be there."""


def document(fault: object = "", **sections: object) -> dict[str, object]:
    """A configuration of two tiny policies that goes on for ever; kwargs of the environment too."""
    names = ("share", "once", "started")
    kwargs = {name: sections.pop(name) for name in names if name in sections}
    return {
        "environment": {
            "id": "faulty:Rounds",
            "kwargs": {"fault": fault, **kwargs},
            "num_envs": 4,
            "num_env_workers": sections.pop("num_env_workers", 0),
        },
        "populations": {
            "player": {
                "size": 2,
                "network": {"hidden_sizes": [8]},
                "hyperparameters": {"rollout_length": 8, "num_epochs": 1, "num_minibatches": 1},
                "search_space": {"learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}},
            }
        },
        "assignment": {"agent_steps": 256},
        "ghosts": {"every_agent_steps": 100_000},
        "pbt": {"exploit": "none"},
        "evaluation": {"share": 0.2},
        "metrics": {"sinks": []},
        "learners": 1,
        "stop": {"agent_steps_per_policy": 100_000_000},
        **sections,
    }


def launch(
    run: Path,
    config: Mapping[str, object] | None,
    *,
    failpoints: str = "",
    more: Sequence[str] = (),
) -> subprocess.Popen[str]:
    """Start `arena launch`, or resume where there is no configuration."""
    arguments: list[str] = ["--resume", *more]
    if config is not None:
        path = run.parent / f"{run.name}.yaml"
        path.write_text(json.dumps(config))  # JSON is valid YAML
        arguments = [str(path)]
    environment = {**os.environ}
    if failpoints:
        environment |= {"ARENA_TESTING": "1", "ARENA_FAILPOINTS": failpoints}
    return subprocess.Popen(
        [*ARENA, "launch", *arguments, "--run-dir", str(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=ASSETS,
        env=environment,
    )


def run_with_kills(run: Path, config: Mapping[str, object], commits: Sequence[int]) -> None:
    """Run to the end in several epochs: SIGKILL comes before the n-th commit of all but the last.

    Args:
        run: Run directory.
        config: Configuration.
        commits: n, epoch by epoch.
    """
    given: Mapping[str, object] | None = config
    for n in commits:
        process = launch(run, given, failpoints=f"controller.before_commit=kill@{n}")
        _, error = process.communicate(timeout=END_S)
        assert process.returncode == -signal.SIGKILL, error
        check_left(run)
        given = None
    process = launch(run, None)
    _, error = process.communicate(timeout=END_S)
    assert process.returncode == 0, error


def finished(run: Path) -> int:
    """Assignments that were committed; 0 where there is no run yet."""
    row = counters(run)
    return 0 if row is None else row.assignments_finished


def events(run: Path, *kinds: str) -> list[EventRow]:
    """Those of some kinds, in order."""
    with JournalReader(run / "journal.db") as reader:
        return [row for row in reader.events() if row.kind in kinds]


def learners_of(run: Path) -> list[psutil.Process]:
    """Processes of a run's learners."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        ours = "arena.learners.process" in line and any(str(run) in part for part in line)
        if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def check_left(run: Path) -> None:
    """Whatever ended the run: nobody is left behind, and no invariant is broken."""
    wait_until(lambda: not learners_of(run), timeout_s=LEAVING_S)
    assert verify_run(run).faults == []


@dataclass
class Watched:
    """A controller in this process, with learner processes, until a test has seen enough."""

    run: Path
    server: Server
    events: list[EventRow] = field(default_factory=list)
    done: Callable[[Sequence[EventRow]], bool] = lambda events: False

    def note(self, rows: Sequence[Row]) -> None:
        """What was committed."""
        self.events += [row for row in rows if isinstance(row, EventRow)]
        if self.done(self.events):
            self.server.request_stop("seen enough")

    def of(self, *kinds: str) -> list[EventRow]:
        """Events of some kinds."""
        return [event for event in self.events if event.kind in kinds]


@contextlib.contextmanager
def served(
    run: Path, config: Mapping[str, object], *, patience: Patience = IMPATIENT
) -> Iterator[Watched]:
    """Make a run and its controller; the caller lets it serve."""
    settings = validate_config(config)
    spec = inspect_environment(
        EnvironmentRequest(
            settings.environment.id,
            kwargs=settings.environment.kwargs,
            launch_directory=str(ASSETS),
        )
    )
    run_file = new_run_file(settings, spec, name="test", launch_directory=str(ASSETS))
    run.mkdir()
    with RunLock(run):
        create_run(run, run_file, initial_weights={}, utc=utc_now())
        with (
            OpenRun(run, patience=patience) as opened,
            make_launcher(opened) as (transport, launcher, _),
        ):
            watched: list[Watched] = []
            server = Server(
                run_dir=run,
                state=opened.state,
                journal=opened.journal,
                transport=transport,
                launcher=launcher,
                on_commit=lambda rows: watched[0].note(rows),
            )
            watched.append(Watched(run=run, server=server))
            yield watched[0]
