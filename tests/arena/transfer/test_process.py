"""The store's process among learners and strangers, over real sockets."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import zmq

from arena.checkpoints.files import encode_manifest
from arena.checkpoints.publish import publish
from arena.errors import AddressInUse, StoreUnreachable
from arena.processes.parent import Child
from arena.transfer.cache import Cache, take_directory
from arena.transfer.process import MAX_WAITING
from arena.transfer.remote_store import RemoteStore
from arena.transfer.terms import Grant
from arena.types import LearnerId
from arena.wire.codec import encode
from arena.wire.keys import (
    key_path,
    load_learner_keys,
    make_keys,
    new_learner_key,
    write_secret,
)
from arena.wire.messages import Goodbye, Header
from arena.wire.sockets import new_dealer
from arena.wire.store_messages import Denied, Fetch, Give, Held, Piece, StoreAnswer
from arena.wire.store_sockets import StoreConnection, StoreListener
from populations.launchers import store_keeper
from populations.launchers.store_keeper import StoreKeeper
from tests.arena.transfer.conftest import GRANTS, Run, checkpoint, files_in, setup_of
from tests.arena.wire.examples import RUN
from tests.support import wait_until

pytestmark = pytest.mark.xdist_group("processes")

TIMEOUT_S = 30.0
LEARNER = LearnerId("remote-0.host-1-0a0b0c0d")
MANY = 1 << 40


@dataclass
class Place:
    """What a launch leaves for its store's process."""

    run: Run
    keys: Path

    def keeper(self, bind: str = "tcp://127.0.0.1:*") -> StoreKeeper:
        setup = self.run.root / "learner.json"
        setup.write_text(setup_of(self.run.root).model_dump_json())
        log = self.run.root / "logs" / "store.log"
        admitted = make_keys(self.keys, names=()).learners
        keeper = StoreKeeper(
            setup_path=setup, bind=bind, keys=self.keys, admitted=admitted, log_path=log
        )
        keeper.grant(GRANTS)
        return keeper

    @contextmanager
    def connection(
        self, endpoint: str, *, name: str = "remote-0", learner: LearnerId = LEARNER
    ) -> Iterator[StoreConnection]:
        keys = load_learner_keys(key_path(self.keys, name))
        with closing(StoreConnection(endpoint, run=RUN, learner=learner, keys=keys)) as connection:
            yield connection


@pytest.fixture
def place(run: Run) -> Place:
    keys = run.root / "keys"
    make_keys(keys, names=["remote-0", "remote-1"])
    return Place(run=run, keys=keys)


def children() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "arena.transfer.process" in child.cmdline():
                found.append(child)
    return found


def store_through(
    connection: StoreConnection, root: Path, *, patience_s: float = TIMEOUT_S
) -> RemoteStore:
    root.mkdir(exist_ok=True)
    return RemoteStore(connection, Cache(root, max_bytes=MANY), patience_s=patience_s)


@pytest.mark.slow
def test_checkpoints_go_both_ways_and_kills_are_survived(place: Place, tmp_path: Path) -> None:
    run = place.run
    with place.keeper() as keeper, place.connection(keeper.endpoint) as connection:
        endpoint = keeper.endpoint
        store = store_through(connection, tmp_path / "cache")
        for steps in (2000, 3000, 4000):
            store.fetch([run.known.ref])
            new = checkpoint(steps)
            publish(tmp_path / "cache", manifest=new.manifest, files=new.files)
            store.give([new.key])
            assert files_in(run.root / new.key) == files_in(tmp_path / "cache" / new.key)
            (process,) = children()
            process.send_signal(signal.SIGKILL)
            process.wait(TIMEOUT_S)
            wait_until(lambda: bool(children()), timeout_s=TIMEOUT_S)
            for file in (tmp_path / "cache" / run.known.key).iterdir():
                file.unlink()
        assert keeper.endpoint == endpoint
    assert children() == []


def is_answered(connection: StoreConnection) -> bool:
    """Whether a request that is made now is answered within a second."""
    number = connection.ask(REQUEST)
    while number is not None and (heard := connection.receive(1.0)) is not None:
        if heard[0] == number:
            return True
    return False


