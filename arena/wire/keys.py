"""Keys of a controller and its learners (CURVE): files that only their owner can read. Torch-free.

    keys/controller.key    the controller's pair
    keys/NAME.key          a learner's pair, and the controller's public key
    keys/NAME.pub          the learner's public key, which admits it

A key belongs to one learner, and the ids of its processes begin with the key's name. Secrets are in
files of mode 0600 and in memory, never in arguments, messages, logs or errors. A launcher may also
have a pair made for one process alone (`new_learner_key`): the controller keeps its public half in
memory, and forgets it with the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import zmq
from pydantic import Field, ValidationError
from zmq.utils import z85

from arena.config import Model
from arena.errors import ConfigError
from arena.files import open_regular
from arena.wire.address import make_private

KEYS = "keys"
"""Directory of the keys in a run's directory, of mode 0700."""

CONTROLLER = "controller"
SECRET_SUFFIX = ".key"
PUBLIC_SUFFIX = ".pub"
FORMAT_VERSION = 1
MAX_FILE_BYTES = 4096

# A name is also a file name and the first part of ids on the wire, so it has no dot or slash.
_NAME = r"[a-z][a-z0-9]{0,11}-[0-9]{1,6}"
# Z85 has five characters per four bytes, so 32 bytes are 40 characters.
_Z85 = r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}"


class _Public(Model):
    """``.pub`` file."""

    format_version: int = Field(FORMAT_VERSION, ge=1, le=FORMAT_VERSION)
    name: str = Field(pattern=rf"^({CONTROLLER}|{_NAME})$")
    public_key: str = Field(pattern=f"^{_Z85}$")


class _Pair(_Public):
    """``controller.key`` file."""

    secret_key: str = Field(pattern=f"^{_Z85}$", repr=False)


class LearnerKeys(_Pair):
    """Learner's ``.key`` file: its keys, and that of the controller that it trusts.

    The learner's id begins with the name.
    """

    controller_key: str = Field(pattern=f"^{_Z85}$")


_File = TypeVar("_File", bound=_Public)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerKeys:
    """Keys of a controller, and the learners that it admits.

    Attributes:
        pair: Its own keys.
        learners: Names by public key (32 bytes).
        renewed: Learners whose pairs were made anew because the controller's was lost: copies of
            their files elsewhere are of no use any more.
    """

    pair: _Pair
    learners: Mapping[bytes, str]
    renewed: tuple[str, ...] = ()


def make_keys(directory: Path, *, names: Iterable[str]) -> ControllerKeys:
    """Make the missing keys of the controller and these learners; existing ones stay.

    Call it under the run's lock. Removing a ``.pub`` file revokes a key: its name gets a new pair
    here. Where the controller's pair is lost, all pairs are made anew, as learners' files name it.

    Raises:
        ConfigError: If the directory or a file in it can be read by others, or is no key file.
        OSError: If the disk refuses.
    """
    make_private(directory)
    path = directory / f"{CONTROLLER}{SECRET_SUFFIX}"
    renewed: tuple[str, ...] = ()
    if not path.exists():
        renewed = tuple(sorted(_learners(directory).values()))
        # The .pub files are removed first, so that after a crash the next call finds none and
        # makes them anew.
        for name in renewed:
            (directory / f"{name}{PUBLIC_SUFFIX}").unlink()
        public, secret = _new_pair()
        _write(path, _Pair(name=CONTROLLER, public_key=public, secret_key=secret))
    controller = _read(path, _Pair)
    for name in dict.fromkeys((*names, *renewed)):
        # The .pub file is decisive: without it the key is revoked, and the name gets a new pair.
        if not (directory / f"{name}{PUBLIC_SUFFIX}").exists():
            _make_learner(directory, name, controller_key=controller.public_key)
    return ControllerKeys(pair=controller, learners=_learners(directory), renewed=renewed)


def new_learner_key(name: str, *, controller: str) -> tuple[bytes, str]:
    """Make a pair for one process, which is in no file of the controller's.

    Args:
        name: Name of the key.
        controller: The controller's public key, Z85.

    Returns:
        The public key (32 bytes), and the text of the process's ``.key`` file.
    """
    public, secret = _new_pair()
    pair = LearnerKeys(name=name, public_key=public, secret_key=secret, controller_key=controller)
    return z85.decode(public), pair.model_dump_json()


def write_secret(path: Path, text: str) -> None:
    """Make a file that only this user can read, whole or not at all.

    Raises:
        OSError: If the disk refuses.
    """
    temporary = path.with_name(f".tmp-{path.name}")
    with contextlib.suppress(FileNotFoundError):  # left by a launch that was killed
        temporary.unlink()
    # With O_EXCL and the mode at creation, the secret is never readable by others. pyzmq's own
    # writer leaves key files as readable as the umask allows.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    # The rename follows fsync, because after a power loss the name must not lead to an empty file.
    os.replace(temporary, path)


def key_path(directory: Path, name: str) -> Path:
    """Return the path of a learner's key pair."""
    return directory / f"{name}{SECRET_SUFFIX}"


def load_learner_keys(path: Path) -> LearnerKeys:
    """Read a learner's ``.key`` file.

    Raises:
        ConfigError: If it cannot be read, others can read it, or it is no such file. The message
            quotes nothing of its content.
    """
    return _read(path, LearnerKeys)


def holder_of(learner: str) -> str:
    """Return the name of the key that belongs to a learner's id."""
    # Ids are NAME.random: the name is the key's, and the rest is new for each process.
    return learner.partition(".")[0]


def fingerprint(public: bytes) -> str:
    """Return the name of a public key (32 bytes) in logs."""
    return hashlib.sha256(public).hexdigest()[:16]


def _make_learner(directory: Path, name: str, *, controller_key: str) -> None:
    """Write the two files of a new pair of a learner."""
    public, text = new_learner_key(name, controller=controller_key)
    write_secret(key_path(directory, name), text)
    # The .pub file is written last, so that after a crash `make_keys` finds none and makes the
    # pair anew.
    known = _Public(name=name, public_key=z85.encode(public).decode())
    _write(directory / f"{name}{PUBLIC_SUFFIX}", known)


def _learners(directory: Path) -> dict[bytes, str]:
    learners: dict[bytes, str] = {}
    for path in sorted(directory.glob(f"*{PUBLIC_SUFFIX}")):
        public = _read(path, _Public)
        # A copied file with another name would admit one key twice. "controller" is no learner's
        # name.
        if path.stem != public.name or not re.fullmatch(_NAME, public.name):
            raise ConfigError(f"{path} must be named after the learner whose key it is")
        learners[z85.decode(public.public_key)] = public.name
    return learners


def _new_pair() -> tuple[str, str]:
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def _write(path: Path, document: _Public) -> None:
    write_secret(path, document.model_dump_json())


def _read(path: Path, kind: type[_File]) -> _File:
    try:
        with open_regular(path) as file:
            # The open file is checked instead of the path, which may be replaced in between.
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise ConfigError(
                    f"{path} must be a file that only its owner can read: chmod 600 {path}"
                )
            # A longer file is truncated here and then fails to parse.
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the key file {path}: {error.strerror}") from error
    try:
        return kind.model_validate_json(data)
    except ValidationError:
        # The error's text would quote the file, which may contain a secret.
        raise ConfigError(f"{path} is no key file of this kind, or of a later release") from None
