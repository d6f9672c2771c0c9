"""Who is there: learners, what they hold, when they were last heard. Not durable.

Liveness is judged by the controller's own monotonic clock at receipt; no time of another process is
compared. Heartbeats say that the process is alive; their progress counter, which only the training
loop raises, says that it is not stuck.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from arena.types import AssignmentId, LearnerId
from arena.wire.messages import Heartbeat, Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the controller waits.

    Attributes:
        heartbeat_s: Between a learner's heartbeats.
        liveness_s: Silence after which a learner is lost.
        start_s: From starting a process to its Hello.
        stall_s: Without progress in a running assignment, after which it is stuck.
        backoff_s: Before a slot is started again: doubles from the first to the second of these.
        max_failed_starts: Processes that ended without a Hello, over all slots, before the run
            fails.
        grace_s: For a learner that is told to stop, before it is killed.
    """

    heartbeat_s: float = 1.0
    liveness_s: float = 10.0
    start_s: float = 90.0
    stall_s: float = 60.0
    backoff_s: tuple[float, float] = (0.5, 30.0)
    max_failed_starts: int = 6
    grace_s: float = 30.0


@dataclass(slots=True)
class Held:
    """An assignment that a learner has: the first of its list runs, the second is queued."""

    assignment_id: AssignmentId
    attempt: int
    deadline_s: float
    given_s: float
    started_s: float | None = None

    @property
    def lease(self) -> tuple[AssignmentId, int]:
        """Assignment and attempt."""
        return self.assignment_id, self.attempt


@dataclass(slots=True)
class Learner:
    """A learner that said Hello.

    Attributes:
        hello: What it said.
        slot: Of the launcher, or None if somebody else started it.
        last_heard_s: Controller's clock.
        held: What it was given and has not ended, oldest first.
        progress: The last progress counter.
        progress_at_s: When it last changed.
        agent_steps: In the running assignment.
        rss_bytes: Of its process.
        rate: Agent steps per second over the last heartbeats.
    """

    hello: Hello
    slot: int | None
    last_heard_s: float
    held: list[Held] = field(default_factory=list)
    progress: int = 0
    progress_at_s: float = 0.0
    agent_steps: int = 0
    rss_bytes: int = 0
    rate: float = 0.0

    def may_train(self, population: str) -> bool:
        """Whether it serves a population."""
        return not self.hello.populations or population in self.hello.populations

    def hear(self, heartbeat: Heartbeat, *, now_s: float) -> None:
        """Take in a heartbeat."""
        self.last_heard_s = now_s
        self.rss_bytes = heartbeat.rss_bytes
        for held in self.held:
            if held.assignment_id == heartbeat.assignment_id and held.started_s is None:
                held.started_s = now_s
                self.progress_at_s = now_s
        if heartbeat.progress != self.progress:
            elapsed_s = now_s - self.progress_at_s
            gained = heartbeat.agent_steps - self.agent_steps
            if elapsed_s > 0 and gained > 0:
                self.rate = 0.5 * self.rate + 0.5 * gained / elapsed_s
            self.progress = heartbeat.progress
            self.progress_at_s = now_s
        self.agent_steps = heartbeat.agent_steps

    def release(self, assignment_id: AssignmentId, *, attempt: int, now_s: float) -> bool:
        """Forget an assignment that ended; False if it does not have that attempt of it."""
        self.last_heard_s = now_s
        kept = [held for held in self.held if held.lease != (assignment_id, attempt)]
        if len(kept) == len(self.held):
            return False
        self.held = kept
        self.progress_at_s = now_s
        self.agent_steps = 0
        return True


@dataclass(slots=True)
class Slot:
    """A place of the launcher for one learner process.

    Attributes:
        populations: The only ones it trains; empty: any.
        learner: Who said Hello from it.
        started_s: When its process was started; None while there is none.
        start_at_s: When it is to be started.
        crashes: In a row.
    """

    populations: tuple[str, ...]
    learner: LearnerId | None = None
    started_s: float | None = None
    start_at_s: float = 0.0
    crashes: int = 0

    def backoff(self, *, now_s: float, patience: Patience, jitter: float) -> None:
        """Plan the next start: 1, 2, 4... times the first backoff, +-20%."""
        first_s, last_s = patience.backoff_s
        delay_s = min(first_s * 2.0 ** min(self.crashes, 30), last_s) * (0.8 + 0.4 * jitter)
        self.crashes += 1
        self.learner = None
        self.started_s = None
        self.start_at_s = now_s + delay_s


def overdue(learner: Learner, *, now_s: float, patience: Patience) -> str | None:
    """Why a learner has to be given up, or None."""
    silent_s = now_s - learner.last_heard_s
    if silent_s > patience.liveness_s:
        return f"silent for {silent_s:.1f} s"
    if not learner.held:
        return None
    running = learner.held[0]
    if running.started_s is None:
        waited_s = now_s - max(running.given_s, learner.progress_at_s)
        return (
            f"did not start its work for {waited_s:.1f} s" if waited_s > patience.stall_s else None
        )
    if now_s - learner.progress_at_s > patience.stall_s:
        return f"no progress for {now_s - learner.progress_at_s:.1f} s"
    if now_s - running.started_s > running.deadline_s:
        return f"over its deadline of {running.deadline_s:.0f} s"
    return None


def forgive(learners: Iterable[Learner], slots: Iterable[Slot], *, gap_s: float) -> None:
    """Extend everybody's time by a gap in the controller's own loop (suspend, SIGSTOP).

    Nobody could be heard in it, so nobody is judged by it.
    """
    for learner in learners:
        learner.last_heard_s += gap_s
        learner.progress_at_s += gap_s
        for held in learner.held:
            held.given_s += gap_s
            if held.started_s is not None:
                held.started_s += gap_s
    for slot in slots:
        if slot.started_s is not None:
            slot.started_s += gap_s
