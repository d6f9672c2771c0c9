from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from arena.config import LearnerSetup
from arena.errors import ConfigError
from arena.learners.inline import InlineLearner, start_inline_learner
from arena.learners.loop import LearnerLoop, Progress, new_learner_id
from arena.learners.state import Patience
from arena.wire.in_memory import InMemoryHub
from arena.wire.messages import (
    Failed,
    Finished,
    Goodbye,
    Heartbeat,
    Hello,
    Stop,
)
from tests.arena.learners.stub import (
    EXIT,
    FINISH,
    HANG,
    NON_FINITE,
    RAISE,
    RELEASE,
    TIMEOUT_S,
    UNTIL_STOPPED,
    ControllerEnd,
    StubWork,
    assignment,
    setup,
)
from tests.arena.wire.examples import RUN
from tests.support import wait_until


@pytest.fixture
def hub() -> InMemoryHub:
    return InMemoryHub(run=RUN, epoch=1)


@pytest.fixture
def controller(hub: InMemoryHub) -> ControllerEnd:
    return ControllerEnd(hub.controller)


@pytest.fixture
def learner(hub: InMemoryHub) -> Iterator[InlineLearner]:
    RELEASE.clear()
    thread = start_inline_learner(setup(), hub, ("player",), make_work=StubWork)
    yield thread
    RELEASE.set()
    thread.stop()
    thread.stop()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    wait_until(lambda: "learner-wire" not in names_of_threads(), timeout_s=TIMEOUT_S)


def names_of_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_hello_says_who_it_is(controller: ControllerEnd, learner: InlineLearner) -> None:
    hello = controller.wait_for(Hello)
    assert hello.environment_digest == setup().spec.digest
    assert hello.config_digest == setup().digest
    assert (hello.learner, hello.populations) == (controller.learner, ("player",))
    assert (hello.device, hello.slots, hello.protocol) == ("cpu", 1, 3)


def test_heartbeats_show_how_far_the_work_is(
    controller: ControllerEnd, learner: InlineLearner
) -> None:
    controller.welcome()
    assert controller.wait_for(Heartbeat).assignment_id is None
    controller.send(assignment(UNTIL_STOPPED, number=5))
    first = controller.wait_for(Heartbeat, lambda beat: beat.assignment_id == 5)
    second = controller.wait_for(Heartbeat, lambda beat: beat.progress > first.progress + 1)
    assert (second.assignment_id, second.attempt, second.agent_steps) == (5, 1, 7)
    assert second.rss_bytes > 1 << 20


def test_agent_steps_are_those_of_the_assignment(
    controller: ControllerEnd, learner: InlineLearner
) -> None:
    controller.welcome()
    controller.send(assignment(FINISH, number=1))
    controller.acknowledge(controller.wait_for(Finished))
    controller.send(assignment(HANG, number=2))
    beat = controller.wait_for(
        Heartbeat, lambda beat: beat.assignment_id == 2 and beat.progress == 2
    )
    assert beat.agent_steps == 7


def test_stuck_work_does_not_stop_heartbeats_but_progress(
    controller: ControllerEnd, learner: InlineLearner
) -> None:
    controller.welcome()
    controller.send(assignment(HANG))
    controller.wait_for(Heartbeat, lambda beat: beat.progress == 1)
    assert [controller.wait_for(Heartbeat).progress for _ in range(5)] == [1] * 5


def test_the_result_is_sent_as_soon_as_it_is_there(
    controller: ControllerEnd, learner: InlineLearner
) -> None:
    controller.welcome(heartbeat_s=60.0)
    controller.wait_for(Heartbeat)
    delays_s = []
    for number in range(1, 6):
        controller.send(assignment(FINISH, number=number))
        began_s = time.monotonic()
        finished = controller.wait_for(Finished, lambda f, n=number: f.assignment_id == n)  # type: ignore[misc]
        delays_s.append(time.monotonic() - began_s)
        controller.acknowledge(finished)
    # Without a wake-up each delay would be a heartbeat, 60 s. The minimum is taken, because cores
    # are shared.
    assert min(delays_s) < 0.1


