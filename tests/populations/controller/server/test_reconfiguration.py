"""A new run.yaml takes the old one's place exactly if the journal says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from arena.types import Digest
from populations.config.run_file import NEXT, RUN_FILE, RunFile
from populations.controller.server.reconfiguration import finish, prepare, settle
from populations.controller.server.run_directory import create_run, make_run_directory
from populations.errors import StorageError
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal, JournalReader
from tests.populations.small_run import duel_run_file


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that nobody has played yet."""
    run_dir = tmp_path / "run"
    make_run_directory(run_dir)
    create_run(run_dir, duel_run_file(), initial_weights={}, utc="2026-01-01T00:00:00+00:00")
    return run_dir


def renamed(run_dir: Path) -> RunFile:
    """The run's file with another name in it."""
    return replace(RunFile.load(run_dir / RUN_FILE), name="renamed")


def commit(run_dir: Path, digest: Digest) -> None:
    """Let the journal name a configuration."""
    with JournalReader(run_dir / JOURNAL) as reader:
        run = reader.load(pairs=()).run
    journal = Journal.open(run_dir / JOURNAL)
    try:
        journal.commit([structs.replace(run, configuration=digest)])
    finally:
        journal.close()


def test_a_file_that_the_journal_names_takes_the_old_ones_place(run_dir: Path) -> None:
    digest = prepare(run_dir, renamed(run_dir))
    assert RunFile.load(run_dir / RUN_FILE).name != "renamed"
    commit(run_dir, digest)
    settle(run_dir)
    assert RunFile.load(run_dir / RUN_FILE).name == "renamed"
    assert not (run_dir / NEXT).exists()
    settle(run_dir)
    assert RunFile.load(run_dir / RUN_FILE).name == "renamed"


def test_a_file_that_the_journal_does_not_name_goes(run_dir: Path) -> None:
    before = (run_dir / RUN_FILE).read_bytes()
    prepare(run_dir, renamed(run_dir))
    settle(run_dir)
    assert (run_dir / RUN_FILE).read_bytes() == before
    assert not (run_dir / NEXT).exists()


def test_nothing_to_finish_is_said(run_dir: Path) -> None:
    with pytest.raises(StorageError, match=NEXT):
        finish(run_dir)
