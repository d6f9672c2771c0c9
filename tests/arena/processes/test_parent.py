"""Processes below guards, as their parent sees them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from arena.processes import parent
from arena.processes.bounded_log import MAX_BYTES
from arena.processes.parent import ChildProcess, spawn
from tests.support import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("processes")]

TIMEOUT_S = 30.0
CAT = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stderr.write('said')"

FLOOD = """
import faulthandler, os, sys
faulthandler.enable()
print("the beginning", flush=True)
for _ in range(40):
    os.write(1, (b"y" * 99 + b"\\n") * 1000)
print("the last line", flush=True)
faulthandler._sigsegv()
"""


MANY_DESCRIPTORS = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
from arena.processes.parent import spawn
with spawn([sys.executable, "-c", "import time; time.sleep(1e6)"]) as child:
    assert child.pid
    child.terminate()
    print(child.wait(30))
"""

LATE = """#!/bin/sh
[ "$1" = -I ] && read word < {fifo}
exec {python} "$@"
"""


def test_a_flood_is_bounded_and_the_last_words_of_a_crash_are_there(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "flood.log"
    with spawn([sys.executable, "-c", FLOOD], log_path=log) as child:
        assert child.wait(TIMEOUT_S) == -signal.SIGSEGV
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
        with spawn([sys.executable, "-c", f"print({word!r})"], log_path=log) as child:
            assert child.wait(TIMEOUT_S) == 0
    assert log.read_text() == "one\ntwo\n"


def test_it_answers_on_its_pipes() -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with spawn([sys.executable, "-c", CAT], **pipes) as child:  # type: ignore[arg-type]
        assert child.communicate(b"question", timeout_s=TIMEOUT_S) == (b"QUESTION", b"said")
        assert child.poll() == 0


def test_one_that_takes_too_long_can_be_ended_and_what_it_said_is_there() -> None:
    code = "import time; print('facts', flush=True); time.sleep(1e6)"
    with spawn([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        with pytest.raises(subprocess.TimeoutExpired):
            child.communicate(timeout_s=0.5)
        child.kill()
        assert child.communicate()[0] in (b"facts\n", b"")
        assert child.poll() == -signal.SIGKILL


def test_it_outlives_the_thread_that_started_it() -> None:
    started: list[ChildProcess] = []
    thread = threading.Thread(
        target=lambda: started.append(spawn([sys.executable, "-c", "import time; time.sleep(1e6)"]))
    )
    thread.start()
    thread.join()
    with started[0] as child:
        process = psutil.Process(child.pid)
        assert child.poll() is None
        assert process.is_running()
    assert not process.is_running()


def test_guards_that_are_stopped_do_not_save_it(tmp_path: Path) -> None:
    with spawn([sys.executable, "-c", "import time; time.sleep(1e6)"]) as child:
        process = psutil.Process(child.pid)
        inner = process.parents()[0]
        inner.suspend()
        child.kill()
        assert child.poll() == -signal.SIGKILL
    wait_until(lambda: not process.is_running(), timeout_s=TIMEOUT_S)


def test_a_command_that_cannot_be_run_says_so_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with spawn([sys.executable, "/no/such/file"], log_path=log) as child:
        assert child.wait(TIMEOUT_S) == 2
    assert "/no/such/file" in log.read_text()


def test_a_parent_may_have_more_descriptors_than_select_takes() -> None:
    command = [sys.executable, "-c", MANY_DESCRIPTORS]
    assert subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout == b"-15\n"


@pytest.fixture
def late(tmp_path: Path) -> tuple[Path, Path]:
    """An interpreter whose guard begins when something is written to a pipe; the pipe."""
    python, fifo = tmp_path / "python", tmp_path / "fifo"
    os.mkfifo(fifo)
    python.write_text(LATE.format(fifo=fifo, python=sys.executable))
    python.chmod(0o700)
    return python, fifo


def test_a_guard_that_begins_late_has_its_process_all_the_same(
    late: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "START_S", 0.02)
    python, fifo = late
    stacks = fifo.with_name("stacks")
    with spawn([str(python), "-c", "import time; time.sleep(1e6)"], stacks=stacks) as child:
        assert (child.pid, child.known_pid) == (0, 0)
        # It would end the guard.
        child.dump_stacks()
        fifo.write_text("begin\n")
        wait_until(lambda: child.known_pid != 0, timeout_s=TIMEOUT_S)
        assert psutil.Process(child.known_pid).is_running()
        assert child.poll() is None


def test_one_that_has_not_begun_can_be_told_to_end(late: tuple[Path, Path]) -> None:
    with spawn([str(late[0]), "-c", "pass"]) as child:
        child.terminate()
        assert child.wait(TIMEOUT_S) == -signal.SIGTERM
