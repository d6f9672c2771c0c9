"""Whose fault a failure is where a learner has a cache: the run's disk or its own place."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.checkpoints.publish import publish
from arena.errors import DiskRefused
from arena.learners.loop import carry_out
from arena.learners.remote import RemoteWork
from arena.transfer import cache, service
from arena.transfer.cache import Cache
from arena.transfer.remote_store import RemoteStore
from arena.types import PolicyId
from arena.wire.messages import Assignment, Failed, Finished, Published
from tests.arena.transfer.conftest import Checkpoint, Run, Wire, checkpoint
from tests.arena.wire.examples import FINISHED, TRAIN

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
        # As the loop calls it, which sends nothing that the wire refuses.
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
