"""Runs that releases have left: this one verifies them and goes on with them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from populations.config.run_file import RUN_FILE, RunFile, content_digest
from populations.controller.evolution.generations import first_generations
from populations.controller.evolution.initial_policies import initial_policies
from populations.records.aggregates import Row
from populations.records.rows import EventRow, RunRow
from populations.storage.database import BACKUP, JOURNAL
from populations.storage.journal import Journal
from tests.assets.golden_runs.make import HOST, KEPT, MAX_BYTES, size_bytes
from tests.faults.damage import flip_page
from tests.faults.golden import (
    NEWEST,
    ONE_MORE_AGENT_STEPS,
    RELEASES,
    RUNS,
    copy_of,
    events_of,
)
from tests.integration.conftest import Command, arena  # noqa: F401
from tests.support import tables_of


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """Whose run it is."""
    return str(request.param)


def one_more(run: Path) -> tuple[str, ...]:
    """The arguments that let every policy train for one more assignment."""
    steps = max(row.agent_steps for row in tables_of(run).policies.values())
    limit = steps + ONE_MORE_AGENT_STEPS
    return ("launch", "--resume", "--run-dir", str(run), f"stop.agent_steps_per_policy={limit}")


def test_a_run_of_an_older_release_is_sound_and_goes_on(
    release: str,
    tmp_path: Path,
    arena: Command,  # noqa: F811
) -> None:
    run = copy_of(release, tmp_path)
    arena("verify", run)
    before = tables_of(run)
    arena(*one_more(run))
    after = tables_of(run)
    assert after.run.state == "finished"
    assert after.run.epoch == before.run.epoch + 1
    assert after.run.assignments_finished > before.run.assignments_finished
    for policy, row in before.policies.items():
        assert after.policies[policy].agent_steps > row.agent_steps
    assert after.ghosts.items() >= before.ghosts.items()
    arena("verify", run)


def test_a_run_of_an_older_release_is_thinned(
    release: str,
    tmp_path: Path,
    arena: Command,  # noqa: F811
) -> None:
    run = copy_of(release, tmp_path)
    before = tables_of(run)
    known = before.run.matches, sum(row.matches for row in before.records.values())
    steps = max(row.agent_steps for row in before.policies.values())
    arena(
        *("launch", "--resume", "--run-dir", str(run)),
        # Each assignment leaves a ghost.
        *("ghosts.keep=16", "ghosts.every_agent_steps=256"),
        f"stop.agent_steps_per_policy={steps + 24 * ONE_MORE_AGENT_STEPS}",
    )
    after = tables_of(run)
    assert after.run.state == "finished"
    thinned = [name for event in events_of(run, "ghosts_thinned") for name in ghosts_of(event)]
    assert len(thinned) > 16
    # Finals thin nothing, and training goes on until the last ghost.
    assert len(after.ghosts) <= 16 + len(after.policies)
    assert after.run.matches > known[0]
    assert sum(row.matches for row in after.records.values()) > known[1]
    arena("verify", run)


def ghosts_of(event: EventRow) -> list[str]:
    names = event.data["ghosts"]
    assert isinstance(names, list)
    return [str(name) for name in names]


def test_a_damaged_journal_is_repaired_from_the_very_first_backup_and_the_run_goes_on(
    tmp_path: Path,
    arena: Command,  # noqa: F811
) -> None:
    """Everything that was trained is only on disk: generations, hyperparameters, ghosts."""
    run = copy_of(NEWEST, tmp_path)
    lost = tables_of(run)
    make_first_backup(run)
    # Page 4 holds the policies; the run's counters can still be read.
    flip_page(run / JOURNAL, page=4)
    for command in (("verify", run), one_more_of(lost.run.agent_steps, run)):
        done = arena(*command, code=5)
        assert f"`arena verify {run} --repair`" in " ".join((done.stdout + done.stderr).split())
    said = arena("verify", run, "--repair").stdout
    assert f"at least {lost.run.assignments_finished} assignments are lost" in said
    after = tables_of(run)
    for policy, row in lost.policies.items():
        kept = after.policies[policy]
        assert (kept.agent_steps, kept.learner_updates) == (row.agent_steps, row.learner_updates)
        newest = lost.checkpoints[str(row.checkpoint)]
        if (newest.policy, newest.generation) == (policy, row.generation):
            assert (kept.generation, kept.checkpoint) == (row.generation, row.checkpoint)
            assert repr(dict(kept.hyperparameters)) == repr(dict(row.hyperparameters))
        else:  # a copy or other hyperparameters, without a published checkpoint so far
            assert kept.generation == row.generation - 1
    assert max(row.generation for row in after.policies.values()) > 0
    assert after.run.agent_steps == lost.run.agent_steps
    assert {p: g.weights_digest for p, g in after.ghosts.items()} == {
        p: g.weights_digest for p, g in lost.ghosts.items()
    }
    arena("verify", run)
    arena(*one_more(run))
    arena("verify", run)


def one_more_of(agent_steps: int, run: Path) -> tuple[str, ...]:
    """Go on, where the journal cannot be asked how far policies are."""
    limit = f"stop.agent_steps_per_policy={agent_steps}"
    return ("launch", "--resume", "--run-dir", str(run), limit)


def make_first_backup(run: Path) -> None:
    """The backup that a launch makes before anything has happened."""
    run_file = RunFile.load(run / RUN_FILE)
    policies = initial_policies(run_file.config)
    digest = content_digest(run / RUN_FILE)
    row = RunRow(run=run_file.run, configuration=digest)
    rows: list[Row] = [row, *policies, *first_generations(policies)]
    Journal.create(run / BACKUP, rows).close()


def test_it_shows_what_a_later_release_has_to_read(tmp_path: Path) -> None:
    run = copy_of(NEWEST, tmp_path)
    tables = tables_of(run)
    assert len(tables.policies) == 2
    assert len(tables.ghosts) >= 4
    assert all(row.generation > 0 for row in tables.policies.values())
    assert tables.ratings
    assert tables.pairs
    assert events_of(run, "exploited", "explored")


def test_nothing_of_a_machine_is_in_it(release: str, tmp_path: Path) -> None:
    assert size_bytes(RUNS / release) <= MAX_BYTES
    assert {path.name for path in (RUNS / release).iterdir()} == set(KEPT)
    run = copy_of(release, tmp_path)
    assert RunFile.load(run / RUN_FILE).launched_in == "."
    for path in run.rglob("*"):
        assert not path.is_symlink()
        if path.is_file():
            found = re.search(rb"/(home|root|tmp|work|Users)/", path.read_bytes())
            assert found is None, (path, found)
    (joined,) = events_of(run, "learner_joined")
    assert joined.data["host"] == HOST
    assert joined.subject.startswith(f"{HOST}-")
