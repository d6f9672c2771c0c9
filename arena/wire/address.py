"""Addresses that a controller may listen on, and the default one.

A Unix socket in a private directory of this user needs no more protection. An address that can be
reached over a network needs keys (`arena.wire.keys`).
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import re
import socket
import stat
import struct
import tempfile
from pathlib import Path

from arena.errors import AddressInUse, ConfigError

MAX_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux; macOS allows 103."""

_IPC = "ipc://"
_TCP = re.compile(r"tcp://(?P<host>\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):(?P<port>[0-9]{1,5}|\*)")
# `remove_socket` removes only directories of this name.
_DIRECTORY_PREFIX = "arena-"
_SOCKET = "controller"


def check_endpoint(endpoint: str, *, has_keys: bool = False) -> str:
    """Check an endpoint and return it in the form that ZeroMQ uses.

    Args:
        endpoint: Endpoint as the user wrote it.
        has_keys: Whether both sides authenticate and encrypt. Any valid tcp address is then allowed
            (``tcp://0.0.0.0`` is none).

    Raises:
        ConfigError: If it is neither ``ipc://`` with an absolute path nor ``tcp://`` with a
            loopback address, or with any address if there are keys.
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
    # ZeroMQ resolves a name later, possibly to another address, so localhost is fixed here.
    host = "127.0.0.1" if match["host"] == "localhost" else match["host"]
    address = _address(host)
    # A name without an address may be a machine on the network.
    if not has_keys and (address is None or not address.is_loopback):
        raise ConfigError(
            "a tcp endpoint must be on loopback (127.0.0.0/8, localhost, [::1]), or controller and "
            f"learners must have keys, got {endpoint!r} without"
        )
    # 0.0.0.0 would listen on networks that the user did not name.
    if address is not None and (address.is_unspecified or address.is_multicast):
        raise ConfigError(f"a tcp endpoint must be one address of one machine, got {endpoint!r}")
    if match["port"] != "*" and not 0 < int(match["port"]) <= 65535:
        raise ConfigError(f"a tcp port must be from 1 and at most 65535, or *, got {endpoint!r}")
    return f"tcp://{host}:{match['port']}"


def check_listening(endpoint: str) -> str:
    """Check the tcp address that a controller with keys listens on, and return it for ZeroMQ.

    Raises:
        ConfigError: If it is not ``tcp://`` with an IP address of one machine.
    """
    checked = check_endpoint(endpoint, has_keys=True)
    match = _TCP.fullmatch(checked)
    # A controller binds an interface, which a name does not identify.
    if match is None or _address(match["host"]) is None:
        raise ConfigError(
            "endpoint must be null (a Unix socket of this user) or tcp://ADDRESS:PORT, ADDRESS an "
            f"IP address of this machine, PORT a number or *, got {endpoint[:200]!r}"
        )
    return checked


def next_port(endpoint: str) -> str:
    """Return a tcp address with the port behind that of another one.

    Raises:
        ConfigError: If there is none.
    """
    host, _, port = endpoint.rpartition(":")
    if not endpoint.startswith("tcp://") or not port.isdigit() or int(port) >= 65535:
        raise ConfigError(f"there is no port behind that of {endpoint!r}")
    return f"{host}:{int(port) + 1}"


def is_loopback(endpoint: str) -> bool:
    """Return whether an endpoint is a tcp address on loopback."""
    match = _TCP.fullmatch(endpoint)
    address = _address(match["host"]) if match is not None else None
    return address is not None and address.is_loopback


def _check_path(path: str) -> None:
    if not path.startswith("/"):
        # "@" would be an abstract socket, which has no permissions; with "*" ZeroMQ chooses the
        # name.
        raise ConfigError(f"the path of an ipc endpoint must be absolute, got {path[:200]!r}")
    num_bytes = len(os.fsencode(path))
    if num_bytes > MAX_PATH_BYTES or "\0" in path:
        raise ConfigError(
            f"the path of an ipc endpoint must have at most {MAX_PATH_BYTES} bytes, none of them "
            f"zero; {path[:200]!r} has {num_bytes}"
        )


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def default_endpoint(run: str) -> str:
    """Return a Unix socket in a directory that only this user can enter.

    Call it under the run's lock. Every controller of a run gets the same address, so that learners
    find the next one. The socket of a killed controller is removed.

    Raises:
        ConfigError: If the directory cannot be made, or belongs to another user.
        AddressInUse: If a process listens there.
    """
    # The user id is hashed into the name, because two users may run copies of one run directory.
    # Eight digits are used, because the path of a Unix socket is short.
    name = hashlib.sha256(f"{run}\0{os.getuid()}".encode()).hexdigest()[:8]
    for parent in _parents():
        path = parent / f"{_DIRECTORY_PREFIX}{name}" / _SOCKET
        if len(os.fsencode(path)) <= MAX_PATH_BYTES and os.access(parent, os.W_OK | os.X_OK):
            # The directory is made private before the probe, because in a directory of another
            # user the listener could be any process.
            make_private(path.parent)
            pid = listener(path)
            # ZeroMQ would silently take over a live socket. The socket belongs to a copy of the
            # run's directory, which has its own lock.
            if pid is not None:
                raise AddressInUse(
                    f"{_IPC}{path} is in use: this run, or a copy of it, is live, process {pid}"
                )
            # A socket without a listener is left over from a killed controller.
            path.unlink(missing_ok=True)
            return f"{_IPC}{path}"
    raise ConfigError(
        f"no directory for a socket: {', '.join(map(str, _parents()))} must be writable, and short "
        f"enough for a path of {MAX_PATH_BYTES} bytes"
    )


def _parents() -> list[Path]:
    # The XDG specification requires that relative paths are ignored; /tmp comes last, in case
    # TMPDIR is too long for a socket.
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    candidates = [runtime] if runtime.startswith("/") else []
    return [Path(parent) for parent in (*candidates, tempfile.gettempdir(), "/tmp")]


def make_private(directory: Path) -> None:
    """Make a directory that only this user can enter, if it does not exist.

    Raises:
        ConfigError: If it cannot be made, belongs to another user, or is open to others.
    """
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        # lstat is used, because stat would describe the target of a link.
        facts = directory.lstat()
    except OSError as error:
        raise ConfigError(f"no private directory: {error}") from error
    # A link, or a directory of another user, could lead the socket elsewhere.
    is_private = stat.S_ISDIR(facts.st_mode) and not stat.S_IMODE(facts.st_mode) & 0o077
    if not is_private or facts.st_uid != os.getuid():
        raise ConfigError(f"{directory} must be a directory that only this user can enter")


def listener(path: Path) -> int | None:
    """Return the id of the process that listens on a Unix socket.

    0: a process whose id the system does not tell. None: no process listens.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return None
        if not hasattr(socket, "SO_PEERCRED"):
            return 0
        # struct ucred {pid, uid, gid}: of a listening socket, the process that called listen
        size = struct.calcsize("3i")
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def owner_of_port(endpoint: str) -> str:
    """Describe the process that listens on a tcp port; empty if the system does not tell."""
    import psutil  # for an error's text only, so not with every start

    port = int(endpoint.rsplit(":", 1)[1])
    try:
        for connection in psutil.net_connections("tcp"):
            is_listening = connection.status == psutil.CONN_LISTEN
            if is_listening and connection.laddr[1:] == (port,) and connection.pid is not None:
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    # Other users' sockets may need more rights, and the process may have ended meanwhile.
    except (psutil.Error, OSError):
        return ""
    return ""


def remove_socket(endpoint: str) -> None:
    """Remove the socket of an ipc endpoint, and its directory if `default_endpoint` made it."""
    if not endpoint.startswith(_IPC):
        return
    path = Path(endpoint.removeprefix(_IPC))
    with contextlib.suppress(OSError):  # another process was faster, or uses the directory
        path.unlink(missing_ok=True)
        if path.parent.name.startswith(_DIRECTORY_PREFIX):
            path.parent.rmdir()
