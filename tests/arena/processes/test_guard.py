"""Whatever is killed, nothing stays of what is below a guard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from experiments.faults.simulators import simulators
from tests.arena.processes.snippet import started
from tests.support import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]

TIMEOUT_S = 30.0
SORTS = 3
START = "from experiments.faults.simulators import start_simulators; start_simulators();"
FOR_EVER = f"{START} import time; time.sleep(1e6)"

CONTAINED = """
import os, sys, time
from arena.processes.guard import command_pid, contain, remove_at_end
contain()
from experiments.faults.simulators import start_simulators
start_simulators()
remove_at_end(sys.argv[1])
print(command_pid(), os.getppid(), os.getpid(), flush=True)
sys.stdin.readline()
sys.exit(7)
"""

WITHOUT_REAPERS = """
import sys
from arena.processes import guard
guard.HAS_REAPERS = False
guard.main(sys.argv[1:])
"""

PARENT = f"""
import time
from tests.arena.processes.snippet import started
child = started({FOR_EVER!r})
time.sleep(1e6)
"""


def await_simulators(token: str) -> None:
    wait_until(lambda: len(simulators(token)) == SORTS, timeout_s=TIMEOUT_S)


def await_nobody(token: str) -> None:
    wait_until(lambda: not simulators(token), timeout_s=TIMEOUT_S)


@pytest.mark.slow
@pytest.mark.parametrize("generations", [0, 1, 2], ids=["child", "inner guard", "outer guard"])
def test_nothing_is_left_of_a_process_when_it_or_a_guard_is_killed(
    generations: int, token: str
) -> None:
    with started(FOR_EVER) as child:
        await_simulators(token)
        family = [psutil.Process(child.pid), *psutil.Process(child.pid).parents()[:2]]
        family[generations].kill()
        assert child.wait(TIMEOUT_S) == -signal.SIGKILL
        _, left = psutil.wait_procs(family, timeout=TIMEOUT_S)
        assert not left
        await_nobody(token)


def test_nothing_is_left_when_the_parent_and_a_guard_are_killed_at_once(token: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT]) as parent:
        await_simulators(token)
        (outer,) = psutil.Process(parent.pid).children()
        outer.suspend()
        parent.kill()
        outer.kill()
    await_nobody(token)


def test_nothing_is_left_when_it_ends_by_itself(token: str) -> None:
    with started(f"{START} import os; os._exit(3)") as child:
        assert child.wait(TIMEOUT_S) == 3
        assert not simulators(token)


def test_what_its_own_children_left_behind_lives_as_long_as_it(token: str) -> None:
    with started(FOR_EVER) as child:
        await_simulators(token)
        below = psutil.Process(child.pid).children(recursive=True)
        inner = psutil.Process(child.pid).parent()
        # The daemon's parent is the guard by now, and it is left alone.
        assert inner is not None
        assert len(below) == 2
        assert len(inner.children()) == 2
        child.kill_group()
        assert not simulators(token)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(75)", 75),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_it_ends_as_its_child_does(code: str, expected: int) -> None:
    with started(code) as child:
        assert child.wait(TIMEOUT_S) == expected


def test_signals_are_passed_on_once(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "told = []\n"
        "signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))\n"
        "print('ready', flush=True)\n"
        "while not told: time.sleep(0.01)\n"
        "time.sleep(0.2)\n"
        "sys.exit(40 + len(told))\n"
    )
    with started(code, log=tmp_path / "log") as child:
        wait_until(lambda: "ready" in (tmp_path / "log").read_text(), timeout_s=TIMEOUT_S)
        child.terminate()
        assert child.wait(TIMEOUT_S) == 41


def contained(directory: Path) -> subprocess.Popen[bytes]:
    directory.mkdir()
    return subprocess.Popen(
        [sys.executable, "-c", CONTAINED, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.parametrize("victim", [0, 1, 2], ids=["the command", "inner guard", "what it runs"])
def test_nothing_is_left_of_a_contained_command(victim: int, token: str, tmp_path: Path) -> None:
    with contained(tmp_path / "files") as command:
        assert command.stdout is not None
        pids = [int(pid) for pid in command.stdout.readline().split()]
        assert pids[0] == command.pid
        wait_until(lambda: len(simulators(token)) == SORTS, timeout_s=TIMEOUT_S)
        family = [psutil.Process(pid) for pid in pids]
        family[victim].kill()
        assert command.wait(TIMEOUT_S) == -signal.SIGKILL
    psutil.wait_procs(family, timeout=TIMEOUT_S)
    await_nobody(token)
    wait_until(lambda: not (tmp_path / "files").exists(), timeout_s=TIMEOUT_S)


def test_ctrl_z_stops_a_contained_command_until_it_is_continued(tmp_path: Path) -> None:
    with contained(tmp_path / "files") as command:
        assert command.stdout is not None
        family = [psutil.Process(int(pid)) for pid in command.stdout.readline().split()]
        command.send_signal(signal.SIGTSTP)
        wait_until(lambda: family[0].status() == psutil.STATUS_STOPPED, timeout_s=TIMEOUT_S)
        # The shell continues the job with SIGCONT.
        assert {process.status() for process in family} == {psutil.STATUS_STOPPED}
        command.send_signal(signal.SIGCONT)
        command.communicate(b"\n", timeout=TIMEOUT_S)
        assert command.returncode == 7


@pytest.mark.parametrize("fds", ["0", "1", "0, 1, 2"])
def test_a_contained_command_may_lack_standard_streams(
    fds: str, token: str, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    code = (
        f"import os, sys\nfor fd in ({fds},): os.close(fd)\n"
        "from arena.processes.guard import contain, remove_at_end\n"
        "contain()\n"
        "remove_at_end(sys.argv[1])\n"
        "os._exit(9)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "files")]
    assert subprocess.run(command, check=False, timeout=TIMEOUT_S).returncode == 9
    assert not (tmp_path / "files").exists()


def test_a_contained_command_has_its_streams_and_exit_code(token: str, tmp_path: Path) -> None:
    with contained(tmp_path / "files") as command:
        command.communicate(b"\n", timeout=TIMEOUT_S)
        assert command.returncode == 7
    assert not simulators(token)
    assert not (tmp_path / "files").exists()


def without_reapers(code: str) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start a guard as where there are no subreapers; also its pipe, and the child's number."""
    read_fd, death_fd = os.pipe()
    pid_fd, told_fd = os.pipe()
    arguments = ["name", str(read_fd), str(told_fd), "", "", f"{sys.executable}\x1f-c\x1f{code}"]
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_REAPERS, *arguments],
        pass_fds=(read_fd, told_fd),
        start_new_session=True,
    )
    os.close(read_fd)
    os.close(told_fd)
    with open(pid_fd, "rb") as pipe:
        return process, death_fd, int(pipe.readline())


CHILD = """
import subprocess, time
from arena.processes.child import end_with_guard
end_with_guard()
subprocess.Popen(["sleep", "100000"])
time.sleep(1e6)
"""


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["parent", "guard"])
def test_without_subreapers_a_group_ends_with_its_guard(
    victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, death_fd, pid = without_reapers(CHILD)
    child = psutil.Process(pid)
    wait_until(child.children, timeout_s=TIMEOUT_S)
    family = [child, *child.children()]
    if victim == "guard":
        process.kill()
    os.close(death_fd)
    assert process.wait(TIMEOUT_S) == -signal.SIGKILL
    _, left = psutil.wait_procs(family, timeout=TIMEOUT_S)
    assert not left


def test_without_subreapers_it_ends_as_its_child_does(monkeypatch: pytest.MonkeyPatch) -> None:
    process, death_fd, _ = without_reapers("raise SystemExit(5)")
    assert process.wait(TIMEOUT_S) == 5
    os.close(death_fd)
