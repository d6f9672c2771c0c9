"""Two controllers want one run directory: one gets it, the other says who has it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from arena.errors import AddressInUse
from arena.wire.address import default_endpoint, remove_socket
from arena.wire.keys import KEYS
from experiments.faults.killing import processes_of
from populations.config.run_config import validate_config
from populations.config.run_file import new_run_file
from populations.controller.server.run_directory import OpenRun, create_run
from populations.controller.server.server import utc_now
from populations.errors import RunInUse
from populations.launchers.make import make_launcher
from populations.storage.lock import RunLock
from tests.faults.golden import NEWEST, copy_of
from tests.faults.runs import finished
from tests.integration.conftest import Command, arena, launch_arguments, start  # noqa: F401
from tests.populations.controller.simulated import DUEL, duel_spec
from tests.support import end_process, tables_of, wait_until
from tools.terminal.exit_codes import exit_code

ENDLESS = "stop.agent_steps_per_policy=1000000000"


def race(run: Path, arguments: Sequence[str | Path], *, codes: tuple[int, ...]) -> None:
    """Start the same command twice; one is refused, the other works until it is told to stop."""
    both = [start(arguments) for _ in range(2)]
    try:
        wait_until(lambda: any(p.poll() is not None for p in both), timeout_s=60.0)
        loser, winner = sorted(both, key=lambda process: process.poll() is None)
        _, err = loser.communicate()
        assert loser.returncode in codes, err
        before = finished(run)
        wait_until(lambda: finished(run) > before, timeout_s=60.0)
        assert winner.poll() is None
        winner.send_signal(signal.SIGINT)
        out, err = winner.communicate(timeout=60)
        assert winner.returncode == 130, (out, err)
    finally:
        for process in both:
            end_process(process)
    wait_until(lambda: not processes_of(run), timeout_s=5.0)


@pytest.mark.timeout(180)
def test_two_launches_at_once(tmp_path: Path, arena: Command) -> None:  # noqa: F811
    run = tmp_path / "run"
    # The other launch finds the directory locked (4), or the run already created (2).
    race(run, launch_arguments(run, ENDLESS, "--learners", "1"), codes=(2, 4))
    assert tables_of(run).run.epoch == 1
    arena("verify", run)


@pytest.mark.timeout(180)
def test_two_resumes_at_once(tmp_path: Path, arena: Command) -> None:  # noqa: F811
    run = copy_of(NEWEST, tmp_path)
    epoch = tables_of(run).run.epoch
    race(run, ["launch", "--resume", "--run-dir", run, ENDLESS], codes=(4,))
    assert tables_of(run).run.epoch == epoch + 1
    arena("verify", run)


def make_run(run: Path, **sections: object) -> None:
    """A run without an environment: nothing is started in these tests."""
    config = validate_config({**DUEL, "metrics": {"sinks": []}, **sections})
    run_file = new_run_file(config, duel_spec(), name="test", launch_directory=".")
    run.mkdir()
    create_run(run, run_file, initial_weights={}, utc=utc_now())


def test_a_tcp_port_in_use_is_named_with_its_owner(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        make_run(tmp_path / "run", endpoint=f"tcp://127.0.0.1:{port}")
        with OpenRun(tmp_path / "run") as run, pytest.raises(AddressInUse) as caught:
            make_launcher(run).__enter__()
    assert f"tcp://127.0.0.1:{port}" in str(caught.value)
    assert f"by process {os.getpid()} " in str(caught.value)
    assert exit_code(caught.value) == 4


def test_a_run_that_is_live_is_not_started_again(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with (
        RunLock(tmp_path / "run"),
        OpenRun(tmp_path / "run") as run,
        make_launcher(run) as (transport, _, _),
    ):
        with pytest.raises(RunInUse, match=f"in use by process {os.getpid()}") as locked:
            RunLock(tmp_path / "run")
        assert exit_code(locked.value) == 4
        # A copy of the directory has another lock but the same socket.
        with pytest.raises(AddressInUse, match=f"is live, process {os.getpid()}") as copied:
            make_launcher(run).__enter__()
        assert exit_code(copied.value) == 4
        assert Path(transport.endpoint.removeprefix("ipc://")).is_socket()
    assert not Path(transport.endpoint.removeprefix("ipc://")).exists()


def test_where_the_controllers_key_is_lost_it_is_said_what_to_copy_again(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    make_run(run_dir, endpoint="tcp://127.0.0.1:*", remote_learners=1, learners=1)
    told: list[str] = []

    def open_once() -> None:
        with OpenRun(run_dir) as run, make_launcher(run, notify=told.append):
            pass

    open_once()
    open_once()
    assert told == []
    (run_dir / KEYS / "controller.key").unlink()
    open_once()
    (notice,) = told
    assert "learner-0, remote-0 are made anew; files copied elsewhere must be copied" in notice


def test_a_socket_that_a_killed_controller_left_is_taken_away(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with OpenRun(tmp_path / "run") as run:
        endpoint = default_endpoint(run.run_file.run)
        path = Path(endpoint.removeprefix("ipc://"))
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
        try:
            with make_launcher(run) as (transport, _, _):
                assert transport.endpoint == endpoint
        finally:
            remove_socket(endpoint)
