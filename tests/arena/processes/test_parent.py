"""Children: what they say, when they are late, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

from arena.processes import parent
from arena.processes.bounded_log import MAX_BYTES
from arena.processes.parent import Child
from experiments.faults.simulators import simulators
from tests.arena.processes.snippet import started
from tests.support import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]

TIMEOUT_S = 30.0
WAIT = "import time; time.sleep(1e6)"
ECHO = "for line in sys.stdin: print(line.upper(), end='', flush=True)"

FLOOD = """
import faulthandler, os
faulthandler.enable()
print("the beginning", flush=True)
for _ in range(40):
    os.write(1, (b"y" * 99 + b"\\n") * 1000)
print("the last line", flush=True)
faulthandler._sigsegv()
"""

MANY_DESCRIPTORS = """
import os, resource
from tests.arena.processes.snippet import started
resource.setrlimit(resource.RLIMIT_NOFILE, (1200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
with started("import time; time.sleep(1e6)", talks="output") as child:
    assert child.pid
    child.terminate()
    print(child.wait(30))
"""

LATE = """#!/bin/sh
[ "$1" = -I ] && read word < {fifo}
exec {python} "$@"
"""

WITH_SIMULATORS = "from experiments.faults.simulators import start_simulators; start_simulators();"

PARENT = """
import os, sys, time
os.set_inheritable(os.open(sys.argv[1], os.O_RDONLY), True)
from pathlib import Path
{}
time.sleep(1e6)
"""
USERS = {
    "arena.learners.process": (
        "from arena.learners.spawn import spawn_learner\n"
        "path = Path(sys.argv[1]); log = path.with_name('learner.log')\n"
        "held = spawn_learner(path, 'ipc:///nowhere', populations=(), log_path=log)"
    ),
    "arena.envs.workers.process": "from arena.envs.workers.crew import Crew; held = Crew(1)",
    "arena.envs.inspect": (
        "from arena.envs.inspect import EnvironmentRequest, inspect_environment\n"
        "asked = EnvironmentRequest('environments:Endless', launch_directory='tests/assets')\n"
        "inspect_environment(asked)"
    ),
    "populations.hooks.process": (
        "from populations.hooks.supervisor import HookProcess, ProcessSettings\n"
        "place = Path(sys.argv[1]).parent\n"
        "(place / 'logs').mkdir()\n"
        "settings = ProcessSettings(run_dir=str(place), launch_directory='.', time_limit_s=1.0)\n"
        "held = HookProcess(settings=settings); held.poll()"
    ),
    "tools.web.making": "from tools.web.maker import Maker; held = Maker(); held._started()",
    "tools.play.child": (
        "from tools.play.tables import Tables; held = Tables({}, seed=1); held.new()"
    ),
}
"""What starts a child, by the module that it runs."""


@pytest.mark.parametrize("module", USERS)
def test_a_child_ends_with_its_parent_and_inherits_no_descriptor(
    module: str, tmp_path: Path
) -> None:
    path = tmp_path / "open"
    path.touch()
    code = PARENT.format(USERS[module])
    found: list[psutil.Process] = []

    def is_there() -> bool:
        assert process.poll() is None
        found[:] = psutil.Process(process.pid).children(recursive=True)
        return any(one.cmdline()[1:4] == ["-P", "-m", module] for one in found)

    with subprocess.Popen([sys.executable, "-c", code, path]) as process:
        wait_until(is_there, timeout_s=TIMEOUT_S)
        assert len(found) >= 3, "two guards"
        held = [file.path for one in found for file in one.open_files()]
        process.kill()
    assert str(path) not in held
    _, left = psutil.wait_procs(found, timeout=TIMEOUT_S)
    assert not left


def test_a_flood_is_bounded_and_the_last_words_of_a_crash_are_there(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "flood.log"
    with started(FLOOD, log=log) as child:
        assert child.wait(TIMEOUT_S) == -signal.SIGSEGV
        assert child.ending.startswith("(SIGSEGV): yyy")
    text = log.read_text()
    assert len(text) <= MAX_BYTES
    assert text.startswith("the beginning\n")
    assert "bytes of this log were left out here]\n" in text
    flooded, _, last = text.rpartition("the last line\n")
    assert flooded.endswith("yyy\n")
    assert "Fatal Python error: Segmentation fault" in last
    assert "most recent call first" in last


def test_what_two_processes_in_turn_write_is_one_log(tmp_path: Path) -> None:
    log = tmp_path / "two.log"
    for word in ("one", "two"):
        with started(f"print({word!r})", log=log) as child:
            assert child.wait(TIMEOUT_S) == 0
    assert log.read_text() == "one\ntwo\n"


def test_it_answers_line_by_line_whatever_their_length() -> None:
    with started(ECHO, talks="output") as child:
        for message in (b"a", b"b" * (1 << 20), b""):
            assert child.call(message, TIMEOUT_S) == message.upper()
        child.tell(b"c")
        child.end_input()
        assert list(child.events(TIMEOUT_S)) == [b"C"]
        with pytest.raises(EOFError, match="snippet has ended"):
            child.call(b"d", TIMEOUT_S)
        assert child.wait(TIMEOUT_S) == 0


def test_one_that_does_not_read_or_answer_is_late(tmp_path: Path) -> None:
    with started(WAIT, talks="output") as child:
        for message in (b"a", b"b" * (1 << 20)):
            with pytest.raises(TimeoutError, match=r"has not answered for 0\.05 s"):
                child.call(message, 0.05)


def test_all_that_one_says_is_its_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "print(sys.stdin.readline(), end=''); print('torn', end='')\n"
        "print('arena: by the way', file=sys.stderr); exit(3)"
    )
    with started(code, talks="output", log="temporary") as child:
        assert child.ask(b"a", TIMEOUT_S) == ([b"a", b"torn"], 3)
        assert child.ending == "(exit code 3): arena: by the way"
        assert child.last_line == "by the way"
    with started("exit()", talks="output", log="temporary") as child:
        assert child.ask(b"", TIMEOUT_S) == ([], 0)
        assert child.last_line == "(exit code 0): it said nothing"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code", [WAIT, "while True: os.write(1, 99999 * b'x')"])
def test_one_that_is_late_is_ended_and_what_it_said_stands(code: str) -> None:
    code = f"import os; print('facts', flush=True); {code}" if "while" not in code else code
    code = f"import os\n{code}"
    with started(code, talks="output", log="temporary", line_bytes=1 << 20) as child:
        lines, exit_code = child.ask(b"", 2.0)
        assert (exit_code, child.poll()) == (None, -signal.SIGKILL)
    # A line without an end is delivered in pieces.
    assert lines == [b"facts"] or {len(line) >> 20 for line in lines} == {1}


@pytest.mark.parametrize("dies_with_parent", [True, False])
def test_one_that_ignores_signals_is_ended_with_its_group(
    dies_with_parent: bool, tmp_path: Path
) -> None:
    code = (
        "import signal, subprocess, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(subprocess.Popen(['sleep', '100000']).pid, flush=True); time.sleep(1e6)"
    )
    with started(code, talks="output", dies_with_parent=dies_with_parent) as child:
        below = psutil.Process(int(next(child.events(TIMEOUT_S))))
        child.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.1)
        child.kill_group()
        assert child.poll() == -signal.SIGKILL
        child.kill_group()
    wait_until(lambda: not below.is_running() or below.status() == "zombie", timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("dies_with_parent", [True, False])
def test_nothing_of_it_stays_open_here(dies_with_parent: bool, tmp_path: Path) -> None:
    before = psutil.Process().num_fds()
    log = tmp_path / "log"
    with started(ECHO, log=log, talks="output", dies_with_parent=dies_with_parent) as child:
        assert child.call(b"a", TIMEOUT_S) == b"A"
    assert psutil.Process().num_fds() == before
    with pytest.raises(NotADirectoryError):
        started("", directory=str(log), dies_with_parent=dies_with_parent)
    assert psutil.Process().num_fds() == before


def test_one_that_stands_alone_outlives_its_parent(token: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "from tests.arena.processes.snippet import started\n"
        "from pathlib import Path\n"
        f"child = started({WITH_SIMULATORS + WAIT!r}, log=Path({str(log)!r}),"
        " dies_with_parent=False)\n"
        "print(child.pid)"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
    child = psutil.Process(int(said))
    assert os.getsid(child.pid) == child.pid
    wait_until(lambda: len(simulators(token)) == 3, timeout_s=TIMEOUT_S)
    child.kill()


def test_it_outlives_the_thread_that_started_it() -> None:
    children: list[Child] = []
    thread = threading.Thread(target=lambda: children.append(started(WAIT)))
    thread.start()
    thread.join()
    with children[0] as child:
        process = psutil.Process(child.pid)
        assert child.poll() is None
        assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
    assert not process.is_running()


@pytest.mark.parametrize("who", ["child", "inner guard"])
def test_one_that_is_stopped_can_be_ended(who: str) -> None:
    with started(WAIT) as child:
        process = psutil.Process(child.pid)
        (process if who == "child" else process.parents()[0]).suspend()
        child.kill_group()
        assert child.poll() == -signal.SIGKILL
    wait_until(lambda: not process.is_running(), timeout_s=TIMEOUT_S)


def test_a_parent_may_have_more_descriptors_than_select_takes() -> None:
    command = [sys.executable, "-c", MANY_DESCRIPTORS]
    assert subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout == b"-15\n"


@pytest.fixture
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pipe that the guards of this test wait for before they begin."""
    python, fifo = tmp_path / "python", tmp_path / "fifo"
    os.mkfifo(fifo)
    python.write_text(LATE.format(fifo=fifo, python=sys.executable))
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    return fifo


def test_a_guard_that_begins_late_has_its_process_all_the_same(
    late: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "START_S", 0.02)
    with started(WAIT, stacks=late.with_name("stacks")) as child:
        assert (child.pid, child.known_pid) == (0, 0)
        # The signal would end the guard before it has its handlers.
        child.dump_stacks()
        late.write_text("begin\n")
        wait_until(lambda: child.known_pid != 0, timeout_s=TIMEOUT_S)
        assert psutil.Process(child.known_pid).is_running()
        assert child.poll() is None


def test_one_that_has_not_begun_can_be_told_to_end(late: Path) -> None:
    with started("pass") as child:
        child.terminate()
        assert child.wait(TIMEOUT_S) == -signal.SIGTERM
