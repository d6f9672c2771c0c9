from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.errors import AddressInUse, ConfigError
from arena.wire.address import (
    check_endpoint,
    check_listening,
    default_endpoint,
    is_loopback,
    remove_socket,
)


@pytest.mark.parametrize(
    ("endpoint", "normal"),
    [
        ("ipc:///run/user/0/arena/x", "ipc:///run/user/0/arena/x"),
        ("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5555"),
        ("tcp://127.1.2.3:*", "tcp://127.1.2.3:*"),
        ("tcp://localhost:5555", "tcp://127.0.0.1:5555"),
        ("tcp://[::1]:5555", "tcp://[::1]:5555"),
    ],
)
def test_this_machine_may_be_listened_on(endpoint: str, normal: str) -> None:
    assert check_endpoint(endpoint) == normal


@pytest.mark.parametrize(
    ("endpoint", "rule"),
    [
        ("tcp://*:5555", "must be ipc"),
        ("tcp://0.0.0.0:5555", "on loopback"),
        ("tcp://[::]:5555", "on loopback"),
        ("tcp://[::ffff:10.0.0.1]:5555", "must be ipc"),
        ("tcp://192.168.1.5:5555", "on loopback"),
        ("tcp://example.org:5555", "on loopback"),
        ("tcp://127.0.0.1.example.org:5555", "on loopback"),
        ("tcp://localhost.example.org:5555", "on loopback"),
        ("tcp://2130706433:5555", "on loopback"),
        ("tcp://eth0:5555", "on loopback"),
        ("tcp://127.0.0.1:99999", "at most 65535"),
        ("tcp://127.0.0.1", "must be ipc"),
        ("tcp://10.0.0.1;127.0.0.1:5555", "must be ipc"),
        ("tcp://127.0.0.1:5555\n", "must be ipc"),
        ("ipc://@arena", "must be absolute"),
        ("ipc://*", "must be absolute"),
        ("ipc://relative/path", "must be absolute"),
        ("ipc:///" + "x" * 107, "at most 107 bytes"),
        ("ipc:///a\0b", "none of them zero"),
        ("inproc://x", "must be ipc"),
        ("", "must be ipc"),
    ],
)
def test_everything_else_is_refused_with_the_rule(endpoint: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        check_endpoint(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://192.168.1.5:5555", "tcp://[2001:db8::1]:*", "tcp://127.0.0.1:5555", "tcp://[::1]:1"],
)
def test_with_keys_any_address_of_a_machine_may_be_listened_on(endpoint: str) -> None:
    assert check_endpoint(endpoint, has_keys=True) == endpoint
    assert check_listening(endpoint) == endpoint
    assert is_loopback(endpoint) == ("127" in endpoint or "::1]:1" in endpoint)


def test_with_keys_a_learner_may_connect_to_a_name_but_nobody_can_listen_on_one() -> None:
    assert check_endpoint("tcp://example.org:5555", has_keys=True) == "tcp://example.org:5555"
    assert not is_loopback("tcp://example.org:5555")
    with pytest.raises(ConfigError, match="an IP address of this machine"):
        check_listening("tcp://example.org:5555")
    with pytest.raises(ConfigError, match="an IP address of this machine"):
        check_listening("ipc:///tmp/socket")


@pytest.mark.parametrize(
    "endpoint", ["tcp://0.0.0.0:5555", "tcp://[::]:5555", "tcp://224.0.0.1:5555"]
)
def test_with_keys_all_addresses_at_once_are_refused_all_the_same(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="one address of one machine"):
        check_endpoint(endpoint, has_keys=True)


def test_a_live_socket_is_not_taken_over(runtime: Path) -> None:
    path = Path(default_endpoint("run-1").removeprefix("ipc://"))
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(path))
        live.listen()
        with pytest.raises(AddressInUse, match=f"is live, process {os.getpid()}"):
            default_endpoint("run-1")
    assert path.exists()
    assert default_endpoint("run-1") == f"ipc://{path}"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rt-", dir="/tmp") as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield Path(directory)


def test_the_default_is_a_short_path_in_a_private_directory(runtime: Path) -> None:
    endpoint = default_endpoint("run-1")
    path = Path(endpoint.removeprefix("ipc://"))
    assert check_endpoint(endpoint) == endpoint
    assert path.parent.parent == runtime
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert default_endpoint("run-1") == endpoint
    assert default_endpoint("run-2") != endpoint


def test_a_stale_socket_is_removed(runtime: Path) -> None:
    path = Path(default_endpoint("run-1").removeprefix("ipc://"))
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    assert path.exists()
    default_endpoint("run-1")
    assert not path.exists()


@pytest.mark.parametrize("runtime_dir", ["", "relative", "/nowhere/at/all"])
def test_the_temporary_directory_serves_where_there_is_no_runtime_directory(
    monkeypatch: pytest.MonkeyPatch, runtime_dir: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime_dir)
    endpoint = default_endpoint(f"test-{os.getpid()}")
    assert endpoint.startswith(f"ipc://{tempfile.gettempdir()}/arena-")
    remove_socket(endpoint)


def test_a_long_runtime_directory_is_passed_over(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = runtime / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    endpoint = default_endpoint(f"test-{os.getpid()}")
    assert str(long) not in endpoint
    assert list(long.iterdir()) == []
    remove_socket(endpoint)


def test_a_directory_that_others_can_enter_is_refused(runtime: Path) -> None:
    path = Path(default_endpoint("run-1").removeprefix("ipc://"))
    path.parent.chmod(0o755)
    with pytest.raises(ConfigError, match="only this user can enter"):
        default_endpoint("run-1")


def test_a_link_in_its_place_is_refused(runtime: Path) -> None:
    path = Path(default_endpoint("run-1").removeprefix("ipc://"))
    path.parent.rmdir()
    elsewhere = runtime / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    path.parent.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="must be a directory"):
        default_endpoint("run-1")


def test_removing_leaves_nothing_of_ours_and_nothing_of_others_gone(runtime: Path) -> None:
    endpoint = default_endpoint("run-1")
    path = Path(endpoint.removeprefix("ipc://"))
    path.touch()
    remove_socket(endpoint)
    assert list(runtime.iterdir()) == []
    remove_socket(endpoint)
    remove_socket("tcp://127.0.0.1:5555")
    other = runtime / "mine" / "socket"
    other.parent.mkdir()
    remove_socket(f"ipc://{other}")
    assert other.parent.exists()
