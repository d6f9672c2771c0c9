"""Connection to Ray: a cluster that is there, or a Ray of the run's own on this machine.

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
"""Shared memory for Ray's objects, about the least that Ray takes: learners exchange none."""

MAX_TEMP_BYTES = 16
"""Longest path of a directory for temporary files in which Ray's Unix sockets, whose paths may have
107 bytes, have room."""

PROBE_S = 5.0

OWN = "local"
"""Ray's word for a Ray of a process's own."""

_ENVIRONMENT = {
    # A Ray on Linux would listen on all of the machine's addresses without this. It is read when
    # Ray is imported, and makes this Ray one of a laptop: its node has the address 127.0.0.1.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Nothing is sent to Ray's makers.
    "RAY_USAGE_STATS_ENABLED": "0",
}


def check_ray(settings: RayConfig) -> None:
    """Refuse to go on without Ray, or without a cluster at its address.

    Raises:
        ConfigError: Says what to install, or which address does not answer.
    """
    if find_spec("ray") is None:
        raise ConfigError("launcher: ray needs Ray: pip install ray")
    address = _address(settings)
    host, has_port, port = address.rpartition(":")
    if not has_port:
        return
    try:
        # Ray itself tries for minutes, and says little.
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"ray.address: no Ray answers at {address}: {error}") from error


def _address(settings: RayConfig) -> str:
    return settings.address or os.environ.get("RAY_ADDRESS") or OWN


@contextmanager
def ray_session(run: str, settings: RayConfig) -> Iterator[tuple[str, bool]]:
    """Connect to the configured cluster, or start a Ray of the run's own; end what was begun.

    Use it in the main thread, under the run's lock: processes of a Ray of its own are killed with
    the thread that starts them.

    Args:
        run: Run's id.
        settings: Configuration of Ray.

    Yields:
        Address of this machine that learners can reach, and whether all of this Ray runs on this
        machine and ends with the run.

    Raises:
        ConfigError: If there is no Ray, or no cluster at the address.
    """
    check_ray(settings)
    address = _address(settings)
    if address == OWN:
        # These are set before Ray is imported, which reads them.
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
    ray = import_module("ray")
    with ExitStack() as stack:
        # A connection of its user's, in the same process, stays theirs.
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
    """Run a Ray on this machine, of which nothing is left, even where this process is killed."""
    # The directory may have been left where the machine went down.
    shutil.rmtree(directory, ignore_errors=True)
    make_private(directory)
    # The guards of a command end the process below as well, before it has removed anything.
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
    """Return the directory of the files of a run's own Ray."""
    parent = Path(tempfile.gettempdir())
    if len(os.fsencode(parent)) > MAX_TEMP_BYTES:
        parent = Path("/tmp")
    # The user id is part of the name: two users may run copies of one run directory.
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
        # Ray opens its directory to everybody; the one around it stays closed.
        _temp_dir=str(directory / "ray"),
    )


def _join(ray: ModuleType, address: str) -> None:
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    # Ray's own errors, and those of its libraries, have no common base.
    except Exception as error:
        raise ConfigError(f"ray.address: no Ray answers at {address}: {error}") from error
