from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from zmq.utils import z85

from arena.errors import AddressInUse, ConfigError
from arena.wire.address import (
    check_endpoint,
    check_listening,
    default_endpoint,
    is_loopback,
    remove_socket,
)
from arena.wire.keys import holder_of, key_path, load_learner_keys, make_keys


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


NAMES = ("learner-0", "remote-0")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def secret_of(path: Path) -> str:
    return str(json.loads(path.read_text())["secret_key"])


def test_nobody_else_can_read_keys_whatever_the_umask_lets(directory: Path) -> None:
    before = os.umask(0)
    try:
        make_keys(directory, names=NAMES)
    finally:
        os.umask(before)
    assert mode(directory) == 0o700
    assert {path.name: mode(path) for path in directory.iterdir()} == dict.fromkeys(
        ["controller.key", *(f"{name}.{kind}" for name in NAMES for kind in ("key", "pub"))], 0o600
    )


def test_every_learner_has_a_pair_that_the_controller_knows_by_name(directory: Path) -> None:
    controller = make_keys(directory, names=NAMES)
    learners = [load_learner_keys(key_path(directory, name)) for name in NAMES]
    assert controller.learners == {z85.decode(own.public_key): own.name for own in learners}
    assert [own.name for own in learners] == list(NAMES)
    assert {own.controller_key for own in learners} == {controller.pair.public_key}
    assert len({controller.pair.secret_key, *(own.secret_key for own in learners)}) == 3


def test_keys_are_kept_and_missing_ones_are_made(directory: Path) -> None:
    first = make_keys(directory, names=NAMES)
    kept = {path.name: path.read_bytes() for path in directory.iterdir()}
    key_path(directory, "remote-0").unlink()  # it is on another machine now
    second = make_keys(directory, names=(*NAMES, "learner-1"))
    assert second.pair == first.pair
    assert second.learners.items() > first.learners.items()
    assert set(second.learners.values()) == {*NAMES, "learner-1"}
    del kept["remote-0.key"]
    assert {name: (directory / name).read_bytes() for name in kept} == kept
    assert not key_path(directory, "remote-0").exists()


def test_who_has_no_public_file_is_shut_out_and_its_name_gets_another_pair(directory: Path) -> None:
    first = make_keys(directory, names=NAMES)
    (directory / "remote-0.pub").unlink()
    second = make_keys(directory, names=NAMES)
    (old,) = (key for key, name in first.learners.items() if name == "remote-0")
    assert old not in second.learners
    assert set(second.learners.values()) == set(NAMES)
    new = load_learner_keys(key_path(directory, "remote-0"))
    assert second.learners[z85.decode(new.public_key)] == "remote-0"


def test_where_the_controllers_pair_is_lost_all_pairs_are_made_anew(directory: Path) -> None:
    first = make_keys(directory, names=NAMES)
    assert first.renewed == ()
    (directory / "controller.key").unlink()
    key_path(directory, "remote-0").unlink()  # it is on another machine now
    second = make_keys(directory, names=("learner-0", "learner-1"))
    assert second.pair != first.pair
    assert second.renewed == NAMES
    learners = [load_learner_keys(key_path(directory, name)) for name in (*NAMES, "learner-1")]
    assert {own.controller_key for own in learners} == {second.pair.public_key}
    assert second.learners == {z85.decode(own.public_key): own.name for own in learners}
    assert not second.learners.keys() & first.learners.keys()
    assert make_keys(directory, names=NAMES).renewed == ()


def test_a_launch_that_was_killed_leaves_nothing_in_the_way(directory: Path) -> None:
    make_keys(directory, names=())
    (directory / ".tmp-learner-0.key").write_text("half of a")
    assert set(make_keys(directory, names=("learner-0",)).learners.values()) == {"learner-0"}
    assert not list(directory.glob(".tmp-*"))


def test_secrets_are_in_no_text(directory: Path) -> None:
    controller = make_keys(directory, names=NAMES)
    learner = load_learner_keys(key_path(directory, "learner-0"))
    assert controller.pair.secret_key not in repr(controller)
    assert learner.secret_key not in repr(learner)
    assert b"secret" not in (directory / "learner-0.pub").read_bytes()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_key_that_others_can_read_is_refused(directory: Path, mode: int) -> None:
    make_keys(directory, names=NAMES)
    path = key_path(directory, "learner-0")
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"only its owner can read: chmod 600 {path}"):
        load_learner_keys(path)
    (directory / "controller.key").chmod(mode)
    with pytest.raises(ConfigError, match="only its owner can read"):
        make_keys(directory, names=NAMES)


def test_a_directory_of_keys_that_others_can_enter_is_refused(directory: Path) -> None:
    directory.mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="must be a directory that only this user can enter"):
        make_keys(directory, names=NAMES)
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("change", ["", "[]", "{", "null", "later", "short", "surprise", "name"])
def test_what_is_no_key_file_is_refused_and_not_quoted(directory: Path, change: str) -> None:
    make_keys(directory, names=NAMES)
    path = key_path(directory, "learner-0")
    secret = secret_of(path)
    document = json.loads(path.read_text())
    match change:
        case "later":
            document["format_version"] = 2
        case "short":
            document["secret_key"] = secret[:-1]
        case "surprise":
            document["surprise"] = secret
        case "name":
            document["name"] = "../../etc/passwd"
    text = change if change in ("", "[]", "{", "null") else json.dumps(document)
    path.write_text(text)
    with pytest.raises(ConfigError, match="is no key file") as caught:
        load_learner_keys(path)
    assert secret[:-1] not in str(caught.value)
    assert caught.value.__cause__ is None


def test_other_files_are_no_learners_keys(directory: Path, tmp_path: Path) -> None:
    make_keys(directory, names=NAMES)
    with pytest.raises(ConfigError, match="is no key file"):
        load_learner_keys(directory / "controller.key")
    with pytest.raises(ConfigError, match=r"cannot read the key file .*: No such file"):
        load_learner_keys(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"cannot read the key file .*: Is a directory"):
        load_learner_keys(tmp_path)
    (directory / "remote-0.pub").rename(directory / "remote-1.pub")
    with pytest.raises(ConfigError, match="named after the learner"):
        make_keys(directory, names=NAMES)


def test_a_learners_id_begins_with_the_name_of_its_key() -> None:
    assert holder_of("learner-0.host-4711-0a1b2c3d") == "learner-0"
    assert holder_of("host-4711-0a1b2c3d") == "host-4711-0a1b2c3d"
