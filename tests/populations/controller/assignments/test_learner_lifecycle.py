"""What is said again, who is fenced, and what a long gap forgives."""

from __future__ import annotations

from msgspec.structs import replace

from arena.types import Digest, LearnerId
from arena.wire.messages import Evaluate, Heartbeat, Stop, Train
from populations.controller.assignments.learner_lifecycle import MAX_GONE
from populations.controller.server.live_status import LiveFigures
from populations.controller.state.events import (
    AssignmentFailed,
    HeartbeatReceived,
    LearnerExited,
    LearnerJoined,
    LearnerUnreachable,
    SendMessage,
    StartLearner,
    StopRequested,
    Ticked,
)
from populations.controller.state.leases import Patience
from populations.controller.state.transaction import Transaction
from tests.populations.controller.simulated import DUEL, World, make_world
from tests.populations.rows import make_failed


def sent(tx: Transaction) -> list[tuple[LearnerId, Train | Evaluate | Stop]]:
    """Assignments and Stops among the commands."""
    return [
        (command.learner, command.message)
        for command in tx.commands
        if isinstance(command, SendMessage) and isinstance(command.message, Train | Evaluate | Stop)
    ]


def idle(world: World, learner: LearnerId) -> Transaction:
    """A heartbeat of somebody who has nothing to do."""
    heartbeat = Heartbeat(assignment_id=None, attempt=0, progress=0, agent_steps=0, rss_bytes=1)
    return world.handle(HeartbeatReceived(learner=learner, heartbeat=heartbeat))


def test_an_assignment_that_no_heartbeat_is_about_is_sent_again_at_doubling_intervals() -> None:
    world = make_world({**DUEL, "learners": 1})
    learner = world.join()
    message = world.given[learner][0]
    times = []
    for tick in range(1, 300):
        world.now_s = 0.1 * tick
        idle(world, learner)
        if again := sent(world.handle(Ticked())):
            assert again == [(learner, message)]
            times.append(round(world.now_s, 1))
    first_s = Patience().resend_s
    assert times == [first_s * (2**k - 1) for k in range(1, 4)]


def test_an_assignment_that_runs_is_not_sent_again_whatever_older_heartbeats_say() -> None:
    world = make_world({**DUEL, "learners": 1})
    learner = world.join()
    message = world.given[learner][0]
    told = Heartbeat(
        assignment_id=message.assignment_id, attempt=0, progress=0, agent_steps=0, rss_bytes=1
    )
    world.handle(HeartbeatReceived(learner=learner, heartbeat=told))
    (held, *_) = world.state.crew.learners[learner].held
    assert held.started_s is None, "that was about an older attempt"
    told = replace(told, attempt=message.attempt)
    world.handle(HeartbeatReceived(learner=learner, heartbeat=told))
    for tick in range(1, 100):
        world.now_s = 0.1 * tick
        idle(world, learner)
        assert not sent(world.handle(Ticked()))


def test_who_was_given_up_may_not_come_back_and_who_was_not_may_say_hello_again() -> None:
    world = make_world()
    first, second = world.join(), world.join()
    world.handle(LearnerUnreachable(learner=first))
    for learner in (first, second):
        world.handle(LearnerJoined(learner=learner, hello=world.hello(learner), slot=None))
    assert list(world.state.crew.learners) == [second]
    assert [learner for learner, _ in world.refused] == [first]
    assert world.refused[0][1].startswith("fenced")
    assert not world.events("learner_refused"), "it says Hello until it is heard"


def test_only_the_last_who_were_given_up_are_remembered() -> None:
    world = make_world()
    world.state.crew.gone = {LearnerId(f"old-{number}"): None for number in range(MAX_GONE)}
    world.handle(LearnerUnreachable(learner=world.join()))
    assert len(world.state.crew.gone) == MAX_GONE
    assert LearnerId("old-0") not in world.state.crew.gone


def test_what_cannot_be_sent_to_a_process_of_the_launcher_is_for_the_launcher_to_explain() -> None:
    world = make_world({**DUEL, "learners": 1})
    learner = world.join(slot=0)
    held = [each.assignment_id for each in world.state.crew.learners[learner].held]
    world.handle(LearnerUnreachable(learner=learner))
    assert [each.assignment_id for each in world.state.crew.learners[learner].held] == held
    world.handle(LearnerExited(slot=0, code=None))
    (lost,) = world.events("learner_lost")
    assert lost.data["reason"] == "its node was lost"
    assert not world.events("assignment_failed"), "no work is to blame"


def test_a_stop_is_said_again_to_whoever_is_still_there() -> None:
    world = make_world()
    learner = world.join()
    world.handle(StopRequested(reason="interrupted by SIGINT"))
    assert [(who, type(message)) for who, message in sent(idle(world, learner))] == [
        (learner, Stop)
    ]


