"""Processes that make documents: what they answer, and when they end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from arena.processes.parent import Child
from populations.errors import StorageError
from tools.league.documents import opened_views
from tools.web import maker as module
from tools.web.maker import Maker, Makers
from tools.web.making import FITTED, unpack

pytestmark = pytest.mark.integration


@pytest.fixture
def maker() -> Iterator[Maker]:
    with Maker() as made:
        yield made


def process_of(maker: Maker) -> Child:
    process = maker._process
    assert process is not None
    return process


def test_documents_of_the_process_are_those_of_the_views(maker: Maker, board_run: Path) -> None:
    documents, took_s = maker.make(board_run, ["standings", "events"])
    found = {view: unpack(packed) for view, packed in documents.items()}
    # The round trip makes tuples lists, as in the answer.
    opened = opened_views(board_run, list(found))
    wanted = msgpack.unpackb(msgpack.packb([one.document for one in opened]))
    assert list(found.values()) == wanted
    assert took_s > 0.0


def test_a_run_that_cannot_be_read_is_told_and_the_process_goes_on(
    maker: Maker, board_run: Path, tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match=r"no run directory: it has no run\.yaml"):
        maker.make(tmp_path, ["status"])
    assert maker.make(board_run, ["status"])[0].keys() == {"status"}


def test_a_process_that_is_gone_is_told_and_started_again(maker: Maker, board_run: Path) -> None:
    maker.make(board_run, ["status"])
    process = process_of(maker)
    process.kill_group()
    with pytest.raises(RuntimeError, match="ended with code -9"):
        maker.make(board_run, ["status"])
    assert maker.make(board_run, ["status"])[0].keys() == {"status"}


def test_work_that_took_long_ends_the_process(
    maker: Maker, board_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker.make(board_run, ["status"])
    first = process_of(maker)
    maker.make(board_run, ["status"])
    assert process_of(maker) is first
    monkeypatch.setattr(module, "LONG_S", 0.0)
    maker.make(board_run, ["status"])
    assert maker._process is None
    assert first.poll() == -signal.SIGKILL


def test_closing_ends_a_process_at_work(board_run: Path) -> None:
    with Maker() as maker:
        maker.make(board_run, ["status"])
        process = process_of(maker)
        # The stopped process answers nothing, as if it computed a long fit.
        os.kill(process.pid, signal.SIGSTOP)
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                maker.make(board_run, ["status"])
            except RuntimeError as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
    thread.join(timeout=30.0)
    assert not thread.is_alive()
    assert process.poll() == -signal.SIGKILL
    assert len(errors) == 1
    with pytest.raises(RuntimeError, match="the server is ending"):
        maker.make(board_run, ["status"])


def test_a_fit_keeps_no_other_document_waiting(board_run: Path) -> None:
    with Makers() as makers:
        makers.make(board_run, FITTED)
        os.kill(process_of(makers._long).pid, signal.SIGSTOP)
        assert makers.make(board_run, ["status"])[0].keys() == {"status"}
