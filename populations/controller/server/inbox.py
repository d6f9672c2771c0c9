"""Events that wait for the state machine, of learners and of the worker threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from concurrent.futures import Future

from arena.types import AssignmentId, LearnerId
from populations.controller.state.events import (
    AssignmentFailed,
    AssignmentFinished,
    Event,
    LearnerEvent,
)

Lease = tuple[AssignmentId, int]
"""An assignment and the attempt at it."""


class Inbox:
    """Events in line, each thing that a learner says once. Owned by the controller's thread.

    What learners say again meanwhile is not kept again, so they cannot make it grow.
    """

    def __init__(self) -> None:
        self._heard: dict[Hashable, LearnerEvent] = {}
        self._num_awaited = 0
        self._answers: deque[Future[Event]] = deque()
        """Answers that are ready, in the order of their coming."""
        self._reading: set[tuple[LearnerId, Lease]] = set()
        """Results that were heard and are not taken out yet."""

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is ready."""
        return not self._heard and not self._answers

    @property
    def num_awaited(self) -> int:
        """Return how much of what was asked for has not been taken out yet."""
        return self._num_awaited

    def record(self, event: LearnerEvent, lease: Lease | None = None) -> None:
        """Put an event in line, unless its learner has one of that kind there for that lease."""
        # The first stays: a repetition says the same, and must not lose its place in line.
        self._heard.setdefault((event.learner, type(event), lease), event)

    def holds(self, learner: LearnerId, kind: type[LearnerEvent]) -> bool:
        """Return whether an event of a learner, and for no lease, is in line."""
        return (learner, kind, None) in self._heard

    def begins_reading(self, learner: LearnerId, lease: Lease) -> bool:
        """Return whether a result is new; it counts as read until its event is taken out."""
        if (learner, lease) in self._reading:
            return False
        self._reading.add((learner, lease))
        return True

    def expect(self, answer: Future[Event]) -> None:
        """Put an event in line as soon as it is ready; any thread may make it."""
        self._num_awaited += 1
        # Runs in the thread that made the answer; appending to a deque is atomic.
        answer.add_done_callback(self._answers.append)

    def drain(self) -> Iterator[Event]:
        """Take events out until there are none: the oldest heard and the oldest ready in turn."""
        # Both queues have their turn, so that neither learners nor answers wait for all of the
        # others.
        while not self.is_empty:
            if self._heard:
                yield self._heard.pop(next(iter(self._heard)))
            if self._answers:
                yield self._take_answer()

    def _take_answer(self) -> Event:
        # An error of a worker thread is raised here, in the controller's.
        event = self._answers.popleft().result()
        self._num_awaited -= 1
        match event:
            # The lease itself tells a repetition from now on.
            case AssignmentFinished(learner=learner, finished=result):
                self._reading.discard((learner, (result.assignment_id, result.attempt)))
            case AssignmentFailed(learner=learner, failed=fault):
                self._reading.discard((learner, (fault.assignment_id, fault.attempt)))
        return event