@pytest.mark.slow
def test_keys_come_and_go_while_it_runs_and_its_successor_knows_them(
    place: Place, tmp_path: Path
) -> None:
    keys = make_keys(place.keys, names=())
    public, text = new_learner_key("slot0-1", controller=keys.pair.public_key)
    write_secret(tmp_path / "slot0-1.key", text)
    own = load_learner_keys(tmp_path / "slot0-1.key")
    numbers = itertools.count()
    with place.keeper() as keeper, place.connection(keeper.endpoint) as other:

        def connect() -> StoreConnection:
            learner = LearnerId(f"slot0-1.{next(numbers)}")
            return StoreConnection(keeper.endpoint, run=RUN, learner=learner, keys=own)

        def gets_in() -> bool:
            with closing(connect()) as connection, contextlib.suppress(AssertionError):
                wait_until(lambda: is_answered(connection), timeout_s=1.0)
                return True
            return False

        assert not gets_in()
        keeper.admit_only({**keys.learners, public: "slot0-1"})
        wait_until(gets_in, timeout_s=TIMEOUT_S)
        with closing(connect()) as connection:
            wait_until(lambda: is_answered(connection), timeout_s=TIMEOUT_S)
            (process,) = children()
            process.kill()
            # The connection uses the same socket, so it was open before its key was known.
            wait_until(lambda: is_answered(connection), timeout_s=TIMEOUT_S)
            keeper.admit_only(keys.learners)
            wait_until(lambda: not is_answered(connection), timeout_s=TIMEOUT_S)
            assert not is_answered(connection)
        wait_until(lambda: is_answered(other), timeout_s=TIMEOUT_S)


def test_an_assignment_that_is_told_late_may_publish(place: Place) -> None:
    """The learner may be faster than the line about its assignment; without one it is refused."""
    new = checkpoint(3000)
    request = Give(key=new.key, file="manifest.json", offset=0)
    with place.keeper() as keeper, place.connection(keeper.endpoint) as connection:
        keeper.grant({})
        wait_until(lambda: is_answered(connection), timeout_s=TIMEOUT_S)

        def answer(grants: Mapping[str, tuple[Grant, ...]]) -> StoreAnswer:
            number = connection.ask(request, encode_manifest(new.manifest))
            assert number is not None
            keeper.grant(grants)
            while (heard := connection.receive(TIMEOUT_S)) is not None:
                if heard[0] == number:
                    return heard[1]
            raise AssertionError("the store does not answer")

        assert isinstance(answer(GRANTS), Held)
        wait_until(lambda: isinstance(answer({}), Denied), timeout_s=TIMEOUT_S)


def test_requests_of_one_learner_that_wait_are_no_matter_to_another(place: Place) -> None:
    new = checkpoint(3000)
    request, data = Give(key=new.key, file="manifest.json", offset=0), encode_manifest(new.manifest)
    crowd = LearnerId("remote-1.y")
    with (
        place.keeper() as keeper,
        place.connection(keeper.endpoint, name="remote-1", learner=crowd) as many,
        place.connection(keeper.endpoint) as one,
    ):
        keeper.grant({})
        wait_until(lambda: is_answered(many) and is_answered(one), timeout_s=TIMEOUT_S)
        for _ in range(MAX_WAITING):
            many.ask(request, data)
        # The last request is refused at once, so all requests have arrived by then.
        wait_until(lambda: many.ask(request, data) and many.receive(0.0), timeout_s=TIMEOUT_S)
        number = one.ask(request, data)
        keeper.grant(GRANTS)
        while (heard := one.receive(TIMEOUT_S)) and heard[0] != number:
            pass
        assert heard
        assert isinstance(heard[1], Held)


def test_a_process_that_cannot_be_started_for_a_while_is_tried_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_keeper, "AGAIN_S", 0.01)
    refusals = itertools.count()

    def refuse(*_: object, **__: object) -> Child:
        next(refusals)
        raise OSError(errno.EAGAIN, "no processes are left")

    with place.keeper() as keeper, place.connection(keeper.endpoint) as connection:
        monkeypatch.setattr(store_keeper, "Child", refuse)
        (process,) = children()
        process.kill()
        wait_until(lambda: next(refusals) > 5, timeout_s=TIMEOUT_S)
        monkeypatch.setattr(store_keeper, "Child", Child)
        wait_until(lambda: is_answered(connection), timeout_s=TIMEOUT_S)


@pytest.mark.slow
def test_a_process_that_is_stopped_is_replaced(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_keeper, "STUCK_S", 1.0)
    with place.keeper() as keeper, place.connection(keeper.endpoint) as connection:
        wait_until(lambda: is_answered(connection), timeout_s=TIMEOUT_S)
        (process,) = children()
        process.suspend()
        wait_until(lambda: not process.is_running(), timeout_s=TIMEOUT_S)
        wait_until(lambda: is_answered(connection), timeout_s=TIMEOUT_S)


def test_an_address_in_use_is_said(place: Place) -> None:
    with place.keeper() as keeper:
        with pytest.raises(AddressInUse, match="checkpoints cannot be served at tcp"):
            place.keeper(keeper.endpoint).__enter__()
        assert "cannot listen on" in (place.run.root / "logs" / "store.log").read_text()
    assert children() == []


@pytest.fixture
def listener(place: Place) -> Iterator[StoreListener]:
    with closing(
        StoreListener("tcp://127.0.0.1:*", run=RUN, keys=make_keys(place.keys, names=()))
    ) as listener:
        yield listener


REQUEST = Fetch(key="populations/x", file="manifest.json", offset=0)


def counted(listener: StoreListener, fault: str) -> bool:
    """Whether a fault has been counted, and nothing has got through."""
    assert listener.receive(0.02) == []
    return listener.num_bad.get(fault, 0) > 0


