from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_a_marked_process_is_found_until_it_ends(request: pytest.FixtureRequest) -> None:
    conftest = request.config.pluginmanager.get_plugin(
        str(request.config.rootpath / "tests" / "conftest.py")
    )
    assert conftest is not None
    marker = f"{conftest.MARKER}={os.environ[conftest.MARKER]}".encode()
    script = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as child:
        assert child.pid in conftest.processes_with(marker)
        child.kill()
    assert child.pid not in conftest.processes_with(marker)


def test_this_process_is_not_blamed(request: pytest.FixtureRequest) -> None:
    conftest = request.config.pluginmanager.get_plugin(
        str(request.config.rootpath / "tests" / "conftest.py")
    )
    assert conftest is not None
    marker = f"{conftest.MARKER}={os.environ[conftest.MARKER]}".encode()
    assert os.getpid() not in conftest.processes_with(marker)
