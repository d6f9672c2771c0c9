"""What is shown of a run while it goes on: clocks that move, what follows, who does what."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from msgspec.structs import replace

from arena.types import LearnerId
from arena.wire.messages import Evaluate, Heartbeat, Train
from populations.controller.evaluation.finals import final_countdown
from populations.controller.server.live_status import LiveFigures
from populations.controller.state.epoch import Countdown
from populations.controller.state.events import HeartbeatReceived, StopRequested, Ticked
from populations.records.tables import ASSIGNMENTS, Table
from tests.populations.controller.simulated import DUEL, TAG, World, make_world, tag_spec

headline: Any = importlib.import_module("populations.commands.launch.display")
quantities: Any = importlib.import_module("populations.commands.terminal.output")

WIDTH = 80


def moment(world: World, *, speed: float = 0.0) -> Any:
    """As the display has it."""
    document = LiveFigures().document(world.state, now_s=world.now_s, endpoint="")
    return headline.Moment.of(world.state, {**document, "agent_steps_per_s": speed})


def said(world: World, *, speed: float = 0.0) -> str:
    state = world.state
    now = moment(world, speed=speed)
    return str(headline.what_happens(state.settings.config, state.tables, state.phase, now))


def progress(world: World, *, speed: float) -> Any:
    """Return the share of training that is done, and the seconds that are left."""
    state, now = world.state, moment(world, speed=speed)
    return headline.training_progress(state.settings.config, state.tables, state.crew, now)


def lines(world: World) -> list[str]:
    state = world.state
    return list(
        headline.learner_lines(state.settings.setup, state.tables, state.crew, moment(world))
    )


def working(document: dict[str, object] | None = None, **more: object) -> World:
    """Two learners that have begun their first assignments."""
    world = make_world({**(document or DUEL), **more})
    for slot in range(len(world.state.crew.slots)):
        world.beat(world.join(slot=slot))
    return world


def wait(world: World, seconds: int) -> None:
    """Seconds pass, in which the controller works and learners are heard."""
    for _ in range(seconds):
        world.now_s += 1.0
        for learner in world.state.crew.learners.values():
            learner.last_heard_s = world.now_s
        world.handle(Ticked())


def hear(world: World, learner: LearnerId, *, agent_steps: int) -> None:
    """A learner's heartbeat from the middle of what it does."""
    message = world.given[learner][0]
    heartbeat = Heartbeat(
        assignment_id=message.assignment_id,
        attempt=message.attempt,
        progress=agent_steps + 1,
        agent_steps=agent_steps,
        rss_bytes=1,
    )
    world.handle(HeartbeatReceived(learner=learner, heartbeat=heartbeat))


def test_clock_and_counts_move_while_nothing_is_committed() -> None:
    world = working()
    learner = next(iter(world.given))
    committed = world.state.tables.run
    before = moment(world)
    world.now_s += 30.0
    hear(world, learner, agent_steps=77)
    after = moment(world)
    assert world.state.tables.run == committed
    assert after.elapsed_s - before.elapsed_s == pytest.approx(30.0)
    assert after.agent_steps - before.agent_steps == 77
    assert str(headline.counts(world.state.tables, after)).startswith("30 s  77 agent steps")


def test_a_resumed_run_counts_the_time_before() -> None:
    world = working()
    world.state.phase.elapsed_before_s = 100.0
    world.now_s += 5.0
    assert moment(world).elapsed_s == pytest.approx(105.0)
    assert moment(world).now_s == pytest.approx(world.now_s)


def test_each_learner_has_a_line_that_moves() -> None:
    world = working()
    first, second = world.given
    assert lines(world)[0] == "learner 0: publishes the first weights of p000, for 0 s"
    world.step()
    world.step()
    world.beat(first)
    message = world.given[first][0]
    assert isinstance(message, Train)
    wait(world, 12)
    hear(world, first, agent_steps=345)
    policy = message.trainees[0].policy.partition("/")[2]
    line = lines(world)[0]
    assert line == f"learner 0: trains {policy}, 345 of 500 steps, for 12 s"
    wait(world, 4)
    hear(world, first, agent_steps=400)
    assert "400 of 500 steps, for 16 s" in lines(world)[0]
    # The last rollout exceeds the budget.
    hear(world, first, agent_steps=520)
    assert "520 of 520 steps" in lines(world)[0]
    del world.state.crew.learners[second].held[:]
    assert lines(world)[1] == "learner 1: idle"


