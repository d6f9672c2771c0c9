"""Connection to Ray: an existing cluster, or a Ray on this machine that belongs to the run.

Tests: `tests/integration/test_ray.py`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import psutil

from arena.errors import ConfigError
from arena.processes.guard import remove_at_end
from arena.processes.parent import Child
from arena.wire.address import make_private
from populations.config.sections import RayConfig
from populations.launchers import ray_guard

OBJECT_STORE_BYTES = 80 * 2**20
"""Shared memory for Ray's objects, about Ray's minimum, because learners exchange no objects."""

MAX_TEMP_BYTES = 16
"""Maximum length of the temporary directory's path, because paths of Ray's Unix sockets below it
may have at most 107 bytes."""

PROBE_S = 5.0

OWN = "local"
"""Address by which Ray is asked to start a new instance on this machine."""

_ENVIRONMENT = {
    # Without this variable, which Ray reads at its import, Ray on Linux would listen on all of the
    # machine's addresses. With it the node has the address 127.0.0.1.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Ray must not send usage statistics.
    "RAY_USAGE_STATS_ENABLED": "0",
}


def check_ray(settings: RayConfig) -> None:
    """Check that Ray is installed, and that a cluster answers at the configured address.

    Raises:
        ConfigError: If Ray is missing, or no cluster answers.
    """
    if find_spec("ray") is None:
        raise ConfigError("launcher: ray needs Ray: pip install ray")
    address = _address(settings)
    host, has_port, port = address.rpartition(":")
    if not has_port:
        return
    try:
        # Ray itself would try for minutes and then report little.
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"ray.address: no Ray answers at {address}: {error}") from error


def _address(settings: RayConfig) -> str:
    return settings.address or os.environ.get("RAY_ADDRESS") or OWN


@contextmanager
def ray_session(run: str, settings: RayConfig) -> Iterator[tuple[str, bool]]:
    """Connect to the configured cluster, or start the run's own Ray; disconnect or end it after.

    Use it in the main thread, under the run's lock: processes of the run's own Ray are killed when
    the thread that started them ends.

    Args:
        run: Run's id.
        settings: Configuration of Ray.

    Yields:
        Address of this machine that learners can reach, and whether Ray is the run's own.

    Raises:
        ConfigError: If Ray is not installed, or no cluster answers at the address.
    """
    check_ray(settings)
    address = _address(settings)
    if address == OWN:
        # Ray reads these variables at its import, so they are set before it.
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    ray = import_module("ray")
    with ExitStack() as stack:
        # If the user has connected this process to Ray before, that connection is used and kept.
        is_connected = bool(ray.is_initialized())
        is_own = address == OWN and not is_connected
        if is_own:
            stack.enter_context(_own_ray(ray, own_directory(run)))
        elif not is_connected:
            stack.callback(ray.shutdown)
            _join(ray, address)
        host = "127.0.0.1" if is_own else ray.util.get_node_ip_address()
        yield host, is_own


@contextmanager
def _own_ray(ray: ModuleType, directory: Path) -> Iterator[None]:
    """Run a Ray on this machine; its processes and files are removed even after a kill."""
    # After a crash of the machine the directory may still exist.
    shutil.rmtree(directory, ignore_errors=True)
    make_private(directory)
    # A command's own guard may kill the process below before it has removed the directory, so that
    # guard must remove it, too.
    remove_at_end(directory)
    guard = Child(ray_guard.__name__, [str(directory)], dies_with_parent=False, talks="output")
    others = {child.pid for child in psutil.Process().children()}
    try:
        _start(ray, directory)
        begun = [
            process
            for child in psutil.Process().children()
            if child.pid not in others
            for process in (child, *child.children(recursive=True))
        ]
        for process in begun:
            guard.tell(ray_guard.line_of(process).encode())
        yield
    finally:
        ray.shutdown()
        guard.end_input()
        guard.wait()
        guard.close()


def own_directory(run: str) -> Path:
    """Return the directory for the files of a run's own Ray."""
    parent = Path(tempfile.gettempdir())
    if len(os.fsencode(parent)) > MAX_TEMP_BYTES:
        parent = Path("/tmp")
    # The name contains the user id, because two users may run copies of one run directory.
    name = hashlib.sha256(f"{run}\0{os.getuid()}".encode()).hexdigest()[:8]
    return parent / f"arena-ray-{name}"


def _start(ray: ModuleType, directory: Path) -> None:
    """Start a Ray on this machine, without a dashboard."""
    ray.init(
        address=OWN,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=OBJECT_STORE_BYTES,
        # Ray makes its directory readable for all users, so its parent must be private.
        _temp_dir=str(directory / "ray"),
    )


def _join(ray: ModuleType, address: str) -> None:
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    # Errors of Ray and of its libraries have no common base class.
    except Exception as error:
        raise ConfigError(f"ray.address: no Ray answers at {address}: {error}") from error
