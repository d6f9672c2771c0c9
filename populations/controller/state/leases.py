"""Learners that have joined, their leases on assignments, and when they were last heard.

None of this is durable. The diagram is the life of an assignment. The journal stores its states
``queued`` (open), ``finished`` and ``failed``, but not which learner has it since when:

                 give: attempt + 1        first heartbeat
    decided -> open ------------> sent -------------> running --- Finished ---> finished
                ^                 | |                   |  |
                |      send again +-+                   |  +----- closed -----> failed
                |                 |                     |
                +-- learner lost -+---------------------+
                +-- Failed: given out again ------------+

An assignment is *closed* if its policy was quarantined, if it failed on two learners or on the only
one, or if a checkpoint that it names is corrupt. After any other failure or loss it is given out
again, with the same seed and inputs. A result of an attempt that the learner does not have, or has
reported already, is acknowledged and changes nothing.

Liveness is judged by the controller's own monotonic clock at receipt; no time of another process is
compared. Heartbeats say that the process is alive; their progress counter, which only the training
loop raises, says that it is not stuck.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from arena.types import AssignmentId, LearnerId, PlayerId, PolicyId, Seating
from arena.wire.messages import Heartbeat, Hello
from populations.config.run_config import RunConfig
from populations.controller.state.ledger import Outcome

# The queued assignment lets a learner go on before the controller has received its last result.
QUEUED_PER_LEARNER = 1
# This bounds all learners together, because one thread reads heartbeats and makes decisions.
MAX_HEARTBEATS_PER_S = 100.0

STALL_GAPS = 10.0
"""Multiple of a learner's longest gap between two signs of progress after which it counts as stuck.
There is no other deadline: a learner that makes progress is never killed."""

CLUSTER_LIVENESS_S = 30.0
"""Silence after which a learner of a cluster is lost. It is longer than the cluster takes to detect
the loss of a node (Ray: 15 s), so that its assignment is not blamed for such a loss."""

OUT_OF_MEMORY_GROWTH = 1.5
OUT_OF_MEMORY_BYTES = 128 * 2**20
"""Growth of memory, by factor and in bytes, from which a SIGKILL is taken for out of memory."""


class Patience(Struct, frozen=True, kw_only=True):
    """Times, in seconds, and numbers of tries for which the controller waits.

    Attributes:
        heartbeat_s: Time between a learner's heartbeats.
        liveness_s: Silence after which a learner is lost.
        start_s: Longest time from starting a process to its Hello.
        stall_s: Time without progress in a running assignment after which a learner is stuck,
            unless it has made progress as slowly before.
        backoff_s: Wait before a slot is started again: doubles from the first to the second value.
        max_failed_starts: Processes in a row, over all slots, that end without a Hello before the
            run fails.
        grace_s: Time between the request to stop and the kill of a learner that has not stopped.
        resend_s: Time until an assignment that no heartbeat has named is sent again; the time
            doubles with each repetition.
        storage_s: Wait before the next try after the disk refused or while nothing finishes:
            doubles from the first to the second value.
        max_tries: Failed tries in a row after which a run ends in which nothing finishes.
        refused_s: Time for which a dismissed learner that the run did not start is refused.
    """

    heartbeat_s: float = 1.0
    liveness_s: float = 10.0
    start_s: float = 90.0
    stall_s: float = 60.0
    backoff_s: tuple[float, float] = (0.5, 30.0)
    max_failed_starts: int = 6
    grace_s: float = 30.0
    resend_s: float = 2.0
    storage_s: tuple[float, float] = (1.0, 60.0)
    max_tries: int = 5
    refused_s: float = 60.0

    def heartbeat_among_s(self, num_learners: int) -> float:
        """Return seconds between heartbeats of one learner; longer if there are many learners."""
        # At least three heartbeats must fit into the silence after which a learner is lost.
        longer_s = min(num_learners / MAX_HEARTBEATS_PER_S, self.liveness_s / 3.0)
        return max(self.heartbeat_s, longer_s)


KEPT = 0.5
"""Factor by which each evaluation that ends reduces the weight of earlier ones."""

MIN_MATCH_S = 1e-9


class MatchTimes(Struct):
    """Matches of recent evaluations and their time, as sums in which earlier ones decay.

    Attributes:
        matches: Number of matches.
        seconds: Learner seconds that these took.
    """

    matches: float = 0.0
    seconds: float = 0.0

    def add(self, *, matches: int, duration_s: float) -> None:
        """Add the matches and the duration of an evaluation."""
        # Both sums decay alike, n <- KEPT n + matches, so their quotient is a match's recent time.
        self.matches = KEPT * self.matches + matches
        self.seconds = KEPT * self.seconds + duration_s

    @property
    def match_s(self) -> float | None:
        """Return learner seconds of a match; None: not known."""
        # A measured time of 0 is no measurement: any number of matches would take no time.
        if self.matches <= 0.0 or self.seconds <= 0.0:
            return None
        return max(self.seconds / self.matches, MIN_MATCH_S)


class HeldAssignment(Struct):
    """Assignment that a learner has: the first of its list runs, the second is queued.

    Attributes:
        assignment_id: The assignment.
        attempt: Number of the attempt.
        given_s: Time when it was given, moved forward by gaps in the controller's loop.
        sent_s: Time when it was given, never moved.
        started_s: Time of the first heartbeat that named it; None: there was none.
        num_sent: How often it was sent.
    """

    assignment_id: AssignmentId
    attempt: int
    given_s: float
    sent_s: float = 0.0
    started_s: float | None = None
    num_sent: int = 1

    @property
    def lease(self) -> tuple[AssignmentId, int]:
        """Return assignment and attempt."""
        return self.assignment_id, self.attempt

    def waits_since_s(self, learner: Learner) -> float:
        """Return the time since when its learner, which does one at a time, should work on it."""
        return max(self.given_s, learner.progress_at_s)


class Fault(Struct, frozen=True, kw_only=True):
    """Dismissals of learners in one place, since the place last finished an assignment.

    Attributes:
        times: Dismissals in a row.
        reason: Reason that is sent to the learner.
        until_s: Time from which on a learner from there may join again.
    """

    times: int
    reason: str
    until_s: float


class CarriedEpisodes(Struct, frozen=True, kw_only=True):
    """Episodes in flight of policies that learn together, on one learner.

    Attributes:
        learner: Learner that holds them.
        team: Policies that learn in them.
        checkpoints: Keys of the team's checkpoints, whose weights the episodes go on with.
        seatings: Players in them, seat by seat.
        lesson: Lesson in which they are played.
    """

    learner: LearnerId
    team: tuple[PolicyId, ...]
    checkpoints: tuple[str, ...]
    seatings: tuple[Seating, ...]
    lesson: int


class Learner(Struct, kw_only=True):
    """Learner that has joined by its Hello.

    Attributes:
        hello: First message of the learner.
        slot: Slot of the launcher; None: a learner from elsewhere.
        place: Place in which it runs: its slot, else the name of its key, else its host.
        last_heard_s: Time of its last message, on the controller's clock.
        held: Assignments that it was given and has not ended, oldest first.
        progress: Progress counter in its last heartbeat.
        progress_at_s: Time when this counter last changed.
        agent_steps: Agent steps in the running assignment.
        rss_bytes: Resident memory of its process.
        first_rss_bytes: Resident memory by its first heartbeat; 0 before that.
        rate: Agent steps per second over the last heartbeats.
        speeds: Agent steps per second by population, smoothed over its assignments; populations
            that it has not trained are missing.
        match_times: Time of its last evaluations.
        longest_gap_s: Longest time between two changes of the progress counter while it worked.
    """

    hello: Hello
    slot: int | None
    place: str = ""
    last_heard_s: float
    held: list[HeldAssignment] = []
    progress: int = 0
    progress_at_s: float = 0.0
    agent_steps: int = 0
    rss_bytes: int = 0
    first_rss_bytes: int = 0
    rate: float = 0.0
    speeds: dict[str, float] = {}
    match_times: MatchTimes = field(default_factory=MatchTimes)
    longest_gap_s: float = 0.0

    @property
    def credit(self) -> int:
        """Return how many assignments it may have: one running in each slot, and one queued."""
        return self.hello.slots + QUEUED_PER_LEARNER

    def may_train(self, population: str) -> bool:
        """Return whether the learner may train a population."""
        return not self.hello.populations or population in self.hello.populations

    def hear(self, heartbeat: Heartbeat, *, now_s: float) -> None:
        """Update liveness, progress, memory and speed by a heartbeat."""
        self.last_heard_s = now_s
        self.rss_bytes = heartbeat.rss_bytes
        self.first_rss_bytes = self.first_rss_bytes or heartbeat.rss_bytes
        for held in self.held:
            told = (heartbeat.assignment_id, heartbeat.attempt)
            if held.lease == told and held.started_s is None:
                # Time without progress counts from the first heartbeat that names the assignment.
                held.started_s = now_s
                self.progress_at_s = now_s
        if heartbeat.progress != self.progress:
            elapsed_s = now_s - self.progress_at_s
            # Idle time between assignments is no gap: there is nothing to make progress with.
            if heartbeat.assignment_id is not None:
                self.longest_gap_s = max(self.longest_gap_s, elapsed_s)
            gained = heartbeat.agent_steps - self.agent_steps
            # Steps are counted per assignment, so the difference is negative at the next one.
            if elapsed_s > 0 and gained > 0:
                # rate <- rate / 2 + (gained / elapsed) / 2
                self.rate = 0.5 * self.rate + 0.5 * gained / elapsed_s
            self.progress = heartbeat.progress
            self.progress_at_s = now_s
        self.agent_steps = heartbeat.agent_steps

    def memory_growth(self) -> str | None:
        """Return how its memory grew, in words; None: too little to explain a SIGKILL."""
        first, last = self.first_rss_bytes, self.rss_bytes
        # A small process soon reaches the factor, so a growth in bytes is required, too.
        if last < OUT_OF_MEMORY_GROWTH * first or last - first < OUT_OF_MEMORY_BYTES:
            return None
        return f"its memory grew from {first / 2**20:,.0f} to {last / 2**20:,.0f} MiB"

    def has(self, assignment_id: AssignmentId, attempt: int) -> bool:
        """Return whether the learner was given this attempt and has not ended it."""
        return any(held.lease == (assignment_id, attempt) for held in self.held)

    def release(
        self, assignment_id: AssignmentId, *, attempt: int, now_s: float
    ) -> HeldAssignment | None:
        """Remove and return an assignment that ended; None if the learner lacks that attempt."""
        # A result shows, like a heartbeat, that the learner is alive.
        self.last_heard_s = now_s
        lease = (assignment_id, attempt)
        released = next((held for held in self.held if held.lease == lease), None)
        if released is not None:
            # The time in which the queued assignment has to start counts from now on.
            self.held.remove(released)
            self.progress_at_s = now_s
            self.agent_steps = 0
        return released

    def is_to_be_told_again(self, *, now_s: float, patience: Patience) -> bool:
        """Return whether its next assignment seems lost and is sent again now, and count that.

        A learner that has received it after all ignores the repetition.
        """
        if not self.held or self.held[0].started_s is not None:
            return False
        # A heartbeat names only the running assignment, so only the first of the list is checked.
        following = self.held[0]
        # The waits are r, 2 r, 4 r, ..., so after n sends the next is due r (2^n - 1) after giving.
        wait_s = patience.resend_s * (2.0**following.num_sent - 1.0)
        is_due = now_s - following.waits_since_s(self) >= wait_s
        following.num_sent += is_due
        return is_due


MAX_CRASHES = 2
"""Crashes of a slot in a row after which nothing waits for its next process."""


def slot_place(slot: int) -> str:
    """Return the place of the processes in a slot."""
    return f"slot {slot}"


class Slot(Struct):
    """Place of the launcher for one learner process.

    Attributes:
        populations: Populations that it may train; empty: all.
        learner: Learner that has joined from it; None while there is none.
        started_s: Time when its process was started; None while there is none.
        start_at_s: Time when its next process is to be started.
        crashes: Crashes in a row.
        is_waiting: Whether its process was requested, but waits for a machine with room.
    """

    populations: tuple[str, ...]
    learner: LearnerId | None = None
    started_s: float | None = None
    start_at_s: float = 0.0
    crashes: int = 0
    is_waiting: bool = False

    def vacate(self, *, start_at_s: float) -> None:
        """Remove the learner and its process from the slot, and plan the next start."""
        self.learner = None
        self.started_s = None
        self.start_at_s = start_at_s
        self.is_waiting = False

    def backoff(self, *, now_s: float, patience: Patience, jitter: float) -> None:
        """Plan the next start after a crash: 1, 2, 4... times the first backoff, +-20%."""
        first_s, last_s = patience.backoff_s
        # The exponent is bounded, because 2.0**1024 overflows.
        delay_s = min(first_s * 2.0 ** min(self.crashes, 30), last_s) * (0.8 + 0.4 * jitter)
        self.crashes += 1
        self.vacate(start_at_s=now_s + delay_s)


class Pause(Struct, kw_only=True):
    """Pause of all assignments until a try succeeds: the disk refuses, or nothing finishes.

    Attributes:
        reason: Last error of the disk, or reason of the last failure.
        since_s: Time when the pause began.
        wait_s: Seconds from a refusal to the next try.
        retry_at_s: Time of the next try.
        is_storage: Whether the disk is the cause.
        tried_at_s: Time when the current try began; None while there is none.
        num_refusals: Refusals of the disk, or failed tries, so far.
        unlinked: Ghosts whose directories could not be made.
        failed_s: By place, the time when it last failed or was given a try; places that have
            finished an assignment since are missing.
    """

    reason: str
    since_s: float
    wait_s: float
    retry_at_s: float
    is_storage: bool = True
    tried_at_s: float | None = None
    num_refusals: int = 0
    unlinked: set[PlayerId] = set()
    failed_s: dict[str, float] = {}

    @property
    def is_trying(self) -> bool:
        """Return whether a try is under way, whose result shows if the run can go on."""
        return self.tried_at_s is not None


class Crew(Struct, kw_only=True):
    """Learners that have joined or will, and what they hold. An epoch begins with none.

    Attributes:
        patience: How long to wait for learners.
        slots: Places of the launcher.
        learners: Learners that have joined, by id.
        holders: By open assignment, the learner that has it.
        episodes: Episodes in flight that learners hold, by each policy that learns in them.
        gone: Latest learners that left or were given up; they may not join again. The value is the
            failure that is withdrawn if an unreachable learner is heard again; else None.
        refused_at_s: Time of the last event about a refused learner.
        failed_starts: Processes in a row that ended without a Hello.
        faults: Places whose learner was dismissed and that have finished nothing since.
    """

    patience: Patience
    slots: list[Slot]
    learners: dict[LearnerId, Learner] = {}
    holders: dict[AssignmentId, LearnerId] = {}
    episodes: dict[PolicyId, CarriedEpisodes] = {}
    gone: dict[LearnerId, Outcome | None] = {}
    refused_at_s: float = float("-inf")
    failed_starts: int = 0
    faults: dict[str, Fault] = {}

    def coming(self) -> Iterator[tuple[str, Slot]]:
        """Yield the places from which a learner is expected to join, with their slots.

        None is expected from a place whose learner was dismissed, whose processes crash or fail to
        join time after time, or for whose process no machine has room.
        """
        for index, slot in enumerate(self.slots):
            place = slot_place(index)
            is_awaited = not slot.is_waiting and slot.crashes < MAX_CRASHES
            if slot.learner is None and is_awaited and place not in self.faults:
                yield place, slot

    def clear_faults(self, learner: Learner) -> None:
        """Reset faults and crashes of a learner's place, because it has finished an assignment."""
        self.faults.pop(learner.place, None)
        if learner.slot is not None:
            self.slots[learner.slot].crashes = 0