def header(*, run: str = RUN, learner: LearnerId = LEARNER) -> Header:
    return Header(run=run, epoch=0, learner=learner, sequence=1)


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        ([*encode(header(run="another"), REQUEST), b""], "run"),
        ([*encode(header(learner=LearnerId("remote-1.x")), REQUEST), b""], "impostor"),
        ([*encode(header(), Piece(size_bytes=1)), b""], "malformed"),
        ([*encode(header(), Goodbye(reason="")), b""], "malformed"),
        (encode(header(), REQUEST), "malformed"),
        ([*encode(header(), REQUEST), b"", b""], "malformed"),
        ([b"ARENA", bytes([1, 32]), b"", b"", b""], "version"),
        ([b""], "malformed"),
        ([b"x"] * 50, "malformed"),
    ],
    ids=["run", "holder", "answer", "other socket", "no data", "more", "version", "empty", "many"],
)
def test_what_is_no_request_of_this_learner_is_counted_and_dropped(
    place: Place, listener: StoreListener, frames: list[bytes], fault: str
) -> None:
    keys = load_learner_keys(key_path(place.keys, "remote-0"))
    with (
        zmq.Context() as context,
        new_dealer(context, listener.endpoint, identity=LEARNER, keys=keys) as peer,
    ):
        peer.connect(listener.endpoint)
        peer.send_multipart(frames)
        wait_until(lambda: counted(listener, fault), timeout_s=TIMEOUT_S)
    # Other learners are still served.
    learner = LearnerId("remote-1.y")
    with place.connection(listener.endpoint, name="remote-1", learner=learner) as other:
        wait_until(lambda: other.ask(REQUEST) is not None, timeout_s=TIMEOUT_S)
        (asked,) = listener.receive(TIMEOUT_S)
        assert (asked.learner, asked.request, asked.data) == ("remote-1.y", REQUEST, b"")


def test_a_key_that_is_withdrawn_is_refused_from_the_next_request_on(
    place: Place, listener: StoreListener
) -> None:
    with place.connection(listener.endpoint) as connection:
        wait_until(lambda: connection.ask(REQUEST) is not None, timeout_s=TIMEOUT_S)
        assert len(listener.receive(TIMEOUT_S)) == 1
        others = {
            public: name
            for public, name in make_keys(place.keys, names=()).learners.items()
            if name != "remote-0"
        }
        listener.admit_only(others)
        # The replaced connection is still open.
        assert connection.ask(REQUEST) is not None
        wait_until(lambda: counted(listener, "replaced"), timeout_s=TIMEOUT_S)
    with place.connection(listener.endpoint) as again:
        wait_until(lambda: counted(listener, "key"), timeout_s=TIMEOUT_S)
        assert again.ask(REQUEST) is None
    learner = LearnerId("remote-1.y")
    with place.connection(listener.endpoint, name="remote-1", learner=learner) as other:
        wait_until(lambda: other.ask(REQUEST) is not None, timeout_s=TIMEOUT_S)
        assert [asked.learner for asked in listener.receive(TIMEOUT_S)] == ["remote-1.y"]


def test_a_learner_that_does_not_read_stops_nobody(
    place: Place, listener: StoreListener, tmp_path: Path
) -> None:
    with (
        place.connection(listener.endpoint) as deaf,
        place.connection(
            listener.endpoint, name="remote-1", learner=LearnerId("remote-1.y")
        ) as other,
    ):
        wait_until(lambda: deaf.ask(REQUEST) is not None, timeout_s=TIMEOUT_S)
        (asked,) = listener.receive(TIMEOUT_S)
        # The queues hold fewer answers: the rest is dropped, and nothing blocks.
        sent = [listener.answer(asked, Piece(size_bytes=1), b"x" * 200_000) for _ in range(2000)]
        assert not all(sent)
        wait_until(lambda: other.ask(REQUEST) is not None, timeout_s=TIMEOUT_S)
        (heard,) = listener.receive(TIMEOUT_S)
        assert listener.answer(heard, Piece(size_bytes=2), b"ab")
        assert other.receive(TIMEOUT_S) == (heard.number, Piece(size_bytes=2), b"ab")


def test_a_store_that_is_not_there_is_given_up(place: Place, tmp_path: Path) -> None:
    with place.connection("tcp://127.0.0.1:9") as connection:
        store = store_through(connection, tmp_path / "cache", patience_s=0.3)
        with pytest.raises(StoreUnreachable, match="has not answered"):
            store.fetch([place.run.known.ref])


def test_each_learner_of_a_machine_has_a_directory(tmp_path: Path) -> None:
    first, held = take_directory(tmp_path / "cache")
    second, other = take_directory(tmp_path / "cache")
    assert (first.name, second.name) == ("0", "1")
    os.close(held)
    again, more = take_directory(tmp_path / "cache")
    assert again == first
    os.close(other)
    os.close(more)
