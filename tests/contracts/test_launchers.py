"""What every launcher does. A new one is a new entry in ``LAUNCHERS``."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from arena.environment_spec import EnvironmentRequest
from arena.envs.inspect import inspect_environment
from arena.learners.state import EXIT_REFUSED
from arena.types import LearnerId
from arena.wire.messages import Hello, Refuse
from arena.wire.transport import ControllerTransport
from populations.config.run_config import validate_config
from populations.config.run_file import new_run_file
from populations.controller.server.run_directory import OpenRun, create_run
from populations.controller.server.server import utc_now
from populations.core import Launcher
from populations.launchers.inline import InlineLauncher
from populations.launchers.make import make_launcher
from populations.launchers.ray_launcher import FAILED_START, RayLauncher
from populations.storage.lock import RunLock
from tests.faults.runs import ASSETS, document
from tests.support import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.xdist_group("processes")]

TIMEOUT_S = 240.0
NUM_CPUS = 2

INLINE: dict[str, object] = {"launcher": "inline"}
LOCAL: dict[str, object] = {"launcher": "local", "learners": 2}
WITH_KEYS: dict[str, object] = {**LOCAL, "endpoint": "tcp://127.0.0.1:*"}
ON_RAY: dict[str, object] = {"launcher": "ray", "learners": 2}
LAUNCHERS = {"inline": INLINE, "local": LOCAL, "local with keys": WITH_KEYS, "ray": ON_RAY}
PROCESSES = [name for name in LAUNCHERS if name != "inline"]


@dataclass
class Launched:
    """A launcher, the transport of its learners, and what they said."""

    launcher: Launcher
    transport: ControllerTransport
    run: Path
    hellos: list[Hello] = field(default_factory=list)
    ended: list[tuple[int, int | None]] = field(default_factory=list)

    def hello(self, slot: int) -> Hello:
        """The Hello of the next learner in a slot."""
        found: list[Hello] = []

        def has_come() -> bool:
            self.turn()
            found[:] = [said for said in self.hellos if self.launcher.slot_of(said) == slot]
            return bool(found)

        wait_until(has_come, timeout_s=TIMEOUT_S)
        return found[0]

    def turn(self) -> None:
        """What the controller does all the time."""
        for _, message in self.transport.receive(0.05):
            if isinstance(message, Hello) and message not in self.hellos:
                self.hellos.append(message)
        self.ended += self.launcher.exited()


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A Ray with room for two learners, to which launchers of this process connect."""
    ray = pytest.importorskip("ray")
    ray.init(
        address="local",
        num_cpus=NUM_CPUS,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=80 * 2**20,
    )
    yield ray
    ray.shutdown()


@pytest.fixture
def launched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Launched]:
    settings = LAUNCHERS[request.param]
    if settings is ON_RAY:
        request.getfixturevalue("ray")
    config = validate_config(document(**settings))
    spec = inspect_environment(
        EnvironmentRequest(
            config.environment.id,
            kwargs=config.environment.kwargs,
            launch_directory=str(ASSETS),
        )
    )
    run = tmp_path / "run"
    run.mkdir()
    with ExitStack() as stack:
        stack.enter_context(RunLock(run))
        run_file = new_run_file(config, spec, name="test", launch_directory=str(ASSETS))
        create_run(run, run_file, initial_weights={}, utc=utc_now())
        opened = stack.enter_context(OpenRun(run))
        transport, launcher, _ = stack.enter_context(make_launcher(opened))
        yield Launched(launcher=launcher, transport=transport, run=run)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def key_of(pid: int) -> Path:
    """The file of a learner's key."""
    command = psutil.Process(pid).cmdline()
    return Path(command[command.index("--keys") + 1])


every_launcher = pytest.mark.parametrize("launched", LAUNCHERS, indirect=True)
every_process = pytest.mark.parametrize("launched", PROCESSES, indirect=True)
on_ray = pytest.mark.parametrize("launched", ["ray"], indirect=True)


@every_launcher
def test_a_learner_says_hello_from_its_slot_and_no_other_is_taken_for_it(
    launched: Launched,
) -> None:
    launched.launcher.start(0, ("player",))
    hello = launched.hello(0)
    assert hello.populations == ("player",)
    assert not launched.ended
    assert not launched.launcher.waiting()
    stranger = replace(hello, learner=LearnerId("stranger"), host="elsewhere")
    assert launched.launcher.slot_of(stranger) is None


@every_launcher
def test_one_that_is_killed_is_gone_and_not_reported(launched: Launched) -> None:
    launched.launcher.start(0, ())
    hello = launched.hello(0)
    launched.launcher.kill(0)
    assert launched.launcher.slot_of(hello) is None
    if hello.pid != os.getpid():
        wait_until(lambda: is_gone(hello.pid), timeout_s=TIMEOUT_S)
    launched.launcher.kill(0)
    launched.turn()
    launched.launcher.start(0, ())
    assert launched.hello(0) != hello
    assert not launched.ended


@every_launcher
def test_one_that_ends_is_reported_once_with_its_code(launched: Launched) -> None:
    launched.launcher.start(0, ())
    hello = launched.hello(0)
    launched.transport.send(hello.learner, Refuse(reason="it may go"))

    def has_ended() -> bool:
        launched.turn()
        return bool(launched.ended)

    wait_until(has_ended, timeout_s=TIMEOUT_S)
    assert launched.launcher.slot_of(hello) is None
    launched.launcher.start(0, ())
    assert launched.hello(0) != hello
    # A thread has no exit code.
    code = 0 if isinstance(launched.launcher, InlineLauncher) else EXIT_REFUSED
    assert launched.ended == [(0, code)]


