"""Which addresses a controller may listen on, and the one it listens on by default."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import re
import stat
import tempfile
from pathlib import Path

from arena.errors import ConfigError

MAX_PATH_BYTES = 107
"""Of a Unix socket, on Linux; macOS has 103."""

_IPC = "ipc://"
_TCP = re.compile(r"tcp://(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):(?P<port>[0-9]{1,5}|\*)")
_DIRECTORY_PREFIX = "arena-"
_SOCKET = "controller"


def check_endpoint(endpoint: str) -> str:
    """The endpoint as ZeroMQ takes it, if nobody but this machine's users can reach it.

    Raises:
        ConfigError: If it is neither ``ipc://`` with an absolute path nor ``tcp://`` with a
            loopback address.
    """
    if endpoint.startswith(_IPC):
        _check_path(endpoint.removeprefix(_IPC))
        return endpoint
    match = _TCP.fullmatch(endpoint)
    if match is None:
        raise ConfigError(
            "an endpoint must be ipc:///absolute/path or tcp://127.0.0.1:port, "
            f"got {endpoint[:200]!r}"
        )
    host = "127.0.0.1" if match["host"] == "localhost" else match["host"]
    if not _is_loopback(host):
        raise ConfigError(
            f"a tcp endpoint must be on loopback (127.0.0.0/8, localhost, [::1]), got {endpoint!r}:"
            " other addresses need encryption and keys, which are not there yet"
        )
    if match["port"] != "*" and int(match["port"]) > 65535:
        raise ConfigError(f"a tcp port must be at most 65535, got {endpoint!r}")
    return f"tcp://{host}:{match['port']}"


def _check_path(path: str) -> None:
    if not path.startswith("/"):
        # "@" would be an abstract socket, which has no permissions; "*" one that ZeroMQ names.
        raise ConfigError(f"the path of an ipc endpoint must be absolute, got {path[:200]!r}")
    num_bytes = len(os.fsencode(path))
    if num_bytes > MAX_PATH_BYTES or "\0" in path:
        raise ConfigError(
            f"the path of an ipc endpoint must have at most {MAX_PATH_BYTES} bytes, none of them "
            f"zero; {path[:200]!r} has {num_bytes}"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def default_endpoint(run: str) -> str:
    """A Unix socket in a directory that only this user can enter. Call it under the run's lock.

    The same for every controller of a run, so that learners find the next one. A socket that a
    killed controller left there is removed (ZeroMQ would take a live one over without a word,
    which is why the lock has to be held).

    Raises:
        ConfigError: If the directory cannot be made, or is somebody else's.
    """
    name = hashlib.sha256(f"{run}\0{os.getuid()}".encode()).hexdigest()[:8]
    for parent in _parents():
        path = parent / f"{_DIRECTORY_PREFIX}{name}" / _SOCKET
        if len(os.fsencode(path)) <= MAX_PATH_BYTES and os.access(parent, os.W_OK | os.X_OK):
            _make_private(path.parent)
            path.unlink(missing_ok=True)
            return f"{_IPC}{path}"
    raise ConfigError(
        f"no directory for a socket: {', '.join(map(str, _parents()))} must be writable, and short "
        f"enough for a path of {MAX_PATH_BYTES} bytes"
    )


def _parents() -> list[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    candidates = [runtime] if runtime.startswith("/") else []
    return [Path(parent) for parent in (*candidates, tempfile.gettempdir(), "/tmp")]


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        facts = directory.lstat()
    except OSError as error:
        raise ConfigError(f"no directory for a socket: {error}") from error
    is_private = stat.S_ISDIR(facts.st_mode) and not stat.S_IMODE(facts.st_mode) & 0o077
    if not is_private or facts.st_uid != os.getuid():
        raise ConfigError(f"{directory} must be a directory that only this user can enter")


def remove_socket(endpoint: str) -> None:
    """Remove the socket of an ipc endpoint, and its directory if `default_endpoint` made it."""
    if not endpoint.startswith(_IPC):
        return
    path = Path(endpoint.removeprefix(_IPC))
    with contextlib.suppress(OSError):  # somebody else was faster, or uses the directory
        path.unlink(missing_ok=True)
        if path.parent.name.startswith(_DIRECTORY_PREFIX):
            path.parent.rmdir()