def test_an_evaluation_says_how_much_it_plays() -> None:
    world = working()
    while not any(row.kind == "evaluate" for row in world.state.tables.assignments.values()):
        world.step()
    learner = next(
        name for name, queue in world.given.items() if queue and isinstance(queue[-1], Evaluate)
    )
    while not isinstance(world.given[learner][0], Evaluate):
        event = world.work(learner)
        assert event is not None
        world.handle(event)
    world.beat(learner)
    assert any(line.split(": ")[1].startswith("evaluates, ") for line in lines(world))


def test_learners_of_several_populations_say_whose_policy() -> None:
    world = make_world(TAG, tag_spec())
    first = world.join(slot=0, populations=("predator",))
    second = world.join(slot=1, populations=("prey",))
    world.beat(first)
    assert "weights of predator/p000" in lines(world)[0]
    while "trains" not in lines(world)[1]:
        world.step()
        world.beat(second)
    assert "trains prey/p0" in lines(world)[1]


def test_many_learners_are_summed_up() -> None:
    world = make_world({**DUEL, "learners": 11})
    for _ in range(11):
        world.join()
    assert lines(world)[0].startswith("learner-1: ")
    assert len(lines(world)) == headline.MAX_LEARNERS + 1
    assert lines(world)[-1] == "and 3 more learners"


def test_every_phase_says_what_follows_and_never_100_percent_of_nothing() -> None:
    world = make_world({**DUEL, "stop": {"duration_s": 100.0, "agent_steps_per_policy": None}})
    assert said(world) == "starting learners, then training"
    for _ in range(2):
        world.beat(world.join())
    world.now_s += 40.0
    # Two learners take half of 0.7 of their time, but at least 60 s of one.
    assert said(world) == "training: 40%, 60 s left, then finals (at most 30 s) and saving"
    world.now_s += 60.0
    world.handle(Ticked())
    assert world.state.phase.name == "evaluating"
    assert said(world) == "the last assignments of training, then finals and saving"
    seen = set()
    while not world.over:
        world.step()
        if world.state.phase.name == "evaluating":
            seen.add(said(world).partition(":")[0])
        assert "100%" not in said(world)
    assert "finals" in seen
    assert said(world) == "ended"


def test_finals_count_down_in_seconds_that_pass() -> None:
    world = working()
    state = world.state
    state.phase.name = "evaluating"
    state.tables.assignments = Table(ASSIGNMENTS)
    # Half of the training is done, half of it by each of two learners; evaluation has 0.3 of the
    # time.
    state.tables.run = replace(state.tables.run, training_s=700.0, evaluation_s=240.0)
    state.phase.finals = finals = final_countdown(state.settings.config, state.tables, state.crew)
    assert finals is not None
    assert said(world) == "finals: at most 2 min 55 s, then saving"
    finals.advance(world.now_s, may_begin=True)
    finals.advance(world.now_s + 100.0, may_begin=True)
    assert said(world) == "finals: at most 75 s, then saving"
    # 100 s of earlier finals are added to the 300 s of evaluation.
    state.tables.run = replace(state.tables.run, evaluation_s=400.0)
    state.phase.finals = final_countdown(state.settings.config, state.tables, state.crew)
    assert said(world) == "finals: at most 2 min 05 s, then saving"
    state.tables.run = replace(state.tables.run, evaluation_s=2000.0)
    state.phase.finals = final_countdown(state.settings.config, state.tables, state.crew)
    assert said(world) == "finals: the last matches, then saving"


def test_an_epoch_that_only_evaluates_counts_its_own_time_down() -> None:
    world = working()
    world.state.phase.name = "evaluating"
    world.state.phase.evaluation_only = only = Countdown(duration_s=300.0)
    only.advance(world.now_s, may_begin=True)
    only.advance(world.now_s + 60.0, may_begin=True)
    # Training left open by an earlier epoch does not count.
    assert said(world) == "evaluation only: at most 4 min 00 s, then saving"
    only.advance(world.now_s + 301.0, may_begin=True)
    assert said(world) == "evaluation only: the last matches, then saving"
    world.state.crew.learners.clear()
    assert said(world) == "starting learners, then evaluation only"


def test_a_deterministic_run_promises_no_seconds() -> None:
    world = working(deterministic=True)
    assert "then finals and saving" in said(world, speed=10.0)
    world.state.phase.name = "evaluating"
    world.state.tables.assignments = Table(ASSIGNMENTS)
    assert said(world) == "finals: matches until ratings are sure, then saving"


