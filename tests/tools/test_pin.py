"""A pinned player stays, whatever thinning and retention say; a run that goes on is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from arena.types import PolicyId
from populations.audit.verify import verify_run
from populations.config.sections import CheckpointsConfig
from populations.records.rows import CheckpointRow, EventRow, GhostRow
from populations.records.tables import Tables
from populations.storage.journal import JournalReader
from populations.storage.lock import RunLock
from populations.storage.retention import Retention
from populations.views.log import checkpoints_document
from populations.views.questions.inspection import Inspection
from tests.populations.small_run import SmallRun
from tests.support import exit_code

P0 = PolicyId("player/p000")


@pytest.fixture
def run(tmp_path: Path) -> SmallRun:
    """A stopped run: both policies have three checkpoints, p000 a ghost of its first one."""
    run = SmallRun(tmp_path)
    with run.journal:
        run.snapshot(run.checkpoints_of(P0)[0])
        run.put(replace(run.tables.run, state="stopped"))
    return run


def command(*arguments: str, code: int = 0) -> None:
    assert exit_code(*arguments) == code


def read(run: SmallRun) -> tuple[Tables, list[EventRow]]:
    with JournalReader(run.run_dir / "journal.db") as reader:
        return reader.load(), reader.events(kinds=["pinned", "unpinned"])


def pinned(run: SmallRun) -> set[str]:
    tables, _ = read(run)
    rows: list[CheckpointRow | GhostRow] = [*run_checkpoints(tables), *tables.ghosts.values()]
    return {row.key.split("/", 3)[3].split("-")[0] for row in rows if row.pinned}


@pytest.mark.parametrize(
    ("name", "directories"),
    [
        ("player/p000", {"checkpoints/000000000300"}),
        ("player/p000@200", {"checkpoints/000000000200"}),
        ("player/p000@000000000100", {"checkpoints/000000000100", "ghosts/000000000100"}),
        ("directory of a checkpoint", {"checkpoints/000000000100"}),
        ("directory of a ghost", {"ghosts/000000000100"}),
    ],
)
def test_a_player_is_pinned_and_let_go(
    run: SmallRun, name: str, directories: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    kind = {"directory of a checkpoint": "checkpoints", "directory of a ghost": "ghosts"}.get(name)
    if kind is None:
        player = f"{run.run_dir}:{name}"
    else:
        (directory,) = run.run_dir.glob(f"populations/player/p000/{kind}/000000000100-*")
        player = str(directory)
    before, _ = read(run)
    command("pin", player, "--json")
    document = json.loads(capsys.readouterr().out)
    assert (document["pinned"], document["changed"]) == (True, True)
    assert pinned(run) == directories
    assert len(document["directories"]) == len(directories)
    # Again it changes nothing, and says so.
    command("pin", player)
    assert "is pinned, as before" in capsys.readouterr().out
    assert verify_run(run.run_dir).faults == []
    command("pin", player, "--off")
    after, events = read(run)
    assert (after.checkpoints, after.ghosts) == (before.checkpoints, before.ghosts)
    assert [event.kind for event in events] == ["pinned", "unpinned"]
    assert {event.subject for event in events} == {document["player"]}


def unneeded(tables: Tables) -> list[str]:
    retention = Retention(tables, CheckpointsConfig(keep=1))
    return retention.unneeded(tables, standing=lambda policy: None)


def test_retention_leaves_a_pinned_checkpoint(run: SmallRun) -> None:
    # The first one is a ghost's origin, which a row of a linked ghost does not need.
    tables, _ = read(run)
    first, second, _ = run_checkpoints(tables)
    assert [key for key in unneeded(tables) if P0 in key] == [first.key, second.key]
    command("pin", f"{run.run_dir}:{P0}@200")
    tables, _ = read(run)
    assert [key for key in unneeded(tables) if P0 in key] == [first.key]
    command("pin", f"{run.run_dir}:{P0}@200", "--off")
    tables, _ = read(run)
    assert [key for key in unneeded(tables) if P0 in key] == [first.key, second.key]


def run_checkpoints(tables: Tables) -> list[CheckpointRow]:
    return [row for row in tables.checkpoints.values() if row.policy == P0]


def test_it_is_shown_why_a_checkpoint_stays(run: SmallRun) -> None:
    command("pin", f"{run.run_dir}:{P0}@100")
    inspection = Inspection.open(run.run_dir)
    document = checkpoints_document(inspection, None)
    inspection.close()
    rows = cast("list[dict[str, object]]", document["checkpoints"])
    told = {str(row["player"]): cast("list[str]", row["pins"]) for row in rows}
    assert "pin" in told[f"{P0}@000000000100"]
    assert "pin" not in told[f"{P0}@000000000200"]
    (ghost,) = cast("list[dict[str, object]]", document["ghosts"])
    assert ghost["pinned"] is True


def contents(run_dir: Path) -> bytes:
    with JournalReader(run_dir / "journal.db") as reader:
        return repr((reader.load(), reader.events())).encode()


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("{run}:player/p000@250", "nearest of its kept checkpoints and ghosts: player/p000@0000"),
        ("{run}:player/p009@250", "has no policy 'player/p009'"),
        ("{run}:player/p009", "has no policy 'player/p009'"),
        ("{run}:bot:random", "pin takes RUN:PLAYER"),
        ("{run}", "pin takes RUN:PLAYER"),
        ("{run}/nowhere:player/p000", "there is no run in"),
        ("{run}:../p000", "pin takes RUN:PLAYER"),
    ],
)
def test_what_is_not_there_changes_nothing(
    run: SmallRun, name: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run.run_dir)
    command("pin", name.format(run=run.run_dir), code=2)
    assert complaint in capsys.readouterr().err
    assert contents(run.run_dir) == before


def test_a_run_that_goes_on_is_left_alone(
    run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run.run_dir)
    with RunLock(run.run_dir):
        command("pin", f"{run.run_dir}:{P0}", code=4)
    assert "in use" in capsys.readouterr().err
    assert contents(run.run_dir) == before
