"""Learners as real processes over real sockets."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from arena.config import EnvironmentConfig
from arena.learners.spawn import spawn_learner
from arena.processes import child
from arena.processes.parent import Child
from arena.wire.messages import (
    Finished,
    Goodbye,
    Heartbeat,
)
from arena.wire.zeromq import ZmqControllerTransport
from tests.arena.learners.stub import (
    FINISH,
    TIMEOUT_S,
    UNTIL_STOPPED,
    ControllerEnd,
    assignment,
    setup,
    spawn_stub,
)
from tests.arena.wire.examples import RUN
from tests.support import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]

ROOT = Path(__file__).parents[3]


@dataclass
class Bench(ControllerEnd):
    """A controller's end over a real socket, and the processes that a test starts."""

    directory: Path = Path()
    processes: list[Child] = field(default_factory=list)

    def spawn(self, *, device: str | None = None) -> Child:
        process = spawn_stub(
            self.directory, self.transport.endpoint, populations=("a", "b"), device=device
        )
        self.processes.append(process)
        return process

    def log(self) -> str:
        return (self.directory / "logs" / "learner.log").read_text()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for ``-m tests.arena.learners.stub``
    with tempfile.TemporaryDirectory(prefix="l-", dir="/tmp") as directory:
        transport = ZmqControllerTransport(f"ipc://{directory}/s", run=RUN, epoch=1)
        bench = Bench(transport, directory=Path(directory))
        yield bench
        for process in bench.processes:
            process.kill_group()
        bench.transport.close(linger_s=0.0)


def test_a_process_works_and_ends_on_sigterm_with_a_goodbye(bench: Bench) -> None:
    process = bench.spawn()
    hello = bench.welcome()
    assert (hello.pid, hello.populations) == (process.pid, ("a", "b"))
    assert hello.device == "cpu"
    bench.send(assignment(FINISH))
    finished = bench.wait_for(Finished)
    assert finished.metrics == {"stub/threads": 1.0}
    bench.acknowledge(finished)
    assert process.poll() is None
    process.terminate()
    assert bench.wait_for(Goodbye).reason == "SIGTERM"
    wait_until(lambda: process.poll() is not None, timeout_s=TIMEOUT_S)
    assert process.poll() == 143
    assert "ends: SIGTERM" in bench.log()
    process.terminate()
    process.kill_group()
    assert process.poll() == 143


def test_a_learner_has_the_device_that_it_was_started_with(bench: Bench) -> None:
    bench.spawn(device="cuda:1")
    assert bench.welcome().device == "cuda:1"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_lets_the_result_be_delivered_first(bench: Bench, number: int) -> None:
    process = bench.spawn()
    bench.welcome()
    bench.send(assignment(UNTIL_STOPPED))
    bench.wait_for(Heartbeat, lambda beat: beat.progress > 0)
    os.kill(process.pid, number)
    finished = bench.wait_for(Finished)
    assert process.poll() is None
    bench.acknowledge(finished)
    bench.wait_for(Goodbye)
    wait_until(lambda: process.poll() == 128 + number, timeout_s=TIMEOUT_S)


@pytest.mark.slow
def test_a_learner_of_another_run_exits_with_2(bench: Bench) -> None:
    bench.transport.close(linger_s=0.0)
    bench.transport = ZmqControllerTransport(f"ipc://{bench.directory}/s", run="another", epoch=1)
    process = bench.spawn()
    wait_until(
        lambda: bench.transport.receive(0.02) == [] and process.poll() is not None,
        timeout_s=TIMEOUT_S,
    )
    assert process.poll() == 2
    assert f"this is the controller of run another, not of {RUN}" in bench.log()


def test_a_learner_is_fenced_by_the_next_controller_of_its_run(bench: Bench) -> None:
    process = bench.spawn()
    bench.welcome()
    bench.send(assignment(UNTIL_STOPPED))
    bench.wait_for(Heartbeat, lambda beat: beat.progress > 0)
    bench.transport.close(linger_s=0.0)
    bench.transport = ZmqControllerTransport(f"ipc://{bench.directory}/s", run=RUN, epoch=2)
    wait_until(
        lambda: bench.transport.receive(0.02) == [] and process.poll() is not None,
        timeout_s=TIMEOUT_S,
    )
    assert process.poll() == 75
    assert "fenced: epoch 1 is over" in bench.log()


@pytest.mark.parametrize(
    ("text", "endpoint", "complaint"),
    [
        (None, "ipc:///nowhere/s", "is no learner's setup"),
        (setup().model_dump_json(), "tcp://10.0.0.1:5555", "must be on loopback"),
    ],
)
def test_a_learner_that_cannot_start_exits_with_2_and_says_why(
    tmp_path: Path, text: str | None, endpoint: str, complaint: str
) -> None:
    path = tmp_path / "setup.json"
    if text is not None:
        path.write_text(text)
    log_path = tmp_path / "learner.log"
    process = spawn_learner(path, endpoint, populations=(), log_path=log_path)
    wait_until(lambda: process.poll() is not None, timeout_s=TIMEOUT_S)
    assert process.poll() == 2
    assert complaint in log_path.read_text()


@pytest.mark.slow
def test_a_learner_and_its_ranks_give_up_priority(tmp_path: Path) -> None:
    path = tmp_path / "setup.json"
    environment = EnvironmentConfig(id="none", num_envs=4)
    ranks = setup().model_copy(update={"cores": 3, "environment": environment})
    path.write_text(ranks.model_dump_json())
    nice = min(psutil.Process().nice() + 5, 19)
    # No controller answers at this endpoint, so the learner waits.
    endpoint, log_path = f"ipc://{tmp_path}/nobody", tmp_path / "learner.log"
    with spawn_learner(path, endpoint, populations=(), log_path=log_path, nice=5) as process:
        learner = psutil.Process(process.pid)

        def is_ready() -> bool:
            below = learner.children(recursive=True)
            helpers = [one for one in below if "arena.learners.rank" in one.cmdline()]
            return [niceness(one) for one in (learner, *helpers)] == [(nice, nice)] * 3

        wait_until(is_ready, timeout_s=TIMEOUT_S)


def niceness(process: psutil.Process) -> tuple[int, int]:
    """That of a process and of its session, where sessions have one."""
    try:
        session = Path(f"/proc/{process.pid}/autogroup").read_text()
    except OSError:
        return process.nice(), process.nice()
    return process.nice(), int(session.rpartition("nice")[2])


def test_another_that_changes_a_session_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[int] = [errno.EAGAIN, errno.EAGAIN, 0, errno.EPERM, 0]
    written: list[str] = []

    class Autogroup:
        def write_text(self, text: str, **_: object) -> None:
            if number := answers.pop(0):
                raise OSError(number, os.strerror(number))
            written.append(text)

    monkeypatch.setattr(child, "AUTOGROUP", Autogroup())
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setenv(child.SESSION_NICE, "7")
    child.give_way_alike()
    assert (written, len(answers)) == (["7"], 2)
    # Without the permission the process keeps its priority.
    child.give_way_alike()
    assert (written, len(answers)) == (["7"], 1)
    monkeypatch.delenv(child.SESSION_NICE)
    child.give_way_alike()
    assert len(answers) == 1
