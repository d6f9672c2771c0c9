"""What `status.json` says of a state that is known, and how fast a run is."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.types import AssignmentId, LearnerId
from arena.wire.messages import Heartbeat
from populations.controller.server.live_status import (
    SAMPLE_S,
    STORAGE_ADVICE,
    WINDOW_S,
    LiveFigures,
    alerts,
    stragglers,
)
from populations.controller.state.events import HeartbeatReceived
from populations.controller.state.leases import HeldAssignment, Learner, MatchTimes, Pause
from populations.hooks.findings import Finding
from tests.arena.wire.examples import HELLO
from tests.populations.controller.simulated import World, make_world


def count(world: World, agent_steps: int) -> None:
    """Let a run have so many agent steps."""
    world.state.tables.run = replace(world.state.tables.run, agent_steps=agent_steps)


def measured(samples: list[tuple[float, int]]) -> list[float]:
    """Speeds after each of some samples of a run without learners: seconds and agent steps."""
    world, figures, found = make_world(), LiveFigures(), []
    for now_s, agent_steps in samples:
        count(world, agent_steps)
        figures.record(world.state, now_s=now_s)
        found.append(figures.agent_steps_per_s)
    return found


def test_speed_is_that_of_the_last_half_minute_by_hand() -> None:
    samples = [(0.0, 0), (10.0, 100), (20.0, 600), (30.0, 900), (40.0, 900), (60.0, 1900)]
    # One sample gives no speed. At 40 s the first sample in the window is that of 10 s, at 60 s
    # that of 30 s.
    expected = [0.0, 10.0, 30.0, 30.0, 800 / 30, 1000 / 30]
    assert measured(samples) == pytest.approx(expected)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 80), st.integers(0, 1000)), min_size=1, max_size=30))
def test_speed_is_that_between_the_oldest_and_the_newest_sample_in_the_window(
    steps: list[tuple[int, int]],
) -> None:
    samples, now = [], 0
    for quarters, agent_steps in steps:
        # Quarters of a second are exact in floating point.
        now += quarters
        samples.append((now / 4, agent_steps))
    kept: list[tuple[float, int]] = []
    expected = []
    for at_s, agent_steps in samples:
        if not kept or at_s - kept[-1][0] >= SAMPLE_S:
            kept.append((at_s, agent_steps))
        window = [sample for sample in kept if kept[-1][0] - sample[0] <= WINDOW_S]
        passed_s, done = window[-1][0] - window[0][0], window[-1][1] - window[0][1]
        expected.append(max(done, 0) / passed_s if passed_s else 0.0)
    assert measured(samples) == pytest.approx(expected)


def test_running_assignments_count() -> None:
    world, figures = make_world(), LiveFigures()
    first, second = world.join(), world.join()
    figures.record(world.state, now_s=0.0)
    world.state.crew.learners[first].agent_steps = 30
    world.state.crew.learners[second].agent_steps = 20
    count(world, 50)
    figures.record(world.state, now_s=4.0)
    assert figures.agent_steps_per_s == 25.0


def test_the_status_of_a_known_state_by_hand() -> None:
    world = make_world()
    world.now_s = 5.0
    first = world.join(slot=0)
    second = world.join()
    state = world.state
    held = [one.assignment_id for one in state.crew.learners[first].held]
    beat = Heartbeat(assignment_id=held[0], attempt=1, progress=7, agent_steps=120, rss_bytes=4096)
    world.now_s = 8.0
    world.handle(HeartbeatReceived(learner=first, heartbeat=beat))
    state.crew.learners[first].rate = 40.04
    state.crew.learners[first].speeds["player"] = 123.46
    state.crew.learners[first].match_times = MatchTimes(matches=8.0, seconds=2.0)
    # The learner is idle, so its earlier speed does not count.
    state.crew.learners[second].held.clear()
    state.crew.learners[second].rate = 4000.0
    state.phase.elapsed_before_s, state.phase.started_s = 100.0, 2.0
    state.tables.run = replace(
        state.tables.run,
        run="r",
        epoch=3,
        assignments_finished=11,
        agent_steps=900,
        matches=41,
        training_s=30.0,
        evaluation_s=10.0,
    )
    figures = LiveFigures()
    figures.record(state, now_s=8.0)
    state.crew.learners[first].agent_steps = 170
    figures.record(state, now_s=11.0)
    document = figures.document(state, now_s=11.256, endpoint="ipc:///tmp/r")
    learners = document.pop("learners")
    assert document == {
        "run": "r",
        "pid": os.getpid(),
        "epoch": 3,
        "endpoint": "ipc:///tmp/r",
        "store_endpoint": None,
        "phase": "training",
        "elapsed_s": 109.26,
        "assignments_finished": 11,
        "agent_steps": 900,
        "matches": 41,
        "events": state.tables.num_events,
        "alerts": [],
        "evaluation": {"share_asked": 0.3, "share_reached": 0.25},
        # 50 agent steps in 3 s.
        "agent_steps_per_s": 16.7,
        "learners_waiting": 0,
    }
    assert learners == [
        {
            "learner": first,
            "pid": 1001,
            "slot": 0,
            "state": "working",
            "assignment": held[0],
            "progress": 7,
            "agent_steps": 170,
            "agent_steps_per_s": 40.0,
            "speeds": {"player": 123.5},
            "match_s": 0.25,
            "straggler": False,
            "rss_bytes": 4096,
            "silent_s": 3.26,
        },
        {
            "learner": second,
            "pid": 1002,
            "slot": None,
            "state": "idle",
            "assignment": None,
            "progress": 0,
            "agent_steps": 0,
            "agent_steps_per_s": 0.0,
            "speeds": {},
            "match_s": None,
            "straggler": False,
            "rss_bytes": 0,
            "silent_s": 6.26,
        },
    ]
    assert len(held) == 2
    assert json.loads(json.dumps(document)) == document


def test_a_straggler_is_marked_in_the_status() -> None:
    world = make_world()
    learners = [world.join(), world.join()]
    for learner, rate in zip(learners, (1000.0, 100.0), strict=True):
        world.state.crew.learners[learner].rate = rate
    document = LiveFigures().document(world.state, now_s=0.0, endpoint="")
    shown = document["learners"]
    assert isinstance(shown, list)
    assert [one["straggler"] for one in shown if isinstance(one, dict)] == [False, True]


def test_the_disk_is_the_first_alert_while_it_refuses() -> None:
    state = make_world().state
    state.measured.alerts.record(Finding("sink_failed", "csv", "csv", "it raised"))
    others = state.measured.alerts.documents()
    assert alerts(state.blame.pause, state.measured, now_s=0.0) == others
    pause = state.blame.pause = Pause(reason="no room", since_s=10.0, wait_s=4.0, retry_at_s=17.0)
    disk = {"name": "storage_full", "subject": "", "advice": STORAGE_ADVICE, "sources": []}
    paused = "no room; nothing is given out since"
    for now_s, tried_at_s, what in (
        (13.0, None, f"{paused} 3 s, the next try is in 4 s"),
        # The try is due, but the loop has not run yet.
        (18.0, None, f"{paused} 8 s, the next try is in 0 s"),
        (18.0, 17.5, f"{paused} 8 s, the next try is now"),
    ):
        pause.tried_at_s = tried_at_s
        assert alerts(state.blame.pause, state.measured, now_s=now_s) == [
            {**disk, "what": what},
            *others,
        ]


def of_rate(rate: float, *, is_working: bool = True) -> Learner:
    """A learner that trains at some agent steps per second."""
    lease = HeldAssignment(assignment_id=AssignmentId(1), attempt=1, given_s=0.0)
    held = [lease] if is_working else []
    return Learner(hello=HELLO, slot=None, last_heard_s=0.0, rate=rate, held=held)


@pytest.mark.parametrize(
    ("rates", "slow"),
    [
        ({"a": 1000.0, "b": 1100.0, "c": 50.0}, {"c"}),
        ({"a": 1000.0, "b": 50.0}, {"b"}),
        ({"a": 1000.0, "b": 400.0, "c": 900.0}, set()),
        ({"a": 50.0}, set()),
        ({"a": 50.0, "b": 0.0}, set()),
        ({}, set()),
    ],
)
def test_who_is_twenty_times_slower_is_flagged(rates: dict[str, float], slow: set[str]) -> None:
    learners = {LearnerId(name): of_rate(rate) for name, rate in rates.items()}
    assert stragglers(learners) == slow
    idle = {LearnerId(name): of_rate(rate, is_working=False) for name, rate in rates.items()}
    assert stragglers(idle) == frozenset()