def test_a_stop_says_how_long_saving_may_take() -> None:
    world = working()
    world.handle(StopRequested(reason="interrupted by SIGINT"))
    world.now_s += 10.0
    assert said(world) == "saving: 2 learners publish what they have, at most 20 s"


def test_the_slowest_policy_decides_how_much_is_left() -> None:
    world = working()
    policies = world.state.tables.policies
    for name, steps in zip(list(policies), (9000, 7000, 6000, 3000), strict=True):
        policies[name] = replace(policies[name], agent_steps=steps)
    share, left_s = progress(world, speed=100.0)
    assert share == pytest.approx(1.0 - 3000 / 24000)
    assert left_s == pytest.approx(30.0)
    # A quarantined policy trains no more.
    policies[name] = replace(policies[name], state="quarantined")
    share, left_s = progress(world, speed=100.0)
    assert (share, left_s) == (1.0, 0.0)
    policies[name] = replace(policies[name], state="active")
    first = next(iter(policies))
    policies[first] = replace(policies[first], state="quarantined")
    share, left_s = progress(world, speed=100.0)
    assert (share, left_s) == (pytest.approx(1.0 - 3000 / 18000), pytest.approx(30.0))


def test_policies_that_leave_have_nothing_left() -> None:
    halving = {**DUEL, "pbt": {"share": "halving"}}
    world = working(halving)
    policies = world.state.tables.policies
    # Two of four policies stay: they have 5,000 of 6,000 steps left on average.
    for name, steps in zip(list(policies), (2000, 1000, 1000, 0), strict=True):
        policies[name] = replace(policies[name], agent_steps=steps)
    share, left_s = progress(world, speed=100.0)
    assert (share, left_s) == (pytest.approx(1 / 6), pytest.approx(2 * 5000 / 100))
    for name in list(policies)[2:]:
        policies[name] = replace(policies[name], state="retired")
    share, left_s = progress(world, speed=100.0)
    assert (share, left_s) == (pytest.approx(1500 / 6000), pytest.approx(2 * 4500 / 100))
    for name in list(policies)[:2]:
        policies[name] = replace(policies[name], agent_steps=6000)
    assert progress(world, speed=100.0) == (1.0, 0.0)


def test_a_time_is_left_whoever_leaves() -> None:
    stop = {"duration_s": 100.0, "agent_steps_per_policy": 10**6}
    world = working({**DUEL, "pbt": {"share": "halving"}, "stop": stop})
    policies = world.state.tables.policies
    for name in list(policies)[2:]:
        policies[name] = replace(policies[name], state="retired")
    world.now_s += 40.0
    share, left_s = progress(world, speed=1.0)
    assert (share, left_s) == (pytest.approx(0.4), pytest.approx(60.0))


def test_without_a_limit_nothing_is_promised() -> None:
    world = working(stop={"agent_steps_per_policy": None, "rating": 3000.0})
    assert said(world, speed=10.0) == "training: 0%, then finals and saving"


@pytest.mark.parametrize("steps", [0, 12_345, 987_654_321, 10**13])
def test_lines_fit_80_columns(steps: int) -> None:
    world = working(stop={"agent_steps": 10**14, "duration_s": 10**6})
    run = world.state.tables.run
    world.state.tables.run = replace(
        run,
        agent_steps=steps,
        matches=steps,
        exploits=steps // 10**6,
        training_s=float(steps),
        pbt_decisions=steps,
    )
    world.now_s += 10**6 - 1
    texts = [said(world, speed=steps / 7), *lines(world)]
    texts.append(headline.counts(world.state.tables, moment(world, speed=steps / 7)))
    state = world.state
    texts.append(headline.shares(state.settings, state.tables, state.measured))
    assert [text for text in texts if len(text) > WIDTH] == []


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"), (99_999, "99,999"), (100_000, "100k"), (999_499, "999k"), (999_600, "1M"),
        (1_345_579, "1.35M"), (5 * 10**9, "5G"),
    ],
)  # fmt: skip
def test_counts_are_short(number: int, text: str) -> None:
    assert quantities.count(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9.6, "10 s"), (119, "119 s"), (750, "12 min 30 s"), (11_100, "3 h 05 min")],
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert quantities.duration(seconds) == text
