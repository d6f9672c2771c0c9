"""A learner as a thread of the controller's process, over the in-memory transport.

Tests: `tests/arena/learners/test_loop.py`.
"""

from __future__ import annotations

import logging
import threading

from arena.config import LearnerSetup
from arena.learners.loop import LearnerLoop, MakeWork, make_worker, new_learner_id
from arena.learners.state import Patience
from arena.types import LearnerId
from arena.wire.in_memory import InMemoryHub

logger = logging.getLogger(__name__)

GRACE_S = 5.0
"""This is shorter than for a process: a thread cannot be killed, so its stop waits for it."""


class InlineLearner:
    """The thread that a learner works in.

    Attributes:
        learner: Id of the learner.
    """

    def __init__(self, loop: LearnerLoop, *, learner: LearnerId) -> None:
        self._loop = loop
        self.learner = learner
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run()
        except Exception:
            # This is the outermost frame of the thread: if it ends, the controller sees a lost
            # learner.
            logger.exception("the learner could not start")

    def stop(self) -> None:
        """Finish early, wait for the acknowledgement, send Goodbye; a second call ends at once."""
        self._loop.request_stop("stopped")

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_s)

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()


def start_inline_learner(
    setup: LearnerSetup,
    hub: InMemoryHub,
    populations: tuple[str, ...],
    *,
    make_work: MakeWork = make_worker,
) -> InlineLearner:
    """Start a learner that serves the hub's controller."""
    learner = new_learner_id()
    loop = LearnerLoop(
        setup,
        hub.learner(learner),
        populations,
        learner=learner,
        make_work=make_work,
        # `cut_off` is not set, because it would end the controller's process.
        patience=Patience(grace_s=GRACE_S),
    )
    return InlineLearner(loop, learner=learner)
