"""A learner with several processes: results, lives and deaths; nothing is faked."""

from __future__ import annotations

import gc
import json
import math
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from arena.checkpoints.manifest import MANIFEST
from arena.learners.work.worker import Worker
from arena.types import CheckpointRef, Seating
from arena.wire.messages import Finished
from tests.arena.learners.conftest import (
    evaluate,
    failed,
    finished,
    me,
    mirror,
    published,
    train,
)
from tests.arena.samples import Counted
from tests.faults.workers import RANDOM, first_checkpoint, make_worker
from tests.support import wait_until

TIMEOUT_S = 20.0
NUM_ENVS = 5
RANK = "arena.learners.rank"

MakeWorker = Callable[..., Worker]
STOPS = [False]
"""Whether the worker that is shared is to stop."""


@pytest.fixture(scope="module", name="worker")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker of two processes for tests that leave it ready for more: loading takes seconds."""
    worker = make_worker(
        tmp_path_factory.mktemp("shared"),
        "faulty:Rounds",
        cores=2,
        num_envs=NUM_ENVS,
        should_stop=lambda: STOPS[0],
    )
    pids = pids_of(worker)
    yield worker
    worker.close()
    assert not any(map(psutil.pid_exists, pids))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeWorker]:
    made: list[Worker] = []

    def make_one(
        environment: str = "faulty:Rounds", *, name: str = "run", **options: Any
    ) -> Worker:
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        options = {"cores": 2, "num_envs": NUM_ENVS, **options}
        made.append(make_worker(root, environment, **options))
        return made[-1]

    yield make_one
    pids = [pid for worker in made for pid in pids_of(worker)]
    for worker in made:
        worker.close()
    assert not any(map(psutil.pid_exists, pids))


def pids_of(worker: Worker) -> list[int]:
    return [] if worker._crew is None else worker._crew.pids


def vs_random() -> Seating:
    return Seating(players=(me(), RANDOM))


def steps_of(worker: Worker, checkpoint: CheckpointRef) -> int:
    manifest = Path(worker._setup.root, checkpoint.key, MANIFEST)
    found: int = json.loads(manifest.read_text())["agent_steps"]
    return found


def two_assignments(worker: Worker, **changes: Any) -> list[Finished]:
    """The second goes on with the first one's episodes."""
    start = first_checkpoint(worker)
    message = replace(train(start, mirror(), vs_random(), agent_steps=300), **changes)
    first = finished(worker.carry_out(message))
    message = train(
        published(first), mirror(), vs_random(), agent_steps=300, seed=12,
        learner_updates=int(first.metrics["optimizer/updates"]),
    )  # fmt: skip
    carried = [mirror(), vs_random()][: len(first.in_flight)]
    second = finished(worker.carry_out(replace(message, carried=tuple(carried), **changes)))
    return [first, second]


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["faulty:turns", "classic/tictactoe-v3"])
def test_one_number_of_ranks_gives_the_same_results(make: MakeWorker, environment: str) -> None:
    found = [
        two_assignments(make(environment, name=str(run), cores=cores))
        for run, cores in enumerate((2, 2, 3))
    ]
    digests = [[published(one).digest for one in answers] for answers in found]
    assert digests[0] == digests[1]
    # The rank has other episodes and another split.
    assert set(digests[2]).isdisjoint(digests[0])
    for one, other in zip(found[0], found[1], strict=True):
        assert (one.tallies, one.in_flight) == (other.tallies, other.in_flight)


def test_the_result_is_that_of_all_environments(worker: Worker) -> None:
    # Progress in heartbeats is the sum over all ranks.
    progress: Any = worker._progress
    before = progress.agent_steps
    for answer in two_assignments(worker):
        assert steps_of(worker, published(answer)) >= 300
        matches = {tally.entrants[1]: tally.matches for tally in answer.tallies}
        assert set(matches) == {"player/p000#0", "bot:random"}
        assert sum(matches.values()) == answer.metrics["episode/count"]
        assert sum(one.num_envs for one in answer.in_flight) <= NUM_ENVS
        # Of 5 environments the ranks have 3 and 2: 2 and 1 play mirror, the others train one of two
        # agents.
        assert answer.metrics["rollout/trained_share"] == pytest.approx((3 * 2 + 2) / 10, abs=0.05)
    assert progress.agent_steps >= before + 600
    assert finished(worker.carry_out(evaluate((RANDOM, RANDOM, 10)))).tallies[0].matches == 10


