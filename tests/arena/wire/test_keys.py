from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from zmq.utils import z85

from arena.errors import ConfigError
from arena.wire.keys import holder_of, key_path, load_learner_keys, make_keys

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


def test_a_directory_that_others_can_enter_is_refused(directory: Path) -> None:
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
