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
    script = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # the environment can only be read once the process runs
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


@pytest.mark.xdist_group("groups")
def test_workers_are_told_of_groups(request: pytest.FixtureRequest) -> None:
    """A group is a suffix of the test's name: pytest-xdist sends equal suffixes to one worker."""
    options = request.config.invocation_params.args
    if "PYTEST_XDIST_WORKER" not in os.environ or "loadgroup" not in options:
        pytest.skip("not started with --dist loadgroup")
    assert request.node.nodeid.endswith("@groups")