def overdue(learner: Learner, *, now_s: float, patience: Patience) -> str | None:
    """Return why a learner has to be given up, in words; None if it need not be."""
    silent_s = now_s - learner.last_heard_s
    if silent_s > patience.liveness_s:
        return f"silent for {silent_s:.1f} s"
    if not learner.held:
        return None
    running = learner.held[0]
    # No heartbeat has named the assignment yet, though it was sent several times.
    if running.started_s is None:
        waited_s = now_s - running.waits_since_s(learner)
        return (
            f"did not start its work for {waited_s:.1f} s" if waited_s > patience.stall_s else None
        )
    # A learner that was as slow before, and then made progress, is not stuck.
    stall_s = max(patience.stall_s, STALL_GAPS * learner.longest_gap_s)
    if now_s - learner.progress_at_s > stall_s:
        return f"no progress for {now_s - learner.progress_at_s:.1f} s"
    return None


def forgive(
    learners: Iterable[Learner], slots: Iterable[Slot], pause: Pause | None, *, gap_s: float
) -> None:
    """Extend all timeouts by a gap in the controller's own loop (suspend, SIGSTOP).

    The controller could not hear any learner during the gap, so it must not count as silence.
    """
    for learner in learners:
        learner.last_heard_s += gap_s
        learner.progress_at_s += gap_s
        for held in learner.held:
            # ``sent_s`` is not moved: a result may claim all seconds since it was sent.
            held.given_s += gap_s
            if held.started_s is not None:
                held.started_s += gap_s
    # `may_give` compares this time with ``given_s`` of assignments, so both are moved.
    if pause is not None and pause.tried_at_s is not None:
        pause.tried_at_s += gap_s
    # ``start_at_s`` is not moved: a backoff may pass while the controller stands still.
    for slot in slots:
        if slot.started_s is not None:
            slot.started_s += gap_s


def make_slots(config: RunConfig) -> list[Slot]:
    """Return one slot per learner, bound to a population if the configuration counts by population.

    In deterministic mode there is one slot, or one for each population if they are counted so.
    """
    learners = config.learners
    if isinstance(learners, dict):
        return [
            Slot(populations=(population,))
            for population, count in learners.items()
            for _ in range(1 if config.deterministic else count)
        ]
    # In deterministic mode one learner must do everything: among several, speed would decide which
    # of them gets an assignment.
    count = 1 if config.deterministic or learners is None else learners
    return [Slot(populations=()) for _ in range(count)]
