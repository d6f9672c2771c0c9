"""``python -m tests.faults.impatient RUN``: a real controller that soon takes a learner for lost.

What `arena launch` does, but for the controller's patience, which no configuration can change.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from arena.environment_spec import EnvironmentRequest
from arena.envs.inspect import inspect_environment
from experiments.faults.killing import TINY
from populations.config.run_config import load_config
from populations.config.run_file import new_run_file
from populations.controller.server.run_directory import OpenRun, create_run
from populations.controller.server.server import Server, utc_now
from populations.controller.state.leases import Patience
from populations.launchers.make import make_launcher
from populations.storage.lock import RunLock

LIVENESS_S = 1.5
ENDLESS = ("deterministic=false", "learners=2", "stop.agent_steps_per_policy=1000000000")


def main(run_dir: Path) -> int:
    """Start a run, serve it until a signal says stop."""
    config = load_config("rock_paper_scissors", [*TINY, *ENDLESS])
    here = str(Path.cwd())
    spec = inspect_environment(EnvironmentRequest(config.environment.id, launch_directory=here))
    run_file = new_run_file(config, spec, name="impatient", launch_directory=here)
    run_dir.mkdir()
    with RunLock(run_dir):
        create_run(run_dir, run_file, initial_weights={}, utc=utc_now())
        serve(run_dir)
    return 0


def serve(run_dir: Path) -> None:
    """The part of `arena launch` that has signals, sockets and processes."""
    patience = Patience(heartbeat_s=LIVENESS_S / 10.0, liveness_s=LIVENESS_S)
    with (
        OpenRun(run_dir, patience=patience) as run,
        make_launcher(run) as (transport, launcher, _),
    ):
        server = Server(
            run_dir=run_dir,
            state=run.state,
            journal=run.journal,
            transport=transport,
            launcher=launcher,
            sinks=run.sinks,
        )
        signal.signal(signal.SIGINT, lambda number, frame: server.request_stop("SIGINT"))
        server.run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