@every_process
def test_one_that_is_killed_from_outside_is_reported_with_the_signal(launched: Launched) -> None:
    for slot in (0, 1):
        launched.launcher.start(slot, ())
    pids = [launched.hello(slot).pid for slot in (0, 1)]
    os.kill(pids[1], signal.SIGKILL)

    def has_ended() -> bool:
        launched.turn()
        return bool(launched.ended)

    wait_until(has_ended, timeout_s=TIMEOUT_S)
    assert launched.ended == [(1, -signal.SIGKILL)]
    assert not is_gone(pids[0])


@every_launcher
def test_a_start_in_an_occupied_slot_kills_the_predecessor(launched: Launched) -> None:
    launched.launcher.start(0, ())
    first = launched.hello(0)
    launched.launcher.start(0, ())
    assert launched.launcher.slot_of(first) is None
    assert launched.hello(0).learner != first.learner
    if first.pid != os.getpid():
        wait_until(lambda: is_gone(first.pid), timeout_s=TIMEOUT_S)
    assert not launched.ended


@every_launcher
def test_close_leaves_nothing(launched: Launched) -> None:
    launched.launcher.start(0, ())
    pid = launched.hello(0).pid
    launched.launcher.close()
    assert pid == os.getpid() or is_gone(pid)
    launched.launcher.close()
    assert not launched.launcher.exited()


@every_process
def test_one_that_is_stuck_writes_its_stacks_before_it_is_killed(launched: Launched) -> None:
    launched.launcher.start(0, ())
    pid = launched.hello(0).pid
    stacks = next(
        Path(opened.path)
        for opened in psutil.Process(pid).open_files()
        if opened.path.endswith("learner-0.txt")
    )
    launched.launcher.kill(0, dump_stacks=True)

    def has_gone() -> bool:
        launched.turn()
        return is_gone(pid)

    wait_until(has_gone, timeout_s=TIMEOUT_S)
    assert "most recent call first" in stacks.read_text()
    assert not launched.ended


@on_ray
def test_where_a_cluster_has_no_room_a_learner_waits_until_there_is(launched: Launched) -> None:
    for slot in (0, 1):
        launched.launcher.start(slot, ())
    first = launched.hello(0)
    launched.hello(1)
    # Only one actor is pending at a time, because Ray does not keep the order of requests.
    launched.launcher.start(2, ())
    assert list(launched.launcher.waiting()) == [2]
    # The actor is still pending later.
    launched.turn()
    assert list(launched.launcher.waiting()) == [2]
    launched.launcher.kill(0)
    assert launched.hello(2).pid != first.pid
    assert not launched.launcher.waiting()
    # A pending actor can be killed, too.
    launched.launcher.start(0, ())
    assert list(launched.launcher.waiting()) == [0]
    launched.launcher.kill(0)
    assert not launched.launcher.waiting()
    assert not launched.ended


@on_ray
def test_one_whose_actor_is_gone_is_lost_with_its_node(launched: Launched) -> None:
    launched.launcher.start(0, ())
    learner = psutil.Process(launched.hello(0).pid)
    files = key_of(learner.pid).parent
    # Two guards stand between the actor and the learner.
    actor = learner.parents()[2]
    actor.kill()

    def has_ended() -> bool:
        launched.turn()
        return bool(launched.ended)

    wait_until(has_ended, timeout_s=TIMEOUT_S)
    assert launched.ended == [(0, None)]
    wait_until(lambda: is_gone(learner.pid), timeout_s=TIMEOUT_S)
    # The learner's files are left, and the next actor there reuses their place.
    (files / "left").touch()
    launched.launcher.start(0, ())
    assert key_of(launched.hello(0).pid).parent == files
    assert not (files / "left").exists()
    launched.launcher.kill(0)

    def has_gone() -> bool:
        launched.turn()
        return not files.exists()

    wait_until(has_gone, timeout_s=TIMEOUT_S)


@on_ray
def test_one_that_cannot_be_started_on_its_node_has_failed_to_start(launched: Launched) -> None:
    launcher = launched.launcher
    assert isinstance(launcher, RayLauncher)
    launcher._logs = launched.run / "not" / "there"
    launcher.start(0, ())

    def has_ended() -> bool:
        launched.turn()
        return bool(launched.ended)

    wait_until(has_ended, timeout_s=TIMEOUT_S)
    assert launched.ended == [(0, FAILED_START)]


@on_ray
def test_only_text_crosses_ray_and_no_key_stays_in_a_file(
    launched: Launched, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = launched.launcher
    assert isinstance(launcher, RayLauncher)
    given: dict[str, object] = {}
    make = launcher._make_actor.remote

    class Noted:
        """Ray's, with a look at what it is given."""

        @staticmethod
        def remote(**arguments: object) -> object:
            given.update(arguments)
            return make(**arguments)

    monkeypatch.setattr(launcher, "_make_actor", Noted)
    launcher.start(0, ("player",))
    pid = launched.hello(0).pid
    assert {type(value) for value in given.values()} == {str}
    key, command = key_of(pid), psutil.Process(pid).cmdline()
    assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert str(given["key"]) not in " ".join(command)
    assert sorted(path.name for path in (launched.run / "keys").iterdir()) == ["controller.key"]
    launched.transport.send(launched.hellos[0].learner, Refuse(reason="fenced: it may go"))

    def has_ended() -> bool:
        launched.turn()
        return bool(launched.ended)

    wait_until(has_ended, timeout_s=TIMEOUT_S)
    assert not key.parent.exists()
