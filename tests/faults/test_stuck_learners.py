"""Learners that are slow, stuck, stopped or out of memory: F18, F19, F20."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from arena.wire.messages import Heartbeat
from populations.controller.state.events import HeartbeatReceived, LearnerExited, Ticked
from populations.controller.state.leases import Patience
from populations.records.rows import EventRow
from tests.faults.runs import IMPATIENT, check_left, document, learners_of, served
from tests.populations.controller.simulated import DUEL, World, make_world
from tests.support import wait_until

MEBIBYTE = 2**20


def has_recovered(events: Sequence[EventRow]) -> bool:
    """Somebody was lost, and somebody else was given work after that."""
    kinds = [event.kind for event in events]
    if "learner_lost" not in kinds:
        return False
    after = kinds[kinds.index("learner_lost") :]
    if "learner_joined" not in after:
        return False
    return not {"train_assigned", "evaluation_assigned"}.isdisjoint(
        after[after.index("learner_joined") :]
    )


@pytest.mark.parametrize(
    ("fault", "num_env_workers"), [("spins", 0), ("sleeps", 0), ("spins", 2), ("sleeps", 2)]
)
def test_a_stuck_learner_says_where_is_killed_and_its_work_given_out_again(
    fault: str, num_env_workers: int, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    config = document(fault, once=str(tmp_path / "once"), num_env_workers=num_env_workers)
    # The limit exceeds the time that a learner needs before its first step on a busy machine.
    patience = replace(IMPATIENT, stall_s=10.0)
    with served(run, config, patience=patience) as watched:
        watched.done = has_recovered
        watched.server.run()
    lost = watched.of("learner_lost")[0]
    assert "no progress" in str(lost.data["reason"])
    assert "its stacks are in the run's logs directory" in str(lost.data["reason"])
    stacks = (run / "logs" / "stacks-learner-0.txt").read_text()
    assert stacks.startswith("process ")
    if num_env_workers:
        # Each process writes its stacks to a file of its own.
        files = sorted((run / "logs").glob("stacks-learner-0-env-*.txt"))
        assert [path.name[-7:] for path in files] == ["v-1.txt", "v-2.txt"]
        stacks = "".join(path.read_text() for path in files)
    assert "in _do_worse" in stacks
    assert "most recent call first" in stacks
    held = lost.data["assignments"]
    assert isinstance(held, list)
    assigned = watched.of("train_assigned", "evaluation_assigned")
    given = [event.data for event in assigned if event.subject == str(held[0])]
    assert [data["attempt"] for data in given] == list(range(1, len(given) + 1))
    assert len(given) >= 2
    check_left(run)


def test_a_stopped_learner_is_lost_killed_and_replaced(tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = document("stops", once=str(tmp_path / "once"))
    with served(run, config, patience=Patience(heartbeat_s=0.1, liveness_s=2.0)) as watched:
        watched.done = has_recovered
        watched.server.run()
    lost = watched.of("learner_lost")[0]
    assert "silent for" in str(lost.data["reason"])
    pids = [event.data["pid"] for event in watched.of("learner_joined")]
    assert not psutil.pid_exists(int(str(pids[0])))
    check_left(run)


def joined(world: World, *, rss_bytes: Sequence[int]) -> None:
    """A learner in slot 0 whose heartbeats tell its memory."""
    learner = world.join(slot=0)
    for rss in rss_bytes:
        heartbeat = Heartbeat(
            assignment_id=None, attempt=0, progress=0, agent_steps=0, rss_bytes=rss
        )
        world.handle(HeartbeatReceived(learner=learner, heartbeat=heartbeat))


@pytest.mark.parametrize(
    ("rss_bytes", "code", "reason"),
    [
        ((200 * MEBIBYTE, 4000 * MEBIBYTE), -9, "out of memory: its memory grew from 200 to 4,000"),
        ((200 * MEBIBYTE, 320 * MEBIBYTE), -9, "killed by signal 9"),
        ((900 * MEBIBYTE, 1100 * MEBIBYTE), -9, "killed by signal 9"),
        ((200 * MEBIBYTE, 4000 * MEBIBYTE), -11, "killed by signal 11"),
        ((), -9, "killed by signal 9"),
    ],
)
def test_only_a_kill_after_growth_looks_like_the_systems(
    rss_bytes: Sequence[int], code: int, reason: str
) -> None:
    world = make_world({**DUEL, "learners": 1})
    joined(world, rss_bytes=rss_bytes)
    world.handle(LearnerExited(slot=0, code=code))
    (lost,) = world.events("learner_lost")
    told = str(lost.data["reason"])
    assert told.endswith(reason) or (reason.endswith("4,000") and f"{reason} MiB" in told)


def test_a_slow_learner_keeps_its_lease_while_it_gets_on() -> None:
    world = make_world({**DUEL, "learners": 1})
    learner = world.join()
    patience = world.state.crew.patience
    for beat in range(12):
        # Each turn takes almost as long as the limit for stuck learners.
        for _ in range(int(patience.stall_s) - 15):
            world.now_s += 1.0
            world.beat(learner, progress=beat)
            world.handle(Ticked())
    assert 12 * (patience.stall_s - 15) < 600.0, "the deadline is another matter"
    assert learner in world.state.crew.learners
    assert world.events("learner_lost") == []


def test_a_killed_stopped_learner_is_gone_though_it_could_not_write(tmp_path: Path) -> None:
    # The kernel delays signals of a stopped process, except SIGKILL.
    run = tmp_path / "run"
    with served(run, document()) as watched:

        def stop_it(events: Sequence[EventRow]) -> bool:
            if any(event.kind == "train_assigned" for event in events):
                for process in learners_of(run):
                    os.kill(process.pid, signal.SIGSTOP)
                return True
            return False

        watched.done = stop_it
        watched.server.run()
    wait_until(lambda: not learners_of(run), timeout_s=2.0)
    check_left(run)
