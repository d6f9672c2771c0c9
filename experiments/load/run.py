"""Run directory for `busy_controller`: many policies, many more ghosts, real checkpoints.

The journal is `big_journal`'s. Every policy's current checkpoint is a real directory, because a
controller reads it back at its start. Ghosts' directories are there but empty: only learners would
look into them, and those of `busy_controller` do not play.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from msgspec.structs import replace

from arena.checkpoints.files import file_records
from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, Manifest
from arena.checkpoints.publish import publish
from arena.config import LearnerSetup
from experiments.load.big_journal import STEPS, Size, write_run
from populations.config.run_file import RunFile, learner_setup
from populations.records.aggregates import Row
from populations.records.rows import CheckpointRow, PolicyRow
from populations.simulation.learner import UTC
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal

ROWS_AT_ONCE = 2_000
OPTIMIZER_BYTES = b"the state of no optimizer"
EPISODE_LENGTH = 20
AGENT_STEPS_PER_S = 10_000.0
"""Agent steps per second of a learner: an assignment of 3 s is a third of the way to a ghost."""


def load_size(*, policies: int, ghosts: int) -> Size:
    """Return the size of a league in which every checkpoint is a ghost."""
    each = max(ghosts // policies, 1)
    return Size(
        policies=policies,
        assignments=each,
        ghosts=each,
        opponents=1,
        evaluations=max(policies // 5, 1),
        pairings=12,
        matches=32,
    )


def write_loaded_run(run_dir: Path, *, policies: int, ghosts: int) -> int:
    """Make the run.

    Args:
        run_dir: New.
        policies: Members of the one population.
        ghosts: About so many, evenly among policies.

    Returns:
        How many matches were played in it.
    """
    matches = write_run(run_dir, load_size(policies=policies, ghosts=ghosts))
    setup = learner_setup(RunFile.load(run_dir / "run.yaml"), root=run_dir)
    (run_dir / "logs").mkdir(exist_ok=True)
    # Not waiting for the disk: it is made anew if the machine goes down.
    with patch("os.fsync"), Journal.open(run_dir / JOURNAL) as journal:
        tables = journal.load()
        rows: list[Row] = []
        for policy in tables.policies.values():
            row = tables.checkpoints[policy.checkpoint or ""]
            rows += [_publish(run_dir, setup, policy, row), _settled(policy)]
            if len(rows) >= ROWS_AT_ONCE:
                journal.commit(rows)
                rows = []
        journal.commit(rows)
    for ghost in tables.ghosts.values():
        (run_dir / ghost.key).mkdir(parents=True)
    return matches


def _publish(
    run_dir: Path, setup: LearnerSetup, policy: PolicyRow, row: CheckpointRow
) -> CheckpointRow:
    """Give a checkpoint of the journal its directory; the row with the digest that this has."""
    # `big_journal` takes the digests of these words.
    files = {
        WEIGHTS: f"{row.policy} {row.agent_steps // STEPS - 1}".encode(),
        OPTIMIZER: OPTIMIZER_BYTES,
    }
    population = setup.populations[policy.population]
    manifest = Manifest(
        policy=row.policy,
        generation=row.generation,
        agent_steps=row.agent_steps,
        learner_updates=row.learner_updates,
        hyperparameters=dict(policy.hyperparameters),
        parent=None,
        donor=None,
        environment_digest=setup.spec.digest,
        population_agents=population.agents,
        network=population.network,
        files=file_records(files),
        arena_version="simulated",
        created=UTC,
    )
    reference = publish(run_dir, manifest=manifest, files=files)
    # The row keeps its key, which ghosts name too.
    made, wanted = run_dir / reference.key, run_dir / row.key
    made.rename(wanted)
    assert manifest.weights_digest == row.weights_digest, "the same words"
    return replace(row, digest=reference.digest)


def _settled(policy: PolicyRow) -> PolicyRow:
    """Return a policy about which nothing is overdue when the run goes on."""
    return replace(
        policy,
        learner_updates=policy.agent_steps // 100,
        ready_at=policy.agent_steps,
        ghost_at=policy.agent_steps,
        validated_generation=policy.generation,
        speed=AGENT_STEPS_PER_S,
        episode_length=float(EPISODE_LENGTH),
    )
