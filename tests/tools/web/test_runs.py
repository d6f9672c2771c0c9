from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest

from arena.errors import ConfigError
from populations.errors import StorageError
from populations.storage.journal import Journal
from tests.populations.rows import make_event
from tools.web import runs
from tools.web.making import FITTED, Made, pack
from tools.web.pace import LEAST_S, Pace
from tools.web.runs import NotYet, Run, Unpacked, named_runs


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_document_is_made_again_when_the_run_has_changed(own_run: Path) -> None:
    clock = Clock()
    run = Run(own_run, "run", pace=Pace(clock))
    first = run.etag(["events"])
    clock.now_s = 1000.0
    assert run.etag(["events"]) == first
    with Journal.open(own_run / "journal.db") as journal:
        journal.commit([make_event("kept", "player/p000")])
    assert run.etag(["events"]) != first
    assert [line["sequence"] for line in run.documents(["events"])["events"]["events"]] == [1]


def test_readers_of_a_busy_run_share_a_document(own_run: Path) -> None:
    clock = Clock()
    run = Run(own_run, "run", pace=Pace(clock))
    first = run.etag(["standings"])
    (own_run / "status.json").write_text("{}")
    clock.now_s = LEAST_S / 2
    assert run.etag(["standings"]) == first
    # By then its share of a core is due, however long it took to make.
    clock.now_s = 5 * LEAST_S
    assert run.etag(["standings"]) != first


def test_no_read_keeps_the_journal_open(own_run: Path) -> None:
    Run(own_run, "run").documents(["standings", "events"])
    opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert not [name for name in opened if name.startswith(str(own_run))]


class Blocked:
    """Maker that waits to be let go, and counts."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.free = Event()
        self.error: Exception | None = None

    def __call__(self, run: Path, views: Sequence[str]) -> Made:
        self.asked.append(tuple(views))
        assert self.free.wait(30.0)
        if self.error is not None:
            raise self.error
        number = len(self.asked)
        return {view: pack({"view": view, "made": number}) for view in views}, 0.0


def is_done(run: Run) -> None:
    """Wait until nothing is being made."""
    for making in tuple(run._making.values()):
        with contextlib.suppress(StorageError):
            making.done.result(30.0)


def test_a_reader_does_not_wait_for_a_long_fit(board_run: Path) -> None:
    make, clock = Blocked(), Clock()
    run = Run(board_run, "run", pace=Pace(clock), make=make, wait_s=0.0)
    for _ in range(3):
        with pytest.raises(NotYet, match="champion, lineage, ratings: being computed"):
            run.documents(["ratings"])
    make.free.set()
    is_done(run)
    # One fit serves all that were requested, and the other views that need it.
    assert run.documents(["ratings", "lineage"]) == {
        "ratings": {"view": "ratings", "made": 1},
        "lineage": {"view": "lineage", "made": 1},
    }
    assert make.asked == [FITTED]


@pytest.mark.parametrize(("small_bytes", "wait_s"), [(runs.SMALL_BYTES, 400.0), (100, 100.0)])
def test_what_will_be_asked_for_is_begun_and_first_readers_of_small_runs_wait_longer(
    board_run: Path, monkeypatch: pytest.MonkeyPatch, small_bytes: int, wait_s: float
) -> None:
    monkeypatch.setattr(runs, "SMALL_BYTES", small_bytes)
    make, clock = Blocked(), Clock()
    run = Run(board_run, "run", pace=Pace(clock), make=make, wait_s=100.0)
    began_s = time.monotonic()
    run.begin(["events"])
    (making,) = run._making.values()
    assert making.until_s is not None
    assert 0.0 <= making.until_s - began_s - wait_s < 50.0
    make.free.set()
    assert run.documents(["events"])["events"]["made"] == 1
    assert make.asked == [("events",)]


def test_documents_of_a_page_are_of_one_moment(own_run: Path) -> None:
    """Another page's are newer meanwhile: a player has one rating on each page all the same."""
    make, clock = Blocked(), Clock()
    make.free.set()
    run = Run(own_run, "run", pace=Pace(clock), make=make)
    page, other = ["standings", "lineage"], ["standings", "events"]

    def moments(names: Sequence[str]) -> set[object]:
        return {one["made"] for one in run.documents(names).values()}

    assert moments(page) == {1}
    # It is too early for the first page to be made again.
    clock.now_s = 0.5 * LEAST_S
    (own_run / "status.json").write_text("{}")
    assert moments(other) == {2}
    assert moments(page) == {1}
    # A document that has never been made is waited for, or taken from another page.
    run.wait_s = 0.0
    make.free.clear()
    assert moments(["events"]) == {2}
    make.free.set()
    is_done(run)


def test_the_old_document_is_shown_while_a_new_one_is_made(own_run: Path) -> None:
    make, clock = Blocked(), Clock()
    make.free.set()
    run = Run(own_run, "run", pace=Pace(clock), make=make)
    assert run.documents(["events"])["events"]["made"] == 1
    make.free.clear()
    run.wait_s = 0.0
    clock.now_s = LEAST_S
    (own_run / "status.json").write_text("{}")
    assert run.documents(["events"])["events"]["made"] == 1
    make.free.set()
    is_done(run)
    assert run.documents(["events"])["events"]["made"] == 2


def test_a_failure_is_told_once_and_tried_again(board_run: Path) -> None:
    make = Blocked()
    make.error = StorageError("the disk is gone")
    run = Run(board_run, "run", make=make, wait_s=0.0)
    with pytest.raises(NotYet):
        run.documents(["events"])
    make.free.set()
    is_done(run)
    with pytest.raises(StorageError, match="the disk is gone"):
        run.documents(["events"])
    make.error, run.wait_s = None, None
    assert run.documents(["events"])["events"]["made"] == 2


def test_documents_used_last_are_kept_as_objects() -> None:
    packed = {serial: pack({"serials": [serial] * 100}) for serial in range(4)}
    (size,) = {len(one) for one in packed.values()}
    unpacked = Unpacked(max_bytes=size * 5 // 2)
    first = unpacked.document(0, packed[0])
    second = unpacked.document(1, packed[1])
    assert unpacked.document(0, packed[0]) is first
    # There is room for two: the third drops the second, which was used before the first.
    unpacked.document(2, packed[2])
    assert unpacked.document(0, packed[0]) is first
    assert unpacked.document(1, packed[1]) == second
    assert unpacked.document(1, packed[1]) is not second
    unpacked.forget(1)
    assert unpacked.document(0, packed[0]) is first
    # There is room for two again, so the first stays.
    unpacked.document(3, packed[3])
    assert unpacked.document(0, packed[0]) is first
    # A single document is kept however large it is.
    small = Unpacked(max_bytes=1)
    assert small.document(3, packed[3]) is small.document(3, packed[3])


def test_names_of_runs_are_plain(board_run: Path, tmp_path: Path) -> None:
    odd = tmp_path / '<b>"a b".. static'
    shutil.copytree(board_run, odd)
    static = tmp_path / "static"
    shutil.copytree(board_run, static)
    assert list(named_runs([odd, static, odd])) == ["b-a-b-static", "static-2", "b-a-b-static-2"]


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no run directory: it has no run\.yaml"):
        named_runs([tmp_path])
