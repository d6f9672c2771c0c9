"""Migrations of this release, on journals as older ones left them; `tests/faults` has the rest."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from populations.audit.verify import verify_run
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal
from tests.populations.small_run import SmallRun


@pytest.mark.parametrize(
    "left",
    [
        # Of a run that was reconfigured: the digest of the file's bytes.
        f"UPDATE run SET configuration = '{'a' * 64}'",
        "ALTER TABLE run DROP COLUMN configuration",
    ],
)
def test_what_version_2_recorded_of_run_yaml_is_no_fault_of_it(tmp_path: Path, left: str) -> None:
    run = SmallRun(tmp_path)
    run.journal.close()
    with closing(sqlite3.connect(tmp_path / JOURNAL)) as connection:
        connection.execute("ALTER TABLE policies ADD COLUMN failures INTEGER NOT NULL DEFAULT 0")
        connection.execute("ALTER TABLE policies RENAME COLUMN rescues TO halvings")
        connection.execute(left)
        connection.execute("PRAGMA user_version = 2")
        connection.commit()
    with Journal.open(tmp_path / JOURNAL) as journal:
        assert journal.load().run.configuration == ""
    assert verify_run(tmp_path).faults == []
