"""A policy is put back on a kept checkpoint or ghost; everything else goes on."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from arena.checkpoints.manifest import WEIGHTS
from arena.types import AssignmentId, Entrant, PolicyId
from populations.audit.verify import verify_run
from populations.controller.evolution.generations import first_generations
from populations.records.rows import RatingsRow
from populations.storage.journal import Journal, JournalReader
from populations.storage.lock import RunLock
from populations.views.questions.inspection import Inspection
from populations.views.training import hyperparameters_document
from tests.populations.small_run import HYPERPARAMETERS, SmallRun
from tests.support import exit_code, tables_of

P0 = PolicyId("player/p000")


@pytest.fixture
def run(tmp_path: Path) -> SmallRun:
    """A stopped run: p000 has three checkpoints, a ghost and a generation of its own."""
    run_dir = tmp_path / "a run"
    run_dir.mkdir()
    run = SmallRun(run_dir)
    with run.journal:
        policies = run.tables.policies.values()
        run.put(*first_generations(replace(policy, agent_steps=0) for policy in policies))
        run.snapshot(run.checkpoints_of(P0)[0])
        run.put(replace(run.tables.run, state="stopped"))
    return run


def command(*arguments: str, code: int = 0) -> None:
    assert exit_code(*arguments) == code


@pytest.mark.parametrize("name", ["player/p000@200", "player/p000@000000000200", "directory"])
def test_weights_and_hyperparameters_of_then_counters_of_now(
    run: SmallRun, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with JournalReader(run.run_dir / "journal.db") as reader:
        before = reader.load()
    target = next(row for row in before.checkpoints.values() if row.agent_steps == 200)
    player = f"{run.run_dir}:{name}" if name != "directory" else str(run.run_dir / target.key)
    command("rewind", player, "--json")
    document = json.loads(capsys.readouterr().out)
    assert (document["checkpoint"], document["checkpoint_agent_steps"]) == (target.key, 200)
    with JournalReader(run.run_dir / "journal.db") as reader:
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
    assert verify_run(run.run_dir).faults == []
    # Once more, forward: any kept checkpoint will do.
    command("rewind", f"{run.run_dir}:player/p000@300")
    (go_on,) = capsys.readouterr().out.splitlines()[1:]
    assert shlex.split(go_on)[2:] == ["arena", "launch", "--resume", "--run-dir", str(run.run_dir)]
    assert verify_run(run.run_dir).faults == []
    inspection = Inspection.open(run.run_dir)
    changes = hyperparameters_document(inspection, None)["changes"]
    inspection.close()
    assert isinstance(changes, list)
    assert [row["kind"] for row in changes if isinstance(row, dict)] == ["rewound", "rewound"]


@pytest.mark.parametrize("named", ["name", "directory"])
def test_a_ghost_is_gone_on_from_with_a_fresh_optimizer(
    run: SmallRun, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = tables_of(run.run_dir)
    (ghost,) = tables.ghosts.values()
    player = str(run.run_dir / ghost.key)
    if named == "name":
        # Retention has removed the checkpoint that has its agent steps.
        player = f"{run.run_dir}:{ghost.player}"
        checkpoint = tables.checkpoints[ghost.checkpoint]
        with Journal.open(run.run_dir / "journal.db") as journal:
            journal.commit([replace(checkpoint, state="deleted")])
        shutil.rmtree(run.run_dir / checkpoint.key)
    command("rewind", player, "--json")
    document = json.loads(capsys.readouterr().out)
    assert (document["checkpoint"], document["fresh_optimizer"]) == (ghost.key, True)
    with JournalReader(run.run_dir / "journal.db") as reader:
        after = reader.load()
    policy = after.policies[P0]
    assert (policy.checkpoint, policy.initial_weights) == (None, ghost.key)
    assert (policy.agent_steps, policy.learner_updates, policy.generation) == (300, 3, 1)
    assert policy.hyperparameters == HYPERPARAMETERS
    row = after.generations[Entrant(f"{P0}#1")]
    assert (row.cause, row.parent, row.parent_agent_steps) == ("rewind", f"{P0}#0", 100)
    assert verify_run(run.run_dir).faults == []
    command("league", str(run.run_dir), "why", "p000")
    said = " ".join(capsys.readouterr().out.split())
    assert "was put back on its ghost p000@100, with a fresh optimizer" in said


def test_the_best_rated_checkpoint_is_a_name(
    run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tables_of(run.run_dir).checkpoints.values()
    first, best, _ = (row for row in rows if row.policy == P0)
    rated = RatingsRow(
        population="player",
        entrants=(Entrant(best.weights_digest),),
        ratings=(100.0,),
        deviations=(20.0,),
        cyclicity=0.0,
        num_tallies=0,
        best=(Entrant(best.weights_digest),),
        best_ratings=(100.0,),
        best_deviations=(20.0,),
    )
    # Another one of as many agent steps, made later: a policy that began again has two.
    twin = replace(first, agent_steps=best.agent_steps, assignment_id=AssignmentId(99))
    with Journal.open(run.run_dir / "journal.db") as journal:
        journal.commit([rated, twin])
    command("rewind", f"{run.run_dir}:p000@best", "--json")
    assert json.loads(capsys.readouterr().out)["checkpoint"] == best.key


def contents(run_dir: Path) -> bytes:
    with JournalReader(run_dir / "journal.db") as reader:
        return repr((reader.load(), reader.events())).encode()


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
    run: SmallRun, name: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run.run_dir)
    (ghost,) = run.run_dir.glob("populations/player/p000/ghosts/*")
    command("rewind", name.format(run=run.run_dir, ghost=ghost), code=2)
    assert complaint in capsys.readouterr().err
    assert contents(run.run_dir) == before


def test_a_run_that_goes_on_is_left_alone(
    run: SmallRun, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunLock(run.run_dir):
        command("rewind", f"{run.run_dir}:player/p000@200", code=4)
    assert "in use" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_not_gone_on_from(run: SmallRun) -> None:
    (directory,) = run.run_dir.glob("populations/player/p000/checkpoints/000000000200-*")
    (directory / WEIGHTS).write_bytes(b"damaged")
    before = contents(run.run_dir)
    command("rewind", f"{run.run_dir}:player/p000@200", code=5)
    assert contents(run.run_dir) == before


def test_a_quarantined_policy_is_active_again(run: SmallRun) -> None:
    with Journal.open(run.run_dir / "journal.db") as journal:
        policy = journal.load().policies[P0]
        journal.commit([replace(policy, state="quarantined")])
    command("rewind", f"{run.run_dir}:player/p000@100")
    with JournalReader(run.run_dir / "journal.db") as reader:
        policy = reader.load().policies[P0]
    assert policy.state == "active"


def test_what_was_open_of_it_ends_and_what_waited_is_given_up(tmp_path: Path) -> None:
    run = SmallRun(tmp_path)
    with run.journal:
        policies = run.tables.policies.values()
        run.put(*first_generations(replace(policy, agent_steps=0) for policy in policies))
        run.opened(P0)
        run.opened(PolicyId("player/p001"))
        run.put(replace(run.tables.run, state="stopped"))
    command("rewind", f"{run.run_dir}:player/p000@100")
    with JournalReader(run.run_dir / "journal.db") as reader:
        tables = reader.load()
    (still_open,) = tables.assignments.values()
    assert still_open.message.trainees[0].policy == "player/p001"  # type: ignore[union-attr]
    assert verify_run(run.run_dir).faults == []