@pytest.mark.parametrize(
    ("what", "kind", "reason"),
    [
        (RAISE, "code", "RuntimeError: the environment is on fire"),
        (EXIT, "code", "SystemExit: 5"),
        (NON_FINITE, "message", "Finished cannot be sent: metrics: must be a finite number"),
    ],
)
def test_whatever_goes_wrong_in_the_work_is_a_failed_and_the_learner_goes_on(
    controller: ControllerEnd,
    learner: InlineLearner,
    caplog: pytest.LogCaptureFixture,
    what: int,
    kind: str,
    reason: str,
) -> None:
    controller.welcome()
    with caplog.at_level(logging.CRITICAL, logger="arena.learners.loop"):
        controller.send(assignment(what))
        failed = controller.wait_for(Failed)
    assert (failed.assignment_id, failed.attempt, failed.kind) == (1, 1, kind)
    assert reason in failed.reason
    if what == RAISE:
        assert "in carry_out" in failed.reason  # the place where it happened
    controller.acknowledge(failed)
    controller.send(assignment(FINISH, number=2))
    assert controller.wait_for(Finished).assignment_id == 2


def test_a_stop_does_not_end_the_next_assignment_of_a_new_attempt(
    controller: ControllerEnd, learner: InlineLearner
) -> None:
    controller.welcome()
    controller.send(assignment(UNTIL_STOPPED, attempt=1))
    controller.wait_for(Heartbeat, lambda beat: beat.attempt == 1)
    controller.send(assignment(UNTIL_STOPPED, attempt=2))
    beat = controller.wait_for(Heartbeat, lambda beat: beat.attempt == 2)
    controller.wait_for(Heartbeat, lambda later: later.progress > beat.progress + 5)


def loop_with(hub: InMemoryHub, cut_off: Callable[[int], object] | None = None) -> LearnerLoop:
    learner = new_learner_id()
    return LearnerLoop(
        setup(),
        hub.learner(learner),
        (),
        learner=learner,
        make_work=StubWork,
        patience=Patience(grace_s=0.05),
        cut_off=cut_off,
    )


def test_work_that_does_not_end_is_cut_off(
    hub: InMemoryHub, controller: ControllerEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arena.learners.loop.ABANDON_S", 0.05)
    RELEASE.clear()
    codes: list[int] = []
    loop = loop_with(hub, codes.append)
    thread = threading.Thread(target=loop.run)
    thread.start()
    controller.welcome()
    controller.send(assignment(HANG))
    controller.wait_for(Heartbeat, lambda beat: beat.progress == 1)
    loop.request_stop("SIGTERM")
    controller.wait_for(Goodbye)
    wait_until(lambda: codes == [0], timeout_s=TIMEOUT_S)
    RELEASE.set()
    thread.join(TIMEOUT_S)


def test_a_worker_that_cannot_be_made_ends_the_learner_before_its_hello(hub: InMemoryHub) -> None:
    def broken(
        setup: LearnerSetup, *, progress: Progress, should_stop: Callable[[], bool]
    ) -> StubWork:
        raise ConfigError("no such device")

    learner = new_learner_id()
    loop = LearnerLoop(setup(), hub.learner(learner), (), learner=learner, make_work=broken)
    with pytest.raises(ConfigError, match="no such device"):
        loop.run()
    assert hub.controller.receive(0.0) == []
    assert not hub.controller.send(learner, Stop(grace_s=0.0))


def test_ids_are_new_each_time_and_fit_the_wire(hub: InMemoryHub) -> None:
    ids = {new_learner_id() for _ in range(100)}
    assert len(ids) == 100
    transport = hub.learner(ids.pop())
    assert transport.send(Goodbye(reason=""), epoch=1)
