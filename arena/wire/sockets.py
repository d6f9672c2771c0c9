"""ZeroMQ sockets with this project's limits, keys and ways to read them.

Tests: `tests/arena/wire/test_zeromq.py`.
"""

from __future__ import annotations

import math

import zmq

from arena.errors import AddressInUse, ConfigError
from arena.wire.address import check_endpoint, owner_of_port
from arena.wire.authenticator import DOMAIN, Authenticator
from arena.wire.codec import MAX_FRAME_BYTES
from arena.wire.keys import ControllerKeys, LearnerKeys

MAX_QUEUED = 256

# Receive limits apply per connection, before any byte reaches Python.
_OPTIONS: dict[zmq.SocketOption, int] = {
    zmq.LINGER: 0,
    zmq.MAXMSGSIZE: MAX_FRAME_BYTES,
    zmq.SNDHWM: MAX_QUEUED,
    zmq.RCVHWM: MAX_QUEUED,
    zmq.HANDSHAKE_IVL: 5000,
    # These only detect half-open connections, because libzmq answers them even if Python hangs.
    # Heartbeat messages decide about liveness.
    zmq.HEARTBEAT_IVL: 2000,
    zmq.HEARTBEAT_TIMEOUT: 6000,
}
# With ROUTER_MANDATORY a send to an absent learner raises instead of being dropped silently.
_ROUTER_OPTIONS: dict[zmq.SocketOption, int] = {zmq.ROUTER_MANDATORY: 1}
_DEALER_OPTIONS: dict[zmq.SocketOption, int] = {
    zmq.IMMEDIATE: 1,  # nothing is queued for a controller that is away, to reach the next one
    # The kernel doubles its own pauses: after a minute without a network it would wait another
    # one.
    zmq.CONNECT_TIMEOUT: 5000,
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 5000,
}


def new_router(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> zmq.Socket[bytes]:
    """Return a ROUTER for an endpoint that `bind` then binds."""
    return _socket(context, zmq.ROUTER, endpoint, _ROUTER_OPTIONS)


def new_dealer(
    context: zmq.Context[zmq.Socket[bytes]],
    endpoint: str,
    *,
    identity: str,
    keys: LearnerKeys | None,
) -> zmq.Socket[bytes]:
    """Return a DEALER with an identity and a learner's keys, which connects nowhere yet."""
    socket = _socket(context, zmq.DEALER, endpoint, _DEALER_OPTIONS)
    # The identity is new for each process, because ROUTER silently ignores a second peer with the
    # same one.
    socket.setsockopt(zmq.ROUTING_ID, identity.encode())
    if keys is not None:
        socket.setsockopt_string(zmq.CURVE_PUBLICKEY, keys.public_key)
        socket.setsockopt_string(zmq.CURVE_SECRETKEY, keys.secret_key)
        socket.setsockopt_string(zmq.CURVE_SERVERKEY, keys.controller_key)
    return socket


def ask_for_keys(
    context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], keys: ControllerKeys
) -> Authenticator:
    """Have a socket that is not bound yet admit holders of keys only; returns who checks them."""
    # The authenticator is bound before the socket, because libzmq admits every connection until
    # then, and because it must count all connections.
    authenticator = Authenticator(context, guarded=socket, learners=keys.learners)
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    # All options are set before bind, because libzmq applies them only to later connections.
    socket.setsockopt_string(zmq.CURVE_PUBLICKEY, keys.pair.public_key)
    socket.setsockopt_string(zmq.CURVE_SECRETKEY, keys.pair.secret_key)
    socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
    return authenticator


def bind(socket: zmq.Socket[bytes], endpoint: str) -> str:
    """Bind a socket, and return the address with the port that the system has chosen for ``*``.

    Raises:
        AddressInUse: If the address is in use or cannot be listened on.
    """
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise AddressInUse(_cannot_listen(endpoint, error)) from error
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def check_address(endpoint: str, *, has_keys: bool) -> str:
    """Check an endpoint, and return it for ZeroMQ.

    Raises:
        ConfigError: If it could be reached from elsewhere without keys, or needs none.
    """
    checked = check_endpoint(endpoint, has_keys=has_keys)
    # A Unix socket is protected by the mode of its directory.
    if has_keys and not checked.startswith("tcp://"):
        raise ConfigError(f"keys are for tcp endpoints, {endpoint!r} needs none")
    return checked


def receive_parts(socket: zmq.Socket[bytes], *, limit: int) -> list[zmq.Frame] | None:
    """Return the parts of one message; of a longer one, one part more than the limit is kept."""
    try:
        parts = [socket.recv(zmq.NOBLOCK, copy=False)]
    except zmq.Again:
        return None
    while socket.getsockopt(zmq.RCVMORE):
        # Frames beyond the limit are read and dropped, so that the next read begins at a message.
        part = socket.recv(zmq.NOBLOCK, copy=False)
        if len(parts) <= limit:
            parts.append(part)
    return parts


def send_to(socket: zmq.Socket[bytes], identity: bytes, frames: list[bytes]) -> bool:
    """Send frames to a ROUTER's peer; False if it is gone, or its queue is full."""
    try:
        socket.send_multipart([identity, *frames], flags=zmq.NOBLOCK)
    except zmq.ZMQError as error:
        # Both errors mean "not delivered" for the caller.
        if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
            return False
        raise
    return True


def key_name(part: zmq.Frame) -> str | None:
    """Return the name under which a part's connection was admitted; None without keys."""
    try:
        return str(part.get("User-Id"))
    except zmq.ZMQError:
        return None


def milliseconds(duration_s: float) -> int:
    """Return a time to wait for ZeroMQ."""
    # The value is rounded up, because 0 would poll in a busy loop; a negative timeout is endless.
    return max(0, math.ceil(duration_s * 1000))


def _cannot_listen(endpoint: str, error: zmq.ZMQError) -> str:
    reason = f"cannot listen on {endpoint}: {zmq.strerror(error.errno or 0)}"
    owner = owner_of_port(endpoint) if error.errno == zmq.EADDRINUSE else ""
    return f"{reason} by {owner}" if owner else reason


def _socket(
    context: zmq.Context[zmq.Socket[bytes]],
    kind: zmq.SocketType,
    endpoint: str,
    options: dict[zmq.SocketOption, int],
) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    for option, value in (_OPTIONS | options).items():
        socket.setsockopt(option, value)
    if "[" in endpoint:
        socket.setsockopt(zmq.IPV6, 1)
    return socket
