"""Strangers reach limits that are stated, never the run or its page."""

from __future__ import annotations

import http.client
import resource
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from populations.storage.status import read_status
from tests.faults.runs import document, events, finished, launch
from tests.strangers import GREETING, HALF_REQUEST, Crowd
from tests.support import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.integration]

DESCRIPTORS = 1024
FLOOD_S = 8.0
ANSWER_S = 5.0
LOG_BYTES = 20_000
TIMEOUT_S = 110.0


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Let what is started from now on have few descriptors, of which this process needs more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 8 * DESCRIPTORS:
        pytest.skip(f"the crowd needs {8 * DESCRIPTORS} descriptors, this process may have {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (8 * DESCRIPTORS, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def limit(process: subprocess.Popen[str]) -> None:
    """Take descriptors away from a process, for good."""
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


@pytest.mark.usefixtures("few_descriptors")
def test_a_run_trains_on_while_thousands_greet_its_controller(tmp_path: Path) -> None:
    run = tmp_path / "run"
    port = free_port()
    process = launch(run, document(endpoint=f"tcp://127.0.0.1:{port}"))
    limit(process)
    try:
        wait_until(lambda: finished(run) >= 2, timeout_s=TIMEOUT_S)
        with Crowd(port, size=4000, words=GREETING) as crowd:
            crowd.push(FLOOD_S / 2)
            before = finished(run)
            crowd.push(FLOOD_S / 2)
            assert finished(run) > before
            assert psutil.Process(process.pid).num_fds() < DESCRIPTORS
            assert crowd.num_made > DESCRIPTORS
        status = read_status(run)
        assert status is not None
        assert status["alerts"] == []
        wait_until(lambda: (read_status(run) or {})["bad_messages"] != {}, timeout_s=TIMEOUT_S)
        assert events(run, "storage_full", "learner_lost") == []
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 143
    text = (run / "logs" / "controller.log").read_text()
    assert len(text) < LOG_BYTES
    assert "lines like it were left out" in text


@pytest.mark.usefixtures("few_descriptors")
def test_the_page_answers_while_a_thousand_send_half_a_request(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trains = launch(run, document())
    try:
        wait_until(lambda: finished(run) >= 1, timeout_s=TIMEOUT_S)
        check_page(run, errors=tmp_path / "errors.txt")
    finally:
        trains.terminate()
        trains.communicate(timeout=TIMEOUT_S)


def check_page(run: Path, *, errors: Path) -> None:
    command = [sys.executable, "-m", "tools.main", "web", str(run), "--port", "0"]
    line = f"ulimit -n {DESCRIPTORS}; exec {shlex.join(command)}"
    root = Path(__file__).parents[2]
    with (
        errors.open("wb") as file,
        subprocess.Popen(
            ["sh", "-c", line], stdout=subprocess.PIPE, stderr=file, text=True, cwd=root
        ) as page,
    ):
        try:
            assert page.stdout is not None
            address = urlsplit(page.stdout.readline().strip())
            assert address.port is not None
            with Crowd(address.port, size=1100, words=HALF_REQUEST) as crowd:
                for _ in range(4):
                    crowd.push(1.0)
                    assert answered(address.port, address.query) in (200, 303)
                assert psutil.Process(page.pid).num_fds() < DESCRIPTORS // 2
        finally:
            page.terminate()
    assert errors.stat().st_size < LOG_BYTES


def answered(port: int, query: str) -> int:
    """Ask for the page, and return the code of an answer that came in time."""
    began_s = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    connection.request("GET", f"/?{query}")
    code = connection.getresponse().status
    assert time.monotonic() - began_s < ANSWER_S
    connection.close()
    return code


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
