"""A pinned player stays, whatever thinning and retention say; a run that goes on is left alone."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from arena.checkpoints.manifest import WEIGHTS
from arena.types import AssignmentId, Entrant, PolicyId
from populations.audit.verify import verify_run
from populations.config.sections import CheckpointsConfig
from populations.controller.evolution.generations import first_generations
from populations.records.rows import CheckpointRow, EventRow, GhostRow
from populations.records.tables import Tables
from populations.storage.journal import Journal, JournalReader
from populations.storage.lock import RunLock
from populations.storage.store import Retention
from populations.views.log import checkpoints_document
from populations.views.questions.inspection import Inspection
from populations.views.training import hyperparameters_document
from tests.populations.rows import make_ratings
from tests.populations.small_run import HYPERPARAMETERS, SmallRun
from tests.support import exit_code, tables_of

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
    # Pinning again changes nothing, and says so.
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
    # The first checkpoint is a ghost's origin, which the row of a linked ghost does not need.
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


@pytest.fixture
def rewound_run(tmp_path: Path) -> SmallRun:
    """A stopped run: p000 has three checkpoints, a ghost and a generation of its own."""
    run_dir = tmp_path / "a run"
    run_dir.mkdir()
    rewound_run = SmallRun(run_dir)
    with rewound_run.journal:
        policies = rewound_run.tables.policies.values()
        rewound_run.put(*first_generations(replace(policy, agent_steps=0) for policy in policies))
        rewound_run.snapshot(rewound_run.checkpoints_of(P0)[0])
        rewound_run.put(replace(rewound_run.tables.run, state="stopped"))
    return rewound_run


@pytest.mark.parametrize("name", ["player/p000@200", "player/p000@000000000200", "directory"])
def test_weights_and_hyperparameters_of_then_counters_of_now(
    rewound_run: SmallRun, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with JournalReader(rewound_run.run_dir / "journal.db") as reader:
        before = reader.load()
    target = next(row for row in before.checkpoints.values() if row.agent_steps == 200)
    player = (
        f"{rewound_run.run_dir}:{name}"
        if name != "directory"
        else str(rewound_run.run_dir / target.key)
    )
    command("rewind", player, "--json")
    document = json.loads(capsys.readouterr().out)
    assert (document["checkpoint"], document["checkpoint_agent_steps"]) == (target.key, 200)
    with JournalReader(rewound_run.run_dir / "journal.db") as reader:
        after = reader.load()
        (event,) = reader.events(kinds=["rewound"])
    policy = after.policies[P0]
    assert (policy.checkpoint, policy.agent_steps, policy.generation) == (target.key, 300, 1)
    assert (policy.learner_updates, policy.state) == (3, "active")
    assert policy.hyperparameters == HYPERPARAMETERS
    assert isinstance(policy.hyperparameters["num_epochs"], int)
    assert (after.ghosts, after.checkpoints) == (before.ghosts, before.checkpoints)
    assert (after.run, after.records, after.pairs) == (before.run, before.records, before.pairs)
    assert event.subject == P0
    assert event.data["instead_of"] == before.policies[P0].checkpoint
    assert verify_run(rewound_run.run_dir).faults == []
    # A second rewind goes forward: any kept checkpoint is possible.
    command("rewind", f"{rewound_run.run_dir}:player/p000@300")
    (go_on,) = capsys.readouterr().out.splitlines()[1:]
    assert shlex.split(go_on)[2:] == [
        "arena",
        "launch",
        "--resume",
        "--run-dir",
        str(rewound_run.run_dir),
    ]
    assert verify_run(rewound_run.run_dir).faults == []
    inspection = Inspection.open(rewound_run.run_dir)
    changes = hyperparameters_document(inspection, None)["changes"]
    inspection.close()
    assert isinstance(changes, list)
    assert [row["kind"] for row in changes if isinstance(row, dict)] == ["rewound", "rewound"]


@pytest.mark.parametrize("named", ["name", "directory"])
def test_a_ghost_is_gone_on_from_with_a_fresh_optimizer(
    rewound_run: SmallRun, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = tables_of(rewound_run.run_dir)
    (ghost,) = tables.ghosts.values()
    player = str(rewound_run.run_dir / ghost.key)
    if named == "name":
        # Retention has removed the checkpoint with these agent steps.
        player = f"{rewound_run.run_dir}:{ghost.player}"
        checkpoint = tables.checkpoints[ghost.checkpoint]
        with Journal.open(rewound_run.run_dir / "journal.db") as journal:
            journal.commit([replace(checkpoint, state="deleted")])
        shutil.rmtree(rewound_run.run_dir / checkpoint.key)
    command("rewind", player, "--json")
    document = json.loads(capsys.readouterr().out)
    assert (document["checkpoint"], document["fresh_optimizer"]) == (ghost.key, True)
    with JournalReader(rewound_run.run_dir / "journal.db") as reader:
        after = reader.load()
    policy = after.policies[P0]
    assert (policy.checkpoint, policy.initial_weights) == (None, ghost.key)
    assert (policy.agent_steps, policy.learner_updates, policy.generation) == (300, 3, 1)
    assert policy.hyperparameters == HYPERPARAMETERS
    row = after.generations[Entrant(f"{P0}#1")]
    assert (row.cause, row.parent, row.parent_agent_steps) == ("rewind", f"{P0}#0", 100)
    assert verify_run(rewound_run.run_dir).faults == []
    command("league", str(rewound_run.run_dir), "why", "p000")
    said = " ".join(capsys.readouterr().out.split())
    assert "was put back on its ghost p000@100, with a fresh optimizer" in said


def test_the_best_rated_checkpoint_is_a_name(
    rewound_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tables_of(rewound_run.run_dir).checkpoints.values()
    first, best, _ = (row for row in rows if row.policy == P0)
    rated = make_ratings(
        entrants=(Entrant(best.weights_digest),),
        ratings=(100.0,),
        deviations=(20.0,),
        best=(Entrant(best.weights_digest),),
        best_ratings=(100.0,),
        best_deviations=(20.0,),
    )
    # A policy that began again has two checkpoints with equal steps; the later one counts.
    twin = replace(first, agent_steps=best.agent_steps, assignment_id=AssignmentId(99))
    with Journal.open(rewound_run.run_dir / "journal.db") as journal:
        journal.commit([rated, twin])
    command("rewind", f"{rewound_run.run_dir}:p000@best", "--json")
    assert json.loads(capsys.readouterr().out)["checkpoint"] == best.key


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("{run}:player/p000@250", "kept checkpoints and ghosts: player/p000@0000"),
        ("{run}:player/p009@250", "has no policy 'player/p009'"),
        ("{run}:player/p000", "rewind takes RUN:POLICY@STEPS"),
        ("{run}", "rewind takes RUN:POLICY@STEPS"),
        ("{run}/nowhere:player/p000@1", "there is no run in"),
        ("{run}:player/p000@best", "keeps no rated checkpoint of player/p000"),
        ("{ghost}/..", "rewind takes RUN:POLICY@STEPS"),
    ],
)
def test_what_cannot_be_rewound_to_changes_nothing(
    rewound_run: SmallRun, name: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(rewound_run.run_dir)
    (ghost,) = rewound_run.run_dir.glob("populations/player/p000/ghosts/*")
    command("rewind", name.format(run=rewound_run.run_dir, ghost=ghost), code=2)
    assert complaint in capsys.readouterr().err
    assert contents(rewound_run.run_dir) == before


def test_nothing_of_a_run_that_goes_on_is_rewound(
    rewound_run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunLock(rewound_run.run_dir):
        command("rewind", f"{rewound_run.run_dir}:player/p000@200", code=4)
    assert "in use" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_not_gone_on_from(rewound_run: SmallRun) -> None:
    (directory,) = rewound_run.run_dir.glob("populations/player/p000/checkpoints/000000000200-*")
    (directory / WEIGHTS).write_bytes(b"damaged")
    before = contents(rewound_run.run_dir)
    command("rewind", f"{rewound_run.run_dir}:player/p000@200", code=5)
    assert contents(rewound_run.run_dir) == before


def test_a_quarantined_policy_is_active_again(rewound_run: SmallRun) -> None:
    with Journal.open(rewound_run.run_dir / "journal.db") as journal:
        policy = journal.load().policies[P0]
        journal.commit([replace(policy, state="quarantined")])
    command("rewind", f"{rewound_run.run_dir}:player/p000@100")
    with JournalReader(rewound_run.run_dir / "journal.db") as reader:
        policy = reader.load().policies[P0]
    assert policy.state == "active"


def test_what_was_open_of_it_ends_and_what_waited_is_given_up(tmp_path: Path) -> None:
    rewound_run = SmallRun(tmp_path)
    with rewound_run.journal:
        policies = rewound_run.tables.policies.values()
        rewound_run.put(*first_generations(replace(policy, agent_steps=0) for policy in policies))
        rewound_run.opened(P0)
        rewound_run.opened(PolicyId("player/p001"))
        rewound_run.put(replace(rewound_run.tables.run, state="stopped"))
    command("rewind", f"{rewound_run.run_dir}:player/p000@100")
    with JournalReader(rewound_run.run_dir / "journal.db") as reader:
        tables = reader.load()
    (still_open,) = tables.assignments.values()
    assert still_open.message.trainees[0].policy == "player/p001"  # type: ignore[union-attr]
    assert verify_run(rewound_run.run_dir).faults == []
