"""Who is let in: four clients that are not, and a controller that cannot ask any more (F29)."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zmq
from msgspec import structs
from zmq.utils import z85

from arena.errors import AuthenticatorDead, ConfigError, NotAdmitted
from arena.failpoints import armed
from arena.learners.loop import new_learner_id
from arena.types import LearnerId
from arena.wire import authenticator
from arena.wire.authenticator import Authenticator
from arena.wire.codec import decode, encode
from arena.wire.keys import (
    LearnerKeys,
    fingerprint,
    holder_of,
    key_path,
    load_learner_keys,
    make_keys,
    write_secret,
)
from arena.wire.messages import Header, Message, Refuse, Welcome
from arena.wire.zeromq import ZmqControllerTransport, ZmqLearnerTransport
from tests.arena.wire.examples import HEARTBEAT, HELLO, RUN
from tests.arena.wire.test_zeromq import heard
from tests.faults.runs import check_left, document, finished, launch, learners_of
from tests.integration.conftest import start
from tests.support import end_process, wait_until

TIMEOUT_S = 110.0
EPOCH = 1


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", names=("learner-0", "learner-1"))
    return tmp_path / "keys"


@pytest.fixture
def controller(directory: Path) -> Iterator[ZmqControllerTransport]:
    keys = make_keys(directory, names=())
    transport = ZmqControllerTransport("tcp://127.0.0.1:*", run=RUN, epoch=EPOCH, keys=keys)
    yield transport
    transport.close(linger_s=0.0)


def unknown(keys: LearnerKeys) -> LearnerKeys:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    return keys.model_copy(update={"public_key": public, "secret_key": secret})


@contextlib.contextmanager
def learner_with(
    endpoint: str, keys: LearnerKeys | None, *, learner: LearnerId | None = None
) -> Iterator[ZmqLearnerTransport]:
    name = learner or new_learner_id(keys.name if keys is not None else None)
    transport = ZmqLearnerTransport(endpoint, run=RUN, learner=name, keys=keys)
    try:
        yield transport
    finally:
        transport.close(linger_s=0.0)


def is_refused(controller: ZmqControllerTransport, learner: ZmqLearnerTransport) -> str:
    """Why a learner gives up; until then the controller hears nothing of it."""
    reasons: list[str] = []

    def gives_up() -> bool:
        learner.send(HELLO, epoch=0)
        assert controller.receive(0.01) == []
        try:
            assert learner.receive(0.01) is None
        except NotAdmitted as error:
            reasons.append(str(error))
        return bool(reasons)

    wait_until(gives_up, timeout_s=TIMEOUT_S)
    return reasons[0]


def check_lets_in(controller: ZmqControllerTransport, keys: LearnerKeys) -> None:
    """Whoever has a key is heard, whatever others have tried."""
    name = new_learner_id(keys.name)
    with learner_with(controller.endpoint, keys, learner=name) as learner:
        hello = structs.replace(HELLO, learner=name)
        wait_until(lambda: learner.send(hello, epoch=0), timeout_s=TIMEOUT_S)
        assert heard(controller) == [(name, hello)]


def test_a_key_that_nobody_knows_is_refused_for_good_and_named_by_its_fingerprint(
    controller: ZmqControllerTransport,
    directory: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The log has one line a second, which an earlier test may have used, so the filter is removed.
    monkeypatch.setattr(authenticator.logger, "filters", [])
    own = load_learner_keys(key_path(directory, "learner-0"))
    stranger = unknown(own)
    with (
        caplog.at_level(logging.WARNING),
        learner_with(controller.endpoint, stranger) as learner,
    ):
        assert "does not know this learner's key" in is_refused(controller, learner)
    assert fingerprint(z85.decode(stranger.public_key)) in caplog.text
    for secret in (stranger.secret_key, stranger.public_key, own.secret_key):
        assert secret not in caplog.text
    assert controller.num_bad == {"key": 1}
    check_lets_in(controller, own)


@pytest.mark.parametrize("case", ["no keys", "the key of another controller"])
def test_who_cannot_even_speak_with_the_controller_gives_up_after_some_attempts(
    controller: ZmqControllerTransport, directory: Path, case: str
) -> None:
    own = load_learner_keys(key_path(directory, "learner-0"))
    wrong = own.model_copy(update={"controller_key": zmq.curve_keypair()[0].decode()})
    with learner_with(controller.endpoint, None if case == "no keys" else wrong) as learner:
        reason = is_refused(controller, learner)
    # Without keys either end may hang up first; the learner gives up as soon as it is the
    # learner's.
    times = range(1, 6) if case == "no keys" else (5,)
    assert any(f"has hung up, {n} times" in reason for n in times), reason
    assert "wants a key (--keys)" in reason
    assert controller.num_bad == {}
    check_lets_in(controller, own)


def test_a_key_does_not_speak_for_another_learner(
    controller: ZmqControllerTransport, directory: Path
) -> None:
    own, other = (load_learner_keys(key_path(directory, f"learner-{n}")) for n in (0, 1))
    victim = new_learner_id(other.name)
    with pytest.raises(ValueError, match="cannot have the key learner-0"):
        ZmqLearnerTransport(controller.endpoint, run=RUN, learner=victim, keys=own)
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.setsockopt(zmq.ROUTING_ID, victim.encode())
        peer.setsockopt_string(zmq.CURVE_PUBLICKEY, own.public_key)
        peer.setsockopt_string(zmq.CURVE_SECRETKEY, own.secret_key)
        peer.setsockopt_string(zmq.CURVE_SERVERKEY, own.controller_key)
        peer.connect(controller.endpoint)
        header = Header(run=RUN, epoch=EPOCH, learner=victim, sequence=0)
        peer.send_multipart(encode(header, HEARTBEAT))

        def is_counted() -> bool:
            assert controller.receive(0.01) == []
            return controller.num_bad == {"impostor": 1}

        wait_until(is_counted, timeout_s=TIMEOUT_S)
        assert peer.poll(int(TIMEOUT_S * 1000))
        answer = decode(peer.recv_multipart())[1]
    assert isinstance(answer, Refuse)
    assert answer.reason == f"the key learner-0 does not speak for learner {victim}"
    check_lets_in(controller, other)


def key_of(text: str, path: Path) -> LearnerKeys:
    """The key of a text, as the process that was sent it reads it."""
    write_secret(path, text)
    return load_learner_keys(path)


def test_a_key_for_one_process_is_in_no_file_and_is_forgotten_with_it(
    controller: ZmqControllerTransport, directory: Path, tmp_path: Path
) -> None:
    before = sorted(directory.iterdir())
    first, second = (key_of(controller.admit(f"slot0-{n}"), tmp_path / str(n)) for n in (1, 2))
    name = new_learner_id(first.name)
    with learner_with(controller.endpoint, first, learner=name) as stale:
        wait_until(
            lambda: stale.send(structs.replace(HELLO, learner=name), epoch=0), timeout_s=TIMEOUT_S
        )
        assert heard(controller) == [(name, structs.replace(HELLO, learner=name))]
        controller.send(name, Welcome(heartbeat_s=1.0))
        wait_until(lambda: stale.receive(0.01), timeout_s=TIMEOUT_S)
        controller.forget(first.name)
        # The old connection is open, but its messages are ignored and not taken for the new one's.
        for message in (HEARTBEAT, structs.replace(HELLO, learner=name)):
            assert stale.send(message, epoch=EPOCH)
        answers: list[Message] = []

        def is_told() -> bool:
            assert controller.receive(0.01) == []
            received = stale.receive(0.01)
            answers.extend([received[1]] if received is not None else [])
            return controller.num_bad == {"replaced": 2} and bool(answers)

        wait_until(is_told, timeout_s=TIMEOUT_S)
        assert answers == [Refuse(reason="the key slot0-1 is valid no more")]
        check_lets_in(controller, second)
    # The old process cannot connect again, either.
    with learner_with(controller.endpoint, first) as again:
        assert "does not know this learner's key" in is_refused(controller, again)
    assert sorted(directory.iterdir()) == before


def test_nobody_is_let_in_when_nobody_can_be_asked_and_the_controller_ends(
    controller: ZmqControllerTransport, directory: Path
) -> None:
    keys = load_learner_keys(key_path(directory, "learner-0"))
    with armed("authenticator.asked=raise:EIO@1"), learner_with(controller.endpoint, keys) as own:
        authenticator = controller._authenticator
        assert authenticator is not None
        wait_until(lambda: not authenticator.is_alive(), timeout_s=TIMEOUT_S)
        # The thread is dead but its socket is open, so the request is never answered.
        assert not own.send(HELLO, epoch=0)
        with pytest.raises(AuthenticatorDead, match="--resume goes on"):
            controller.receive(0.0)
        assert own.receive(0.3) is None
        assert not own.send(HELLO, epoch=0)


def test_without_the_socket_libzmq_lets_everybody_in_and_the_controller_does_not(
    controller: ZmqControllerTransport,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second line of defence: each message says which key let its connection in."""
    authenticator = controller._authenticator
    assert authenticator is not None
    authenticator.stop()
    authenticator._socket.close()
    monkeypatch.setattr(Authenticator, "is_alive", lambda self: True)
    keys = load_learner_keys(key_path(directory, "learner-0"))
    with learner_with(controller.endpoint, unknown(keys)) as stranger:
        wait_until(lambda: stranger.send(HELLO, epoch=0), timeout_s=TIMEOUT_S)

        def is_counted() -> bool:
            assert controller.receive(0.01) == []
            return bool(controller.num_bad)

        wait_until(is_counted, timeout_s=TIMEOUT_S)
    assert set(controller.num_bad) == {"impostor"}


