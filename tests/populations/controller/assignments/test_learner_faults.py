"""A failure is first its learner's: healthy learners, policies and the run are unharmed by it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arena.types import LearnerId
from arena.wire.messages import Evaluate, Failed, Train
from populations.controller.assignments.learner_lifecycle import MAX_CHARGES
from populations.controller.state.events import (
    AssignmentFailed,
    KillLearner,
    LearnerExited,
    LearnerJoined,
    StrangerSpoke,
    Ticked,
)
from tests.populations.controller.simulated import DUEL, World, make_world
from tests.populations.rows import make_failed

LONG = {**DUEL, "stop": {"agent_steps_per_policy": 200_000}}
KINDS = ("error", "environment", "non_finite", "checkpoint", "storage", "place", "stopped")


def fail(world: World, learner: LearnerId, *, kind: str, reason: str = "out of memory") -> None:
    """A learner fails its oldest assignment."""
    message = world.given[learner].pop(0)
    key = policy = None
    if isinstance(message, Train):
        trainee = message.trainees[0]
        policy = trainee.policy
        key = trainee.checkpoint.key if trainee.checkpoint is not None else None
    failed = make_failed(
        message, kind=kind, reason=reason, policy=policy, key=key if kind == "checkpoint" else None
    )
    world.handle(AssignmentFailed(learner=learner, failed=failed))


def play(world: World, *, good: list[LearnerId], bad: dict[LearnerId, str], seconds: float) -> int:
    """Let time pass: the good ones take 3 s for an assignment, the bad ones fail all at once.

    Returns:
        Assignments that were finished.
    """
    before = world.state.tables.run.assignments_finished
    end_s = world.now_s + seconds
    tick = 0
    while world.now_s < end_s:
        world.now_s, tick = world.now_s + 0.25, tick + 1
        for known in world.state.crew.learners.values():
            known.last_heard_s = world.now_s
            known.progress_at_s = world.now_s
        for learner, kind in bad.items():
            if learner in world.state.crew.learners and world.given[learner]:
                fail(world, learner, kind=kind)
        for learner in good if tick % 12 == 0 else ():
            event = world.work(learner)
            if event is not None:
                world.handle(event)
        world.fit()
        world.explore()
        world.handle(Ticked())
    return world.state.tables.run.assignments_finished - before


@pytest.mark.parametrize("kind", KINDS)
def test_one_faulty_learner_harms_nobody(kind: str) -> None:
    world, alone = make_world(LONG), make_world(LONG)
    good, bad = world.join(), world.join()
    done = play(world, good=[good], bad={bad: kind}, seconds=60.0)
    done_alone = play(alone, good=[alone.join()], bad={}, seconds=60.0)
    assert world.state.phase.name == "training"
    policies = world.state.tables.policies.values()
    assert {row.state for row in policies} == {"active"}
    assert not world.events("quarantined", "checkpoint_corrupt", "ghost_corrupt", "storage_full")
    (dismissed,) = world.events("learner_dismissed")
    assert dismissed.subject == bad
    failures = dismissed.data["failures"]
    assert isinstance(failures, list)
    assert set(failures) == {kind}
    assert 2 <= len(failures) <= 5
    assert (bad in world.state.crew.learners, good in world.state.crew.learners) == (False, True)
    assert done >= 0.9 * done_alone
    assert world.state.measured.alerts.raised["learner_failing", ""]


def test_a_remote_learner_is_told_why_and_refused_for_a_minute() -> None:
    world = make_world(LONG)
    good, bad = world.join(), world.join()
    host = world.state.crew.learners[bad].hello.host
    play(world, good=[good], bad={bad: "error"}, seconds=12.0)
    ((learner, reason),) = world.refused
    assert learner == bad
    assert "2 assignments in a row failed on this learner and not on others" in reason
    assert "out of memory" in reason

    def come_again() -> LearnerId:
        world.num_learners += 1
        again = LearnerId(f"again-{world.num_learners}")
        world.given[again] = []
        hello = replace(world.hello(again), host=host)
        world.handle(LearnerJoined(learner=again, hello=hello, slot=None))
        return again

    assert come_again() not in world.state.crew.learners
    assert world.refused[-1][1] == reason
    assert world.may_join_again == [True, True], "its process ends with a code that says so"
    play(world, good=[good], bad={}, seconds=60.0)
    again = come_again()
    assert again in world.state.crew.learners
    world.given[again].clear()


def test_a_faulty_process_of_the_launcher_is_started_again_after_growing_pauses() -> None:
    world = make_world({**LONG, "populations": {"player": {"size": 16}}})
    good = world.join(slot=0)
    for number in range(1, 5):
        bad = world.join(slot=1)
        play(world, good=[good], bad={bad: "error"}, seconds=4.0)
        assert len(world.events("learner_dismissed")) == number
        while world.state.crew.slots[1].started_s is None:
            play(world, good=[good], bad={}, seconds=0.5)
    slot = world.state.crew.slots[1]
    assert slot.crashes == 4
    assert world.state.crew.faults["slot 1"].times == 4
    assert {row.state for row in world.state.tables.policies.values()} == {"active"}
    healed = world.join(slot=1)
    event = world.work(healed)
    assert event is not None
    world.handle(event)
    assert (slot.crashes, dict(world.state.crew.faults)) == (0, {})
    assert not world.state.measured.alerts.raised


def test_a_dismissed_process_of_the_launcher_is_killed() -> None:
    world = make_world(LONG)
    world.join(slot=0)
    bad = world.join(slot=1)
    for _ in range(2):
        message = world.given[bad].pop(0)
        failed = Failed(assignment_id=message.assignment_id, attempt=1, kind="error", reason="no")
        tx = world.handle(AssignmentFailed(learner=bad, failed=failed))
    assert KillLearner(slot=1) in tx.commands
    assert not world.refused


def test_trouble_of_all_remote_places_is_no_policys_fault_and_pauses_nobody() -> None:
    world = make_world(LONG)
    bad = [world.join(), world.join()]
    for _ in range(40):
        for learner in bad:
            if learner in world.state.crew.learners and world.given[learner]:
                fail(world, learner, kind="place", reason="the store has not answered for 60 s")
        world.now_s += 0.25
        world.handle(Ticked())
    policies = world.state.tables.policies.values()
    assert {row.state for row in policies} == {"active"}
    assert (world.state.phase.name, world.state.blame.pause) == ("training", None)
    # The learners wait outside, and their work stays available for any learner.
    assert (world.state.crew.learners, world.may_join_again) == ({}, [True, True])
    healthy = world.join()
    assert world.work(healthy) is not None


def cut_off(world: World) -> None:
    """All learners fall silent for as long as a controller waits, and speak again."""
    lost = list(world.state.crew.learners)
    world.now_s += world.state.crew.patience.liveness_s / 3
    for _ in range(4):
        world.handle(Ticked())
        world.now_s += world.state.crew.patience.liveness_s / 3
    assert not world.state.crew.learners
    for learner in lost:
        world.given[learner].clear()
        world.handle(StrangerSpoke(learner=learner))


@pytest.mark.parametrize("evaluation", [False, True])
@pytest.mark.parametrize("num_learners", [1, 2])
def test_a_network_that_fails_again_and_again_is_no_policys_fault(
    evaluation: bool, num_learners: int
) -> None:
    world = make_world(LONG)
    if evaluation:
        healthy = world.join()
        while not isinstance(world.given[healthy][0], Evaluate):
            event = world.work(healthy)
            assert event is not None
            world.handle(event)
    for _ in range(12):
        for number in range(num_learners):
            learner = world.join()
            world.state.crew.learners[learner].place = f"remote-{number}"
        cut_off(world)
    assert world.state.phase.name == "training"
    policies = world.state.tables.policies.values()
    assert {row.state for row in policies} == {"active"}
    assert (world.state.blame.ledger.outcomes, world.state.blame.pause) == ([], None)


def test_a_learner_that_was_stuck_is_not_cleared_when_it_speaks() -> None:
    world = make_world(LONG)
    learner = world.join()
    for _ in range(200):
        world.now_s += 0.5
        if learner in world.state.crew.learners:
            world.state.crew.learners[learner].last_heard_s = world.now_s
        world.handle(Ticked())
    assert learner not in world.state.crew.learners
    world.given[learner].clear()
    world.handle(StrangerSpoke(learner=learner))
    assert [one.kind for one in world.state.blame.ledger.outcomes] == ["lost"]


def test_a_faulty_learner_that_is_first_there_does_not_end_the_run() -> None:
    world = make_world(LONG)  # one of two processes is still starting
    bad = world.join(slot=0)
    while bad in world.state.crew.learners and world.given[bad]:
        fail(world, bad, kind="environment")
    assert world.state.phase.name == "training"
    good = world.join(slot=1)
    assert play(world, good=[good], bad={}, seconds=30.0) >= 9


@pytest.mark.parametrize("failed_starts", [0, 1, 2, 3])
def test_a_process_that_never_says_hello_is_not_waited_for(failed_starts: int) -> None:
    world = make_world(LONG)
    learner = world.join(slot=0)
    for _ in range(failed_starts):
        while world.state.crew.slots[1].started_s is None:
            play(world, good=[], bad={}, seconds=0.5)
        world.handle(LearnerExited(slot=1, code=1))
    fail(world, learner, kind="environment")
    (failure,) = world.state.blame.ledger.outcomes
    assert failure.is_charge == (failed_starts < MAX_CHARGES)
