"""A small, sound run that tests then break: two policies, checkpoints, a ghost, a tally."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import safetensors.numpy
from msgspec.structs import replace

from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, ghost_key
from arena.checkpoints.publish import link_ghost, publish
from arena.types import (
    AssignmentId,
    CheckpointRef,
    Digest,
    Player,
    PlayerId,
    PolicyId,
    Seating,
    Tally,
    WeightsRef,
    is_bot,
)
from arena.wire.messages import Pairing
from populations.config.run_config import validate_config
from populations.config.run_file import RunFile, content_digest, learner_setup, new_run_file
from populations.config.trust import record_launch
from populations.controller.evolution.generations import first_generations
from populations.league.league import League
from populations.records.aggregates import Row
from populations.records.rows import (
    ArchiveRow,
    AssignmentRow,
    CheckpointRow,
    EventRow,
    GhostRow,
    RunRow,
    TallyRow,
)
from populations.records.tables import Tables
from populations.storage.archive import write_archive
from populations.storage.journal import Journal, JournalReader
from tests.populations.rows import (
    make_assignment,
    make_checkpoint,
    make_evaluate,
    make_ghost,
    make_manifest,
    make_policy,
    make_spec,
    make_tally,
    make_tally_row,
    make_train,
    make_trainee,
)


def duel_run_file() -> RunFile:
    """Two agents in turn, each a seat, of one population."""
    spec = make_spec("tests.duel:env", ("player_0", "player_1"))
    config = validate_config({"environment": {"id": spec.id}, "populations": {"player": {}}})
    return new_run_file(config, spec, name="test", launch_directory=".")


HYPERPARAMETERS = {"learning_rate": 3e-4, "num_epochs": 4}
STEPS = 100


class SmallRun:
    """A run directory and the rows that its journal holds; every change goes through `put`."""

    def __init__(self, run_dir: Path, run_file: RunFile | None = None) -> None:
        self.run_dir = run_dir
        self.run_file = run_file or duel_run_file()
        self.run_file.save(run_dir / "run.yaml")
        record_launch(self.run_file)
        policies = [
            make_policy(f"player/p{index:03d}", index=index, hyperparameters=HYPERPARAMETERS)
            for index in range(2)
        ]
        run = RunRow(run="r", configuration=content_digest(run_dir / "run.yaml"))
        rows: list[Row] = [run, *policies, *first_generations(policies)]
        self.journal = Journal.create(run_dir / "journal.db", rows)
        for policy in policies:
            for _ in range(3):
                self.train(policy.policy)

    @property
    def tables(self) -> Tables:
        return self.journal.load()

    def put(self, *rows: Row) -> None:
        self.journal.commit(rows)

    def tallies(self) -> list[TallyRow]:
        """All, in order of commit."""
        with JournalReader(self.run_dir / "journal.db") as reader:
            return reader.tallies()

    def note(self, kind: str, subject: str, **data: str) -> None:
        sequence = self.tables.num_events + 1
        self.put(EventRow(sequence=sequence, time="now", kind=kind, subject=subject, data=data))

    def checkpoints_of(self, policy: str) -> list[CheckpointRow]:
        """Oldest first."""
        return [row for row in self.tables.checkpoints.values() if row.policy == policy]

    def opened(self, policy: PolicyId) -> AssignmentRow:
        """Commit a training assignment against the policy's own current weights."""
        tables = self.tables
        row = tables.policies[policy]
        current = tables.checkpoints[row.checkpoint] if row.checkpoint is not None else None
        trainee = make_trainee(
            policy,
            generation=row.generation,
            agent_steps=row.agent_steps,
            learner_updates=row.learner_updates,
            checkpoint=CheckpointRef(digest=current.digest, key=current.key) if current else None,
            hyperparameters=dict(row.hyperparameters),
        )
        weights = WeightsRef(digest=current.weights_digest, key=current.key) if current else None
        opponent = Player(player=PlayerId(policy), weights=weights)
        assignment_id = AssignmentId(tables.run.next_assignment)
        message = make_train(
            trainee,
            assignment_id=assignment_id,
            opponents=(Seating(players=(Player(player=PlayerId(policy)), opponent)),),
            agent_steps=STEPS,
            seed=2**60,
        )
        assignment = make_assignment(message, attempt=1)
        self.put(replace(tables.run, next_assignment=assignment_id + 1), assignment)
        return assignment

    def train(self, policy: PolicyId) -> CheckpointRow:
        """Carry out a training assignment and commit all that follows."""
        assignment = self.opened(policy)
        tables = self.tables
        row = tables.policies[policy]
        agent_steps = row.agent_steps + STEPS
        # Each policy and step has other weights.
        numbers = np.array([row.index, agent_steps], dtype=np.float32)
        files = {
            WEIGHTS: safetensors.numpy.save({"weights": numbers}),
            OPTIMIZER: safetensors.numpy.save({"steps": numbers[1:]}),
        }
        manifest = make_manifest(
            policy,
            files,
            generation=row.generation,
            agent_steps=agent_steps,
            learner_updates=row.learner_updates + 1,
            hyperparameters=dict(row.hyperparameters),
            environment_digest=self.run_file.spec.digest,
            network=self.run_file.config.populations["player"].network,
        )
        reference = publish(self.run_dir, manifest=manifest, files=files)
        checkpoint = make_checkpoint(
            reference.key,
            digest=reference.digest,
            weights_digest=manifest.weights_digest,
            policy=policy,
            generation=row.generation,
            agent_steps=agent_steps,
            learner_updates=manifest.learner_updates,
            assignment_id=assignment.assignment_id,
        )
        tally = make_tally(
            (f"{policy}#0", manifest.weights_digest),
            (0, 1, 2, 1, 2),
            return_sum=(0.5, -0.5),
            return_sum_of_squares=(4.0, 4.0),
            length_sum=50,
        )
        run = tables.run
        self.put(
            checkpoint,
            replace(
                row,
                agent_steps=agent_steps,
                learner_updates=manifest.learner_updates,
                checkpoint=checkpoint.key,
            ),
            replace(
                assignment,
                status="finished",
                agent_steps=STEPS,
                matches=5,
                metrics={"loss/policy": 0.5},
            ),
            *self.folded(tally, assignment.assignment_id, kind="train"),
            replace(
                run,
                agent_steps=run.agent_steps + STEPS,
                matches=run.matches + 5,
                assignments_finished=run.assignments_finished + 1,
                training_assignments=run.training_assignments + 1,
            ),
        )
        return checkpoint

    def folded(
        self, tally: Tally, assignment_id: AssignmentId, *, kind: Literal["train", "evaluate"]
    ) -> list[Row]:
        """The next tally, and the rows that change with it."""
        tables = self.tables
        row = make_tally_row(tally, tables.num_tallies + 1, kind=kind, assignment_id=assignment_id)
        setup = learner_setup(self.run_file, root=self.run_dir)
        half_life = self.run_file.config.payoffs.half_life_matches
        league = League(tables, seats=setup.seats, half_life_matches=half_life)
        return [row, *league.add_tally(row)]

    def evaluate(self, first: str, second: str) -> None:
        """Carry out an evaluation assignment of four matches and commit all that follows."""
        run = self.tables.run
        assignment_id = AssignmentId(run.next_assignment)
        players = tuple(self._frozen(name) for name in (first, second))
        pairing = Pairing(seating=Seating(players=players), num_matches=4)
        message = make_evaluate(assignment_id=assignment_id, pairings=(pairing,))
        assignment = make_assignment(message, attempt=1, status="finished", matches=4)
        tally = make_tally(
            (first, second),
            (0, 1, 1, 1, 2),
            return_sum=(-1.0, 1.0),
            return_sum_of_squares=(3.0, 3.0),
            length_sum=40,
        )
        self.put(
            assignment,
            *self.folded(tally, assignment_id, kind="evaluate"),
            replace(
                run,
                next_assignment=assignment_id + 1,
                matches=run.matches + 4,
                assignments_finished=run.assignments_finished + 1,
                evaluation_assignments=run.evaluation_assignments + 1,
            ),
        )

    @staticmethod
    def _frozen(name: str) -> Player:
        """A player of evaluation, by its name in results."""
        if is_bot(name):
            return Player(player=PlayerId(name))
        weights = WeightsRef(digest=Digest(name), key="policies/frozen")
        return Player(player=PlayerId("player/p000"), weights=weights)

    def snapshot(self, checkpoint: CheckpointRow, *, linked: bool = True) -> GhostRow:
        """Commit a ghost of a checkpoint, and make its directory if it is to be linked."""
        ghost = make_ghost(
            checkpoint.policy,
            checkpoint.agent_steps,
            generation=checkpoint.generation,
            weights_digest=checkpoint.weights_digest,
            key=ghost_key(
                checkpoint.policy, agent_steps=checkpoint.agent_steps, digest=checkpoint.digest
            ),
            checkpoint=checkpoint.key,
            linked=linked,
        )
        if linked:
            link_ghost(self.run_dir, checkpoint_key=ghost.checkpoint, ghost_key=ghost.key)
        self.put(ghost)
        return ghost

    def archive(self) -> ArchiveRow:
        """Let all details leave the journal."""
        tables = self.tables
        row = ArchiveRow(
            number=len(self.journal.archives()) + 1,
            elapsed_s=tables.run.elapsed_s,
            tallies=tables.num_tallies,
            evaluated=tables.last_evaluation_sequence,
            assignments=tables.run.next_assignment - 1,
            events=tables.num_events,
        )
        written = write_archive(self.run_dir / "journal.db", row)
        self.put(written)
        while self.journal.remove_archived(limit=10):
            pass
        return written
