"""The other side of `test_whose_fault`: what follows one policy, over real runs, is that policy's.

And what follows nobody for hundreds of assignments is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from msgspec import structs
from safetensors.torch import load, load_file, save

from arena.checkpoints.files import file_records, read_manifest
from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS
from arena.checkpoints.publish import publish
from arena.learning.ppo import Ppo
from arena.types import AssignmentId, PolicyId
from arena.wire.messages import Failed, Finished, Train
from populations.controller.state.leases import Patience
from populations.records.aggregates import Row
from populations.records.rows import PolicyRow
from populations.storage.journal import Journal
from tests.arena.learners.conftest import mirror, train
from tests.faults.runs import check_left, document, served
from tests.faults.troubled_runs import Run, begin, check_policies, running, trainees
from tests.faults.troubles import ENCODER, Setting, Trouble
from tests.faults.workers import first_checkpoint, make_worker
from tests.populations.rows import make_checkpoint

HERE = pytest.mark.timeout(480)
BROKEN = PolicyId("player/p001")
WITHIN = 6
"""Of its assignments: so many it may fail before it is taken out."""
MANY = 300


@contextmanager
def edited(run: Run, edit: Callable[[Path, PolicyRow], list[Row]]) -> Iterator[None]:
    """Stop a run, write rows about the policy that is to be broken, and go on."""
    run.stop()
    with Journal.open(run.directory / "journal.db") as journal:
        tables = journal.load()
        # Assignments given out earlier would train the policy's old state.
        about = [
            row
            for row in tables.assignments.values()
            if isinstance(row.message, Train)
            and BROKEN in {trainee.policy for trainee in row.message.trainees}
        ]
        journal.commit([structs.replace(row, status="failed", reason="edited") for row in about])
        journal.commit(edit(run.directory, tables.policies[BROKEN]))
    run.start()
    yield


def wild_rate(directory: Path, policy: PolicyRow) -> list[Row]:
    """A learning rate at which the first updates leave no number finite."""
    # One step makes weights as large as the learning rate, and the square of such a value overflows
    # float32.
    del directory
    return [
        structs.replace(policy, hyperparameters={**policy.hyperparameters, "learning_rate": 1e30})
    ]


def poison(directory: Path, policy: PolicyRow) -> list[Row]:
    """A checkpoint that is valid to the last byte, and whose weights are absurd."""
    assert policy.checkpoint is not None
    source = directory / policy.checkpoint
    weights = load((source / WEIGHTS).read_bytes())
    layers = [name for name in weights if name.endswith("weight")]
    assert layers
    absurd = weights | {name: 1e25 * weights[name] for name in layers}
    files = {WEIGHTS: save(absurd), OPTIMIZER: (source / OPTIMIZER).read_bytes()}
    manifest = read_manifest(source)
    updates = manifest.learner_updates + 1
    manifest = structs.replace(manifest, files=file_records(files), learner_updates=updates)
    published = publish(directory, manifest=manifest, files=files)
    row = make_checkpoint(
        published.key,
        digest=published.digest,
        weights_digest=manifest.weights_digest,
        policy=policy.policy,
        generation=policy.generation,
        agent_steps=policy.agent_steps,
        learner_updates=manifest.learner_updates,
        parent=manifest.parent,
        assignment_id=AssignmentId(0),
    )
    after = structs.replace(
        policy, checkpoint=published.key, learner_updates=manifest.learner_updates
    )
    return [row, after]


def check_taken_out(run: Run, *, since: int) -> None:
    """The broken policy is taken out soon, and nobody else is touched; the others train on."""
    run.wait_for(lambda: run.events("quarantined"))
    (first, *_) = run.events("quarantined")
    assert first.subject == BROKEN
    given = {
        row.subject
        for row in run.events("train_assigned")
        if since < row.sequence < first.sequence and BROKEN in str(row.data["policies"])
    }
    assert 1 <= len(given) <= WITHIN
    then = len(run.trained())
    run.wait_for(lambda: _others_train(run, then))
    run.stop()
    check_policies(run, changed=[BROKEN])


def _others_train(run: Run, then: int) -> bool:
    done = {policy for row in run.trained()[then:] for policy in trainees(row)}
    return set(run.tables().policies) - {BROKEN} <= done


@HERE
@pytest.mark.parametrize(
    ("setting", "edit"),
    [
        (Setting(policies=4, learners=2, cooperates=False, workers=0), wild_rate),
        (Setting(policies=2, learners=1, cooperates=True, workers=1), wild_rate),
        (Setting(policies=2, learners=2, cooperates=False, workers=1), poison),
        (Setting(policies=4, learners=1, cooperates=True, workers=0), poison),
    ],
    ids=["rate-vs", "rate-with", "poison-vs", "poison-with"],
)
def test_a_policy_whose_numbers_break_is_taken_out_alone(
    setting: Setting, edit: Callable[[Path, PolicyRow], list[Row]], tmp_path: Path
) -> None:
    # In the first pass the old and the new policy are equal, so nothing can break.
    epochs = {"rollout_length": 8, "num_epochs": 3, "num_minibatches": 1}
    config = setting.document(player={"hyperparameters": epochs})
    with running(tmp_path, config) as run:
        since = run.tables().num_events
        with edited(run, edit):
            check_taken_out(run, since=since)


@HERE
@pytest.mark.parametrize(
    "setting",
    [
        Setting(policies=4, learners=2, cooperates=False, workers=0),
        Setting(policies=2, learners=1, cooperates=False, workers=1),
        Setting(policies=4, learners=2, cooperates=True, workers=0),
        Setting(policies=2, learners=1, cooperates=True, workers=0),
    ],
    ids=["two-vs", "one-vs", "two-with", "one-with"],
)
def test_an_encoder_that_fails_with_one_policys_weights_takes_out_that_one(
    setting: Setting, tmp_path: Path
) -> None:
    trouble = Trouble(name="encoder", setting=setting, sentence="")
    with running(tmp_path, setting.document(**ENCODER)) as run:
        since = run.tables().num_events
        checkpoint = run.tables().policies[BROKEN].checkpoint
        assert checkpoint is not None
        weights = load((run.directory / checkpoint / WEIGHTS).read_bytes())
        (mark,) = [float(tensor) for name, tensor in weights.items() if name.endswith("mark")]
        begin(run, replace(trouble, whom=repr(mark)))
        check_taken_out(run, since=since)


@HERE
def test_a_simulator_that_dies_now_and_then_is_nobodys_fault_after_many_assignments(
    tmp_path: Path,
) -> None:
    # An assignment has 64 agent steps of two agents, four rounds an episode: 8 episodes.
    setting = Setting(policies=4, learners=1, cooperates=False, workers=1)
    trouble = Trouble(name="dies", setting=setting, sentence="", share=1.0 / 20.0 / 8.0)
    config = setting.document(assignment={"agent_steps": 64}, evaluation={"share": 0.05})
    with running(tmp_path, config) as run:
        began = len(run.trained())
        begin(run, trouble)
        run.wait_for(lambda: len(run.trained()) >= began + MANY, timeout_s=360.0)
        assert run.events("assignment_failed", "learner_lost")
        run.stop()
        check_policies(run)


def checkpoints(root: Path) -> list[Path]:
    return sorted(root.glob("populations/*/*/checkpoints/*/*.safetensors"))


def all_are_finite(root: Path) -> bool:
    files = checkpoints(root)
    assert files
    return all(bool(t.isfinite().all()) for file in files for t in load_file(file).values())


def test_an_exploding_policy_goes_on_once_with_half_its_rate_and_then_stays_out(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    player = {
        "size": 1,
        "network": {"hidden_sizes": [8]},
        "hyperparameters": {"learning_rate": 1e30, "rollout_length": 8},
        "search_space": {},
    }
    config = document(populations={"player": player})
    with served(run, config, patience=Patience()) as watched:
        watched.server.run()
    story = watched.of("quarantined", "learning_rate_halved", "run_failed")
    kinds = [event.kind for event in story]
    assert kinds == ["quarantined", "learning_rate_halved", "quarantined", "run_failed"]
    assert "not finite in 3 updates in a row" in str(story[0].data["reason"])
    assert story[1].data["old"] == {**story[1].data["new"], "learning_rate": 1e30}  # type: ignore[dict-item]
    assert story[1].data["new"]["learning_rate"] == 5e29  # type: ignore[index,call-overload]
    assert "no active policy is left" in str(story[3].data["reason"])
    assert {e.data["failure"] for e in watched.of("assignment_failed")} == {"non_finite"}
    assert all_are_finite(run)
    check_left(run)


def test_a_weight_that_is_not_a_number_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = first_checkpoint(make_worker(tmp_path, "faulty:Rounds"))
    worker = make_worker(tmp_path, "faulty:Rounds")
    before = checkpoints(tmp_path)
    load = Ppo.load

    def poisoned(self: Ppo, *arguments: object, **words: object) -> None:
        load(self, *arguments, **words)  # type: ignore[arg-type]
        with torch.no_grad():
            next(self._network.parameters()).view(-1)[0] = torch.nan

    monkeypatch.setattr(Ppo, "load", poisoned)
    failed = worker.carry_out(train(start, mirror(), agent_steps=400))
    assert isinstance(failed, Failed)
    assert failed.kind in ("non_finite", "error")
    assert "finite" in failed.reason or "nan" in failed.reason
    assert checkpoints(tmp_path) == before
    monkeypatch.undo()
    # The next assignment loads the checkpoint from disk instead of the weights in memory.
    finished = worker.carry_out(train(start, mirror(), agent_steps=100))
    assert isinstance(finished, Finished), finished
    assert all_are_finite(tmp_path)
    worker.close()
