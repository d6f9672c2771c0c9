from __future__ import annotations

import importlib.util
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support import wait_until
from tests.tools.web.conftest import TOKEN

TIMEOUT_S = 30.0
Command = Callable[..., dict[str, Any]]


def test_packages_that_are_missing_are_named(
    command: Command, board_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec

    def without_jinja(name: str, package: str | None = None) -> object:
        return None if name == "jinja2" else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_jinja)
    error = command("web", board_run, code=2)["error"]
    assert "jinja2: pip install jinja2" in error


def test_a_port_that_is_in_use_is_exit_4(command: Command, board_run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = command("web", board_run, "--port", port, code=4)["error"]
    assert f"port {port} of 127.0.0.1 is in use" in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--token", "short"], "8 or more"),
        (["--root-path", "arena"], "begins with /"),
        (["--host", "203.0.113.77"], "cannot be listened on"),
    ],
)
def test_options_that_cannot_be_are_exit_2(
    command: Command, board_run: Path, options: list[str], message: str
) -> None:
    assert message in command("web", board_run, *options, code=2)["error"]


BROWSER = "#!/bin/sh\necho $$ > {pid}\nexec sleep 1000\n"


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """File with the number of the user's browser, once a page is opened in it."""
    program, pid = tmp_path / "browser", tmp_path / "pid"
    program.write_text(BROWSER.format(pid=pid))
    program.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{program} %s &")
    yield pid
    psutil.Process(int(pid.read_text())).kill()


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_server_says_where_it_is_and_its_end_leaves_the_browser_alone(
    number: int, code: int, browser: Path, board_run: Path
) -> None:
    arguments = ["web", str(board_run), "--port", "0", "--token", TOKEN, "--root-path", "/arena"]
    arguments.append("--open")
    program = [sys.executable, "-m", "populations.commands.main", *arguments]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith(f"/arena/?token={TOKEN}")
        try:
            with httpx.Client(follow_redirects=True) as client:
                answer = client.get(url)
                assert answer.status_code == 200
                assert "token" not in str(answer.url)
                assert "Overview" in answer.text
                assert "server" not in answer.headers
            wait_until(lambda: browser.exists() and browser.read_text(), timeout_s=TIMEOUT_S)
            page = psutil.Process(int(browser.read_text()))
            makers = set(psutil.Process(process.pid).children()) - {page}
            assert makers
        finally:
            process.send_signal(number)
        assert process.wait(timeout=10.0) == code
    assert not psutil.wait_procs(makers, timeout=TIMEOUT_S)[1]
    assert page.is_running()