def test_a_gap_extends_the_time_to_stop_whatever_is_heard_first_after_it() -> None:
    world = make_world()
    learner = world.join()
    world.handle(StopRequested(reason="interrupted by SIGINT"))
    world.now_s += 1000.0
    idle(world, learner)
    world.handle(Ticked())
    assert not world.over
    for _ in range(40):
        world.now_s += 1.0
        idle(world, learner)
        world.handle(Ticked())
    assert world.over


def test_a_validation_whose_learner_is_lost_is_done_again_before_anybody_is_blamed() -> None:
    world = make_world({**DUEL, "learners": 1, "deterministic": True})
    for _ in range(200):
        learner = world.state.crew.slots[0].learner or world.join(slot=0)
        queue = world.given[learner]
        if queue and isinstance(queue[0], Evaluate):
            break
        world.step()
    validation = queue[0]
    world.handle(LearnerExited(slot=0, code=-9))
    assert validation.assignment_id in world.state.tables.assignments
    again = world.given[world.join(slot=0)][0]
    assert replace(again, attempt=validation.attempt) == validation
    world.handle(LearnerExited(slot=0, code=-9))
    assert validation.assignment_id not in world.state.tables.assignments


def test_among_many_learners_heartbeats_are_further_apart() -> None:
    patience = Patience(heartbeat_s=1.0, liveness_s=10.0)
    times_s = [patience.heartbeat_among_s(number) for number in (1, 100, 250, 10_000)]
    assert times_s == [1.0, 1.0, 2.5, 10.0 / 3.0]


def test_a_learner_that_does_not_see_the_runs_store_is_told_what_to_mount() -> None:
    world = make_world()
    world.state.settings.store = Digest("5" * 64)
    for store in (None, Digest("6" * 64)):
        hello = replace(world.hello(LearnerId("far")), store=store)
        world.handle(LearnerJoined(learner=LearnerId("far"), hello=hello, slot=None))
    assert not world.state.crew.learners
    for _, reason in world.refused:
        assert f"mount the directory {world.setup.root} of the controller's machine" in reason
    world.join()
    assert len(world.state.crew.learners) == 1


def starts(tx: Transaction) -> list[int]:
    """Slots in which a process is asked for."""
    return [command.slot for command in tx.commands if isinstance(command, StartLearner)]


def test_one_that_waits_for_a_place_has_not_failed_to_start_and_its_time_begins_there() -> None:
    world = make_world({**DUEL, "learners": 1})
    start_s = world.state.crew.patience.start_s
    for _ in range(100):
        world.now_s += 2.0
        assert not starts(world.handle(Ticked(waiting=frozenset({0}))))
        assert live_waiting(world) == 1
    placed_s = world.now_s
    while world.now_s <= placed_s + start_s:
        assert not world.events("learner_start_failed")
        world.now_s += 2.0
        world.handle(Ticked())
        assert live_waiting(world) == 0
    (failed,) = world.events("learner_start_failed")
    assert failed.data["reason"] == f"no Hello within {start_s:.0f} s"


def live_waiting(world: World) -> object:
    document = LiveFigures().document(world.state, now_s=world.now_s, endpoint="ipc:///x")
    return document["learners_waiting"]


def test_an_assignment_that_failed_here_does_not_wait_for_a_learner_without_a_place() -> None:
    world = make_world({**DUEL, "learners": 2})
    learner = world.join(slot=0)
    world.handle(Ticked(waiting=frozenset({1})))
    message = world.given[learner].pop(0)
    failed = make_failed(message)
    world.handle(AssignmentFailed(learner=learner, failed=failed))
    again = {given.assignment_id for given in world.given[learner]}
    assert message.assignment_id in again
    assert world.state.blame.ledger.charges_of(learner) == []


def test_one_that_is_lost_with_its_node_is_nobodys_fault() -> None:
    # The only learner fails again and again; crashes would quarantine its policy.
    world = make_world({**DUEL, "learners": 1})
    for _ in range(5):
        learner = world.join(slot=0)
        (first, *_) = [held.assignment_id for held in world.state.crew.learners[learner].held]
        world.beat(learner)
        assert starts(world.handle(LearnerExited(slot=0, code=None))) == [0]
        assert learner not in world.state.crew.learners
        assert first in world.state.tables.assignments
        assert world.state.crew.slots[0].crashes == 0
    # The same holds for an exit before the Hello.
    for _ in range(10):
        assert starts(world.handle(LearnerExited(slot=0, code=None))) == [0]
    assert world.state.blame.ledger.outcomes == []
    assert not world.events("quarantined")
    assert not world.events("learner_start_failed")
    lost = world.events("learner_lost")
    assert {event.data["reason"] for event in lost} == {"its node was lost"}
    assert len(lost) == 5


def test_learners_of_a_cluster_may_be_silent_until_it_says_that_a_node_is_gone() -> None:
    silent_s = {}
    for launcher in ("local", "ray"):
        patience = make_world({**DUEL, "launcher": launcher}).state.crew.patience
        silent_s[launcher] = patience.liveness_s
    assert silent_s == {"local": 10.0, "ray": 30.0}
