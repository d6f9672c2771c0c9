"""Assignments whose environments step in other processes: the same results, and no hang."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from arena.learners.work.worker import Worker
from arena.wire.messages import Failed, Finished
from tests.arena.learners.conftest import evaluate, finished, mirror, train
from tests.faults.workers import RANDOM, first_checkpoint, make_worker


def workers_of(worker: Worker) -> list[int]:
    assert worker._env_workers is not None
    crew = worker._env_workers._crew
    return [] if crew is None else crew.pids


def results(root: Path, environment: str, num_env_workers: int, fault: str) -> list[Finished]:
    """Two assignments of training, the second with episodes of the first, and an evaluation."""
    root.mkdir()
    worker = make_worker(
        root, environment, num_env_workers=num_env_workers, fault=fault, share=0.15
    )
    first = finished(worker.carry_out(train(first_checkpoint(worker), mirror(), agent_steps=200)))
    second = finished(
        worker.carry_out(train(first.checkpoints[0].checkpoint, mirror(), agent_steps=200))
    )
    third = finished(worker.carry_out(evaluate((RANDOM, RANDOM, 10))))
    worker.close()
    return [first, second, third]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environment", "fault"), [("faulty:Rounds", ""), ("faulty:turns", "step_raises")]
)
def test_the_number_of_workers_changes_no_bit(environment: str, fault: str, tmp_path: Path) -> None:
    found = [results(tmp_path / str(number), environment, number, fault) for number in (0, 1, 2)]
    digests = [
        [checkpoint.checkpoint.digest for one in answers for checkpoint in one.checkpoints]
        for answers in found
    ]
    assert len(set(digests[0])) == 2
    assert digests[1] == digests[2] == digests[0]
    for answers in found[1:]:
        for one, expected in zip(answers, found[0], strict=True):
            assert one.tallies == expected.tallies
            void = "episode/void"
            assert one.metrics.get(void) == expected.metrics.get(void)


@pytest.mark.slow
def test_a_killed_process_fails_the_assignment_and_the_next_one_is_carried_out(
    tmp_path: Path,
) -> None:
    worker = make_worker(tmp_path, "faulty:Rounds", num_env_workers=2)
    start = first_checkpoint(worker)
    published = finished(worker.carry_out(train(start, mirror(), agent_steps=50)))
    finished(worker.carry_out(evaluate((RANDOM, RANDOM, 4))))
    before = workers_of(worker)
    os.kill(before[0], signal.SIGKILL)
    failed = worker.carry_out(evaluate((RANDOM, RANDOM, 4)))
    assert isinstance(failed, Failed)
    assert failed.kind == "environment"
    assert "process 1 of 2 that step environments" in failed.reason
    assert "was killed by SIGKILL" in failed.reason
    # The episodes in flight were in these processes, too: they are dropped without a failure.
    again = finished(
        worker.carry_out(train(published.checkpoints[0].checkpoint, mirror(), agent_steps=50))
    )
    assert again.dropped
    assert "episode/dropped" not in again.metrics
    assert set(workers_of(worker)).isdisjoint(before)
    finished(worker.carry_out(evaluate((RANDOM, RANDOM, 4))))
    after = workers_of(worker)
    worker.close()
    assert not any(map(psutil.pid_exists, [*before, *after]))