def test_whole_episodes_are_played_by_all_ranks(worker: Worker) -> None:
    message = train(first_checkpoint(worker), mirror(), agent_steps=10**6)
    answer = finished(worker.carry_out(replace(message, episodes=3)))
    assert [tally.matches for tally in answer.tallies] == [3 * NUM_ENVS]
    assert answer.in_flight == ()


@pytest.mark.slow
def test_a_killed_rank_is_a_failure_and_the_next_assignment_is_carried_out(
    make: MakeWorker,
) -> None:
    worker, at = make(cores=3), 1
    start = first_checkpoint(worker)
    held = finished(worker.carry_out(train(start, mirror(), agent_steps=50)))
    before = pids_of(worker)
    assert len(before) == 2
    os.kill(before[at], signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(before[at]), timeout_s=TIMEOUT_S)
    answer = failed(worker.carry_out(train(published(held), mirror(), agent_steps=50)))
    assert answer.kind == "error"
    assert answer.reason == (
        f"process {at + 2} of 3 of this learner (learner_cores) was killed by SIGKILL, perhaps for "
        "lack of memory"
    )
    assert pids_of(worker) == []
    assert not any(map(psutil.pid_exists, before))
    again = finished(worker.carry_out(train(published(held), mirror(), agent_steps=50)))
    # Rank 0's part of the episodes in flight is useless without the other ranks' part.
    assert again.dropped
    assert set(pids_of(worker)).isdisjoint(before)
    finished(worker.carry_out(evaluate((RANDOM, RANDOM, 4))))


@pytest.mark.slow
def test_a_rank_whose_environment_breaks_says_so(make: MakeWorker) -> None:
    worker = make(fault="step_raises", only_in=RANK)
    answer = failed(worker.carry_out(train(first_checkpoint(worker), mirror(), agent_steps=500)))
    assert answer.kind == "environment"
    assert "the board is on fire" in answer.reason
    assert answer.reason.endswith("(process 2 of 2 of this learner (learner_cores))")
    # A small share of broken episodes is not a failure; it is counted over all ranks.
    worker = make(fault="step_raises", only_in=RANK, share=0.1)
    done = finished(worker.carry_out(train(first_checkpoint(worker), mirror(), agent_steps=500)))
    assert done.metrics["episode/void"] > 0


def test_a_stop_ends_all_ranks_and_publishes_what_is_learned(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = first_checkpoint(worker)
    progress: Any = worker._progress
    count, enough = progress.advance, [progress.agent_steps + 2000.0]

    def advance(agent_steps: int = 0) -> None:
        count(agent_steps)
        STOPS[0] = progress.agent_steps > enough[0]

    monkeypatch.setattr(progress, "advance", advance)
    message = train(start, mirror(), agent_steps=10**8, may_stop_early=True)
    answer = finished(worker.carry_out(message))
    assert 1000 < steps_of(worker, published(answer)) < 10**6
    # The other ranks got the stop, too, and are ready for the next assignment.
    enough[0] = math.inf
    STOPS[0] = False
    finished(worker.carry_out(train(published(answer), mirror(), agent_steps=50)))


def test_the_time_in_which_others_load_is_no_standstill(
    make: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make()
    crew, progress = worker._crew, worker._progress
    assert crew is not None
    assert isinstance(progress, Counted)
    (pid,) = crew.pids
    # The new process imports torch, which takes seconds.
    os.kill(pid, signal.SIGSTOP)
    link = crew._started()
    assert not link.has_begun

    def is_counted() -> bool:
        before = progress.turns
        crew._wait()
        return progress.turns > before

    assert [is_counted() for _ in range(3)] == [True] * 3
    monkeypatch.setattr("arena.learners.ranks.crew.LOAD_S", 0.0)
    assert not is_counted()
    monkeypatch.undo()
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: link.has_begun, timeout_s=TIMEOUT_S)
    # From now on its work counts, first of all that it has begun.
    assert [is_counted() for _ in range(3)] == [True, False, False]


def test_births_and_the_digest_of_a_setup_are_the_same_with_any_number(
    make: MakeWorker, worker: Worker
) -> None:
    alone = make(cores=1)
    assert first_checkpoint(alone).digest == first_checkpoint(worker).digest
    assert alone._setup.digest == worker._setup.digest


@pytest.mark.slow
@pytest.mark.usefixtures("worker")
def test_nothing_is_left_open(make: MakeWorker) -> None:
    def open_files() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    before = open_files()
    worker = make()
    finished(worker.carry_out(train(first_checkpoint(worker), mirror(), agent_steps=50)))
    worker.close()
    del worker
    assert open_files() <= before
