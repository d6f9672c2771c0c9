"""Every process and socket that a test starts is gone when the tests are."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from arena.processes import settings as process_settings
from arena.processes.parent import Child
from arena.resolve import use_code

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Tests have no deadline, because a shared machine may be slow; benchmarks measure speed.
settings.register_profile("arena", deadline=None)
settings.load_profile("arena")

# Imported modules and collected tests stay alive, and searching them for garbage took 1/20 of all
# time.
gc.disable()

MARKER = "ARENA_TEST_RUN"
GRACE_S = 5.0
CHECKOUT = Path(__file__).parents[1]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a module's tests on one worker, where what they share is made once."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_collection_finish() -> None:
    """Look for garbage in what tests leave alone."""
    gc.enable()
    gc.freeze()


def processes_with(marker: bytes) -> dict[int, str]:
    """Processes whose environment holds the marker, this one left out: their command lines."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # the process has ended, or belongs to another user
        if marker in variables and pid != os.getpid():
            found[pid] = command.strip()
    return found


@pytest.fixture(scope="session", autouse=True)
def _signals_are_heard() -> None:
    """Let what tests start hear signals, also where the tests themselves were told to ignore them.

    Started in the background or by nohup, they inherit that, and so would the runs they start,
    which then rightly go on after Ctrl-C.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            is_interrupt = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _no_settings_are_left() -> Iterator[None]:
    """Forget after each test what users' code or a command set: here it is one process for all."""
    yield
    process_settings.SETTINGS.__init__()  # type: ignore[misc]
    process_settings._keeps_directory = False
    use_code(None)


@pytest.fixture(scope="session", autouse=True)
def _environments_are_inspected_once() -> Iterator[None]:
    """Remember what was found about environments of this checkout, which no test changes.

    Each inspection is a process that loads PettingZoo. What failed and what has a pace is asked
    for again, and so is all that tests write for themselves.
    """
    known: dict[object, list[bytes]] = {}

    class Remembering(ExitStack):
        ending = ""

        def __init__(self, *arguments: Any, **how: Any) -> None:
            super().__init__()
            self._start = partial(Child, *arguments, **how)

        def ask(self, question: bytes, timeout_s: float) -> tuple[list[bytes], int | None]:
            asked = json.loads(question)
            place = Path(asked["facts"]["launch_directory"]).resolve()
            # pytest keeps the name of the running test in this variable.
            own = {name: one for name, one in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
            key = question, os.getcwd(), frozenset(own.items())
            if key in known:
                return known[key], 0
            child = self.enter_context(self._start())
            lines, code = child.ask(question, timeout_s)
            self.ending = "" if code is None else child.ending
            lasts = asked["play"] is None and place.is_relative_to(CHECKOUT)
            if lasts and code == 0 and b'"error"' not in b"".join(lines):
                known[key] = lines
            return lines, code

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arena.envs.inspect.Child", Remembering)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_process_survives() -> Iterator[None]:
    """Mark what this worker starts through the environment; fail if any of it is left at the end.

    The mark differs for each pytest-xdist worker, so workers do not blame each other.
    """
    value = str(uuid.uuid4())
    os.environ[MARKER] = value
    yield
    del os.environ[MARKER]
    marker = f"{MARKER}={value}".encode()
    deadline_s = time.monotonic() + GRACE_S
    while (left := processes_with(marker)) and time.monotonic() < deadline_s:
        time.sleep(0.05)  # a killed process may take a moment to end
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"processes that outlived the tests: {left}"


@pytest.fixture(scope="session", autouse=True)
def _no_record_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the records of tests' launches out of the home directory of whoever runs them."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before


@pytest.fixture(scope="session", autouse=True)
def _no_socket_survives() -> Iterator[None]:
    """Give sockets a directory of their own, and fail if a test leaves one there.

    A killed controller leaves its socket, for the one that resumes; tests that kill resume.
    """
    before = os.environ.get("XDG_RUNTIME_DIR")
    # The directory is not below pytest's own, because a socket's path may have only 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="arena-test-"))
    os.environ["XDG_RUNTIME_DIR"] = str(directory)
    yield
    if before is None:
        del os.environ["XDG_RUNTIME_DIR"]
    else:
        os.environ["XDG_RUNTIME_DIR"] = before
    left = [str(path.relative_to(directory)) for path in directory.rglob("*")]
    shutil.rmtree(directory)
    assert not left, f"sockets that outlived the tests: {left}"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    # The import is local, because the browser's package takes long to import.
    from tests.tools.web.browsing import launched

    with launched(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser
