from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from arena.checkpoints.files import verify_directory
from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS
from arena.checkpoints.publish import publish, remove_directory
from arena.errors import CheckpointError, DiskRefused, StoreUnreachable
from arena.learners.loop import carry_out
from arena.learners.remote import RemoteWork
from arena.transfer import cache, service
from arena.transfer.cache import Cache
from arena.transfer.remote_store import PATIENCE_S, RemoteStore
from arena.types import CheckpointRef, Digest, PolicyId, WeightsRef
from arena.wire.messages import Assignment, Failed, Finished, Published
from arena.wire.store_messages import PIECE_BYTES, Fetch, Give, StoreRequest
from populations.controller.state.leases import Patience
from tests.arena.transfer.conftest import (
    Checkpoint,
    Run,
    Wire,
    checkpoint,
    files_in,
    service_of,
)
from tests.arena.wire.examples import FINISHED, TRAIN

MANY = 1 << 40
NO_SHRINK = (Phase.explicit, Phase.generate)


def store_at(tmp_path: Path, wire: Wire, *, max_bytes: int = MANY) -> RemoteStore:
    root = tmp_path / "cache"
    root.mkdir(exist_ok=True)
    return RemoteStore(wire, Cache(root, max_bytes=max_bytes), clock=wire.clock)


def here(tmp_path: Path, key: str) -> Path:
    return tmp_path / "cache" / key


def published_here(tmp_path: Path, of: Checkpoint) -> None:
    root = tmp_path / "cache"
    root.mkdir(exist_ok=True)
    publish(root, manifest=of.manifest, files=of.files)


def asked(wire: Wire, kind: type[StoreRequest]) -> list[str]:
    return [request.file for request, _ in wire.asked if isinstance(request, kind)]


def test_what_is_fetched_is_what_the_store_has(run: Run, tmp_path: Path) -> None:
    wire = Wire(run.service)
    store = store_at(tmp_path, wire)
    store.fetch([run.known.ref, run.ghost])
    assert files_in(here(tmp_path, run.known.key)) == files_in(run.root / run.known.key)
    assert files_in(here(tmp_path, run.ghost.key)) == files_in(run.root / run.ghost.key)
    asked_before = len(wire.asked)
    store.fetch([run.known.ref, run.ghost])
    assert len(wire.asked) == asked_before


def test_equal_weights_travel_once(run: Run, tmp_path: Path) -> None:
    wire = Wire(run.service)
    store = store_at(tmp_path, wire)
    store.fetch([run.known.ref])
    assert store.take_metrics()["store/fetched_bytes"] > sum(map(len, run.known.files.values()))
    store.fetch([run.ghost])
    # Only the manifest is fetched: the weights are known by their digest.
    assert store.take_metrics()["store/fetched_bytes"] < 2_000
    assert verify_directory(here(tmp_path, run.ghost.key), without=frozenset({OPTIMIZER}))


def test_of_weights_to_play_with_no_optimizer_travels(run: Run, tmp_path: Path) -> None:
    wire = Wire(run.service)
    store = store_at(tmp_path, wire)
    only = WeightsRef(digest=run.known.manifest.weights_digest, key=run.known.key)
    store.fetch([only])
    assert "optimizer.safetensors" not in asked(wire, Fetch)
    # The same policy is trained here later, which needs its optimizer state.
    store.fetch([run.known.ref])
    assert "optimizer.safetensors" in asked(wire, Fetch)
    assert verify_directory(here(tmp_path, run.known.key)).digest == run.known.manifest.digest


def test_a_new_checkpoint_is_in_the_store_when_it_is_given(run: Run, tmp_path: Path) -> None:
    wire = Wire(run.service)
    new = checkpoint(2000)
    published_here(tmp_path, new)
    store = store_at(tmp_path, wire)
    store.give([new.key])
    assert files_in(run.root / new.key) == files_in(here(tmp_path, new.key))
    asked_before = len(wire.asked)
    store.give([new.key])
    # Only the manifest is requested.
    assert len(wire.asked) == asked_before + 1


@settings(
    max_examples=40,
    phases=NO_SHRINK,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    lost=st.sets(st.integers(0, 40), max_size=25), forgets=st.sets(st.integers(0, 12), max_size=2)
)
def test_both_ways_go_on_whatever_is_lost_on_the_way(
    run: Run, tmp_path_factory: pytest.TempPathFactory, lost: set[int], forgets: set[int]
) -> None:
    """Requests are lost, and the store's process is started anew between any two."""
    tmp_path = tmp_path_factory.mktemp("learner")
    wire = Wire(run.service)

    def is_lost(number: int) -> bool:
        if number in forgets:
            wire.service = service_of(run.root, max_bytes=64 << 20)
        return number in lost

    wire.is_lost = is_lost
    new = checkpoint(7000)
    remove_directory(run.root, new.key)
    published_here(tmp_path, new)
    store = store_at(tmp_path, wire)
    for travel in (partial(store.fetch, [run.known.ref]), partial(store.give, [new.key])):
        while True:
            asked_before, before_s = len(wire.asked), wire.now_s
            try:
                travel()
                break
            except StoreUnreachable:
                # The request is only given up after its time limit, and repeated later.
                assert wire.now_s - before_s >= PATIENCE_S
                assert lost & set(range(asked_before, len(wire.asked)))
    assert files_in(here(tmp_path, run.known.key)) == files_in(run.root / run.known.key)
    assert verify_directory(run.root / new.key).digest == new.manifest.digest


def test_on_a_slow_line_nothing_is_sent_twice(run: Run, tmp_path: Path) -> None:
    wire = Wire(run.service)
    wire.seconds_per_answer = 2.0
    big = checkpoint(3000, size=20 * PIECE_BYTES)
    publish(run.root, manifest=big.manifest, files=big.files)
    store_at(tmp_path, wire).fetch([big.ref])
    assert wire.now_s > 100.0
    assert len(wire.asked) == 1 + 20 + 40


def test_a_manifest_of_several_pieces_travels_whole(run: Run, tmp_path: Path) -> None:
    known = checkpoint(3000)
    manifest = structs.replace(known.manifest, arena_version="0" * 3 * PIECE_BYTES)
    publish(run.root, manifest=manifest, files=known.files)
    store_at(tmp_path, Wire(run.service)).fetch([known.ref])
    assert verify_directory(here(tmp_path, known.key)).arena_version == manifest.arena_version


def test_a_store_that_is_silent_is_waited_for_a_while(run: Run, tmp_path: Path) -> None:
    wire = Wire(run.service)
    wire.is_lost = lambda number: True
    store = store_at(tmp_path, wire)
    with pytest.raises(StoreUnreachable, match="has not answered for 30 s"):
        store.fetch([run.known.ref])
    assert PATIENCE_S <= wire.now_s < PATIENCE_S + 2.0
    # The request is repeated every few seconds, and not more often.
    assert 4 <= len(wire.asked) <= 7
    assert Patience().stall_s / 2 >= PATIENCE_S, "else the controller gives the learner up before"


def test_bytes_that_were_altered_on_the_way_are_not_kept(run: Run, tmp_path: Path) -> None:
    wire = Wire(run.service)
    wire.alter = lambda data: data[:-1] + bytes([data[-1] ^ 1]) if len(data) > 5000 else data
    store = store_at(tmp_path, wire)
    store.fetch([run.known.ref])
    assert not here(tmp_path, run.known.key).exists()
    wire.alter = lambda data: data
    store.fetch([run.known.ref])
    assert verify_directory(here(tmp_path, run.known.key)).digest == run.known.manifest.digest


def test_another_checkpoint_under_the_key_is_not_kept(run: Run, tmp_path: Path) -> None:
    store = store_at(tmp_path, Wire(run.service))
    store.fetch([CheckpointRef(digest=Digest("a" * 64), key=run.known.key)])
    assert not here(tmp_path, run.known.key).exists()


def test_what_the_store_lacks_stays_absent(run: Run, tmp_path: Path) -> None:
    store = store_at(tmp_path, Wire(run.service))
    gone = checkpoint(5000)
    store.fetch([gone.ref, run.known.ref])
    assert not here(tmp_path, gone.key).exists()
    assert here(tmp_path, run.known.key).exists()


def test_damage_of_the_cache_is_mended(run: Run, tmp_path: Path) -> None:
    wire = Wire(run.service)
    store = store_at(tmp_path, wire)
    store.fetch([run.known.ref])
    (here(tmp_path, run.known.key) / WEIGHTS).write_bytes(b"damaged")
    store.fetch([run.known.ref])
    assert verify_directory(here(tmp_path, run.known.key)).digest == run.known.manifest.digest


def test_a_checkpoint_that_the_store_refuses_is_said(run: Run, tmp_path: Path) -> None:
    foreign = checkpoint(2000, digest="e" * 64)
    published_here(tmp_path, foreign)
    store = store_at(tmp_path, Wire(run.service))
    with pytest.raises(CheckpointError, match=r"the store refuses .* environment_digest"):
        store.give([foreign.key])
    full = Wire(service_of(run.root, max_bytes=PIECE_BYTES))
    other = checkpoint(3000)
    published_here(tmp_path, other)
    with pytest.raises(CheckpointError, match=f"at most {PIECE_BYTES:,} at once"):
        store_at(tmp_path, full).give([other.key])


def test_the_cache_is_bounded_and_keeps_what_was_used_last(run: Run, tmp_path: Path) -> None:
    size = sum(map(len, run.known.files.values()))
    given = [checkpoint(steps) for steps in (2000, 3000, 4000)]
    store = store_at(tmp_path, Wire(run.service), max_bytes=int(2.5 * size))
    for one in given:
        published_here(tmp_path, one)
        store.give([one.key])
    kept = [one.key for one in given if here(tmp_path, one.key).exists()]
    assert kept == [one.key for one in given[1:]]
    # All checkpoints of an assignment are kept despite the bound; those of the next are fetched
    # again.
    store.fetch([one.ref for one in given])
    assert all(here(tmp_path, one.key).exists() for one in given)
    # A restarted learner finds the cached checkpoints.
    wire = Wire(run.service)
    store_at(tmp_path, wire).fetch([given[0].ref])
    assert wire.asked == []


def test_requests_are_few(run: Run, tmp_path: Path) -> None:
    """One for each manifest and each piece: a far store costs as few delays as that."""
    wire = Wire(run.service)
    new = checkpoint(2000)
    published_here(tmp_path, new)
    store = store_at(tmp_path, wire)
    store.fetch([run.known.ref])
    store.give([new.key])
    pieces = sum(-(-len(data) // PIECE_BYTES) for data in new.files.values())
    assert len(asked(wire, Fetch)) == 1 + pieces
    assert len(asked(wire, Give)) == 1 + pieces


NEW = checkpoint(2000)


@dataclass
class Trainer:
    """It publishes a checkpoint beside itself, or fails."""

    root: Path
    made: Checkpoint = NEW
    failure: str | None = None
    device: object = "cpu"

    def carry_out(self, assignment: Assignment) -> Finished | Failed:
        if self.failure is not None:
            return Failed(
                assignment_id=TRAIN.assignment_id, attempt=1, kind=self.failure, reason=""
            )
        publish(self.root, manifest=self.made.manifest, files=self.made.files)
        given = Published(policy=PolicyId("player/p000"), checkpoint=self.made.ref)
        return replace(FINISHED, checkpoints=(given,))

    def close(self) -> None:
        pass


@dataclass
class Place:
    """A learner's machine."""

    wire: Wire
    trainer: Trainer
    known: Checkpoint
    is_stopping: bool = False

    def result(self) -> Finished | Failed:
        root = self.trainer.root
        root.mkdir()
        store = RemoteStore(
            self.wire,
            Cache(root, max_bytes=1 << 40),
            should_stop=self._should_stop,
            clock=self.wire.clock,
        )
        work = RemoteWork(self.trainer, store, should_stop=self._should_stop, close=lambda: None)
        trainee = replace(TRAIN.trainees[0], checkpoint=self.known.ref)
        message = replace(TRAIN, trainees=(trainee,), opponents=(), carried=())
        # The loop calls it in this way and sends only what the wire accepts.
        return carry_out(work, message)

    def failure(self) -> str:
        result = self.result()
        assert isinstance(result, Failed)
        return result.kind

    def _should_stop(self) -> bool:
        return self.is_stopping


@pytest.fixture
def place(run: Run, tmp_path: Path) -> Place:
    return Place(Wire(run.service), Trainer(tmp_path / "cache"), run.known)


def no_room(*arguments: object, **more: object) -> None:
    raise DiskRefused("No space left on device")


def test_a_result_says_what_has_travelled(place: Place) -> None:
    result = place.result()
    assert isinstance(result, Finished)
    sizes = [sum(map(len, one.files.values())) for one in (place.known, NEW)]
    assert result.metrics["store/fetched_bytes"] > sizes[0]
    assert result.metrics["store/given_bytes"] == sizes[1]
    assert result.metrics["train/loss"] == FINISHED.metrics["train/loss"]
    assert result.duration_s > FINISHED.duration_s


def test_a_store_out_of_reach_is_a_fault_of_the_place(place: Place) -> None:
    place.wire.is_lost = lambda number: True
    assert place.failure() == "place"


def test_a_learner_that_is_told_to_stop_has_failed_nothing(place: Place) -> None:
    place.wire.is_lost = lambda number: True
    place.is_stopping = True
    assert place.failure() == "stopped"
    assert place.wire.now_s < 1.0, "it waits no longer"


def test_a_full_disk_of_the_run_is_nobodys_fault(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "publish", no_room)
    assert place.failure() == "storage"


def test_a_full_disk_of_the_learner_is_a_fault_of_the_place(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "place", no_room)
    assert place.failure() == "place"


@pytest.mark.parametrize(
    ("kind", "told"), [("storage", "place"), ("non_finite", "non_finite"), ("error", "error")]
)
def test_the_workers_disk_is_the_places_own(place: Place, kind: str, told: str) -> None:
    place.trainer.failure = kind
    assert place.failure() == told


def test_a_checkpoint_that_the_store_refuses_is_an_error(place: Place) -> None:
    place.trainer.made = checkpoint(2000, digest="f" * 64)
    assert place.failure() == "error"