def test_keys_are_for_tcp(directory: Path, tmp_path: Path) -> None:
    keys = make_keys(directory, names=())
    own = load_learner_keys(key_path(directory, "learner-0"))
    with pytest.raises(ConfigError, match="needs none"):
        ZmqControllerTransport(f"ipc://{tmp_path}/s", run=RUN, epoch=EPOCH, keys=keys)
    with pytest.raises(ConfigError, match="needs none"):
        ZmqLearnerTransport(
            f"ipc://{tmp_path}/s", run=RUN, learner=new_learner_id(own.name), keys=own
        )


def test_learners_of_a_run_with_keys_join_and_others_do_not(tmp_path: Path) -> None:
    """From the command line: a local learner, a remote one, one without a key."""
    run = tmp_path / "run"
    with contextlib.ExitStack() as stack:
        process = launch(run, document(endpoint="tcp://127.0.0.1:*", remote_learners=1))
        stack.callback(end_process, process)
        wait_until(lambda: finished(run) >= 1, timeout_s=TIMEOUT_S)
        endpoint = str(live(run)["endpoint"])
        assert endpoint.startswith("tcp://127.0.0.1:")
        join: list[str | Path] = ["learner", run / "run.yaml", "--connect", endpoint]
        remote = start([*join, "--keys", run / "keys" / "remote-0.key"])
        stack.callback(end_process, remote)
        wait_until(lambda: "remote-0" in holders(run), timeout_s=TIMEOUT_S)
        assert holders(run) == {"learner-0", "remote-0"}
        uninvited = start(join)
        stack.callback(end_process, uninvited)
        assert "has hung up" in uninvited.communicate(timeout=TIMEOUT_S)[1]
        assert uninvited.returncode == 2
        check_no_secret_outside(run)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
        remote.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, remote.returncode) == (143, 0)
    check_left(run)
    check_keys_are_kept(run)


def check_keys_are_kept(run: Path) -> None:
    """Resumed, the run has the keys that it had."""
    keys = {path.name: path.read_bytes() for path in (run / "keys").iterdir()}
    before = finished(run)
    process = launch(run, None)
    with contextlib.ExitStack() as stack:
        stack.callback(end_process, process)
        wait_until(lambda: finished(run) > before, timeout_s=TIMEOUT_S)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    assert {path.name: path.read_bytes() for path in (run / "keys").iterdir()} == keys


def check_no_secret_outside(run: Path) -> None:
    """Not in arguments, environments, logs, the journal, or any other file of the run."""
    secrets = [
        json.loads(path.read_text())["secret_key"].encode() for path in (run / "keys").glob("*.key")
    ]
    assert len(secrets) == 3
    texts = []
    for folder, _, names in os.walk(run):
        for name in names:
            # The run continues and removes checkpoints while they are read.
            with contextlib.suppress(FileNotFoundError):
                texts.append((Path(folder) / name).read_bytes())
    inside = [path.read_bytes() for path in (run / "keys").iterdir()]
    for process in learners_of(run):
        with contextlib.suppress(psutil.Error):
            texts += [os.fsencode(part) for part in process.cmdline()]
            texts += [os.fsencode(value) for value in process.environ().values()]
    for secret in secrets:
        assert sum(secret in text for text in texts) == sum(secret in text for text in inside) == 1


def live(run: Path) -> dict[str, object]:
    path = run / "status.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def holders(run: Path) -> set[str]:
    """Whose keys the learners of a run have."""
    rows = live(run).get("learners", [])
    assert isinstance(rows, list)
    return {holder_of(row["learner"]) for row in rows}


def test_a_run_whose_authenticator_dies_ends_with_3_and_says_why(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = launch(
        run,
        document(endpoint="tcp://127.0.0.1:*"),
        failpoints="authenticator.asked=raise:EIO@1",
    )
    with contextlib.ExitStack() as stack:
        stack.callback(end_process, process)
        _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3
    assert "the thread that checks learners' keys has ended" in errors
    assert "--resume goes on" in errors
    check_left(run)
