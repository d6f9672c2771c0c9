"""Learners that are there, their leases, and when they were last heard. Not durable.

The life of an assignment. Of its states the journal has ``queued`` (open), ``finished`` and
``failed``; which learner has it, and since when, is known here alone:

                 give: attempt + 1        first heartbeat
    decided -> open ------------> sent -------------> running --- Finished ---> finished
                ^                 | |                   |  |
                |      send again +-+                   |  +----- closed -----> failed
                |                 |                     |
                +-- learner lost -+---------------------+
                +-- Failed: given out again ------------+

A lease that ends for good is *closed*: the policy was quarantined, it failed on two learners or on
the only one, or a checkpoint that it names is corrupt. All else is given out again, with the same
seed and inputs. A result of an attempt that the learner does not hold, or that
it has told already, is acknowledged and changes nothing.

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

# A learner goes on with it before the controller has heard that the one before ended.
QUEUED_PER_LEARNER = 1
# Of all learners together: the controller's one thread hears them beside its decisions.
MAX_HEARTBEATS_PER_S = 100.0

STALL_GAPS = 10.0
"""Longest gaps between a learner's progress so far, without progress after which it is stuck. There
is no other deadline: a learner that makes progress is never killed."""

CLUSTER_LIVENESS_S = 30.0
"""Silence after which a learner of a cluster is lost: longer than the cluster takes to find that
its node is gone (Ray: 15 s), for which nothing that it was at is to blame."""

OUT_OF_MEMORY_GROWTH = 1.5
OUT_OF_MEMORY_BYTES = 128 * 2**20
"""Memory that grew by this factor and by so much makes a SIGKILL look like the system's."""


class Patience(Struct, frozen=True, kw_only=True):
    """How long the controller waits.

    Attributes:
        heartbeat_s: Time between a learner's heartbeats.
        liveness_s: Silence after which a learner is lost.
        start_s: Longest time from starting a process to its Hello.
        stall_s: Time without progress in a running assignment after which a learner is stuck,
            unless it has made progress as slowly before.
        backoff_s: Wait before a slot is started again: doubles from the first to the second.
        max_failed_starts: Processes in a row, over all slots, that end without a Hello before the
            run fails.
        grace_s: Time for a learner that is told to stop, before it is killed.
        resend_s: Time for the first heartbeat about an assignment, before it is sent again; then
            twice as long, and so on.
        storage_s: Wait before a disk that refused, or where nothing finishes, is tried again:
            doubles likewise.
        max_tries: Tries in a row that fail before a run ends in which nothing finishes.
        refused_s: Time for which a learner from elsewhere that was at fault is refused.
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
        """Return seconds between heartbeats: more among many learners, which take time to hear."""
        # Three heartbeats at least within the silence after which a learner is lost.
        longer_s = min(num_learners / MAX_HEARTBEATS_PER_S, self.liveness_s / 3.0)
        return max(self.heartbeat_s, longer_s)


KEPT = 0.5
"""Weight of what earlier evaluations took, for each one that ends."""

MIN_MATCH_S = 1e-9


class MatchTimes(Struct):
    """Matches of the last evaluations and their time, earlier ones counting less and less.

    Attributes:
        matches: Matches.
        seconds: Learner seconds that these took.
    """

    matches: float = 0.0
    seconds: float = 0.0

    def add(self, *, matches: int, duration_s: float) -> None:
        """Take in how long an evaluation took."""
        # n <- KEPT n + matches, and seconds alike: their quotient is the recent time of a match
        self.matches = KEPT * self.matches + matches
        self.seconds = KEPT * self.seconds + duration_s

    @property
    def match_s(self) -> float | None:
        """Return learner seconds of a match; None: not known."""
        # A stopwatch that shows 0 says nothing: by it, any number of matches would take no time.
        if self.matches <= 0.0 or self.seconds <= 0.0:
            return None
        return max(self.seconds / self.matches, MIN_MATCH_S)


class HeldAssignment(Struct):
    """An assignment that a learner has: the first of its list runs, the second is queued.

    Attributes:
        assignment_id: The assignment.
        attempt: The attempt.
        given_s: When it was given, moved by gaps in the controller's loop.
        sent_s: When it was given.
        started_s: When a heartbeat was first about it.
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
        """Return since when its learner should be at it: it does one after the other."""
        return max(self.given_s, learner.progress_at_s)


class Fault(Struct, frozen=True, kw_only=True):
    """A place whose learner was sent away, and has done nothing right since.

    Attributes:
        times: How often in a row.
        reason: Reason that the learner is given.
        until_s: When a learner from there is taken in again.
    """

    times: int
    reason: str
    until_s: float


class CarriedEpisodes(Struct, frozen=True, kw_only=True):
    """Episodes in flight of policies that learn together, on one learner.

    Attributes:
        learner: Learner that holds them.
        team: Policies that learn in them.
        checkpoints: Keys of the team's checkpoints after which they go on.
        seatings: Players in them, seat by seat.
        lesson: Lesson that they are in.
    """

    learner: LearnerId
    team: tuple[PolicyId, ...]
    checkpoints: tuple[str, ...]
    seatings: tuple[Seating, ...]
    lesson: int


class Learner(Struct, kw_only=True):
    """A learner that said Hello.

    Attributes:
        hello: First message of the learner.
        slot: Slot of the launcher; None: a learner from elsewhere.
        place: Place in which it runs: its slot, else the name of its key, else its host.
        last_heard_s: Controller's clock.
        held: Assignments that it was given and has not ended, oldest first.
        progress: The last progress counter.
        progress_at_s: When it last changed.
        agent_steps: In the running assignment.
        rss_bytes: Resident memory of its process.
        first_rss_bytes: The same by its first heartbeat; 0 before.
        rate: Agent steps per second over the last heartbeats.
        speeds: Agent steps per second of its assignments, by population, the last ones counting
            most; only what is known.
        match_times: Time of its last evaluations.
        longest_gap_s: Between two changes of the progress counter while it worked.
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
        """Return how many assignments it may have: its slots running and one queued."""
        return self.hello.slots + QUEUED_PER_LEARNER

    def may_train(self, population: str) -> bool:
        """Return whether it serves a population."""
        return not self.hello.populations or population in self.hello.populations

    def hear(self, heartbeat: Heartbeat, *, now_s: float) -> None:
        """Take in a heartbeat."""
        self.last_heard_s = now_s
        self.rss_bytes = heartbeat.rss_bytes
        self.first_rss_bytes = self.first_rss_bytes or heartbeat.rss_bytes
        for held in self.held:
            told = (heartbeat.assignment_id, heartbeat.attempt)
            if held.lease == told and held.started_s is None:
                # The first heartbeat about it: the time without progress counts from here.
                held.started_s = now_s
                self.progress_at_s = now_s
        if heartbeat.progress != self.progress:
            elapsed_s = now_s - self.progress_at_s
            # Between assignments nothing makes progress.
            if heartbeat.assignment_id is not None:
                self.longest_gap_s = max(self.longest_gap_s, elapsed_s)
            gained = heartbeat.agent_steps - self.agent_steps
            # Steps are counted by assignment: at the next one they fall.
            if elapsed_s > 0 and gained > 0:
                # rate <- rate / 2 + (gained / elapsed) / 2
                self.rate = 0.5 * self.rate + 0.5 * gained / elapsed_s
            self.progress = heartbeat.progress
            self.progress_at_s = now_s
        self.agent_steps = heartbeat.agent_steps

    def memory_growth(self) -> str | None:
        """Say by how much its memory grew, if that explains a kill by the system."""
        first, last = self.first_rss_bytes, self.rss_bytes
        # A factor alone is soon reached by a small process.
        if last < OUT_OF_MEMORY_GROWTH * first or last - first < OUT_OF_MEMORY_BYTES:
            return None
        return f"its memory grew from {first / 2**20:,.0f} to {last / 2**20:,.0f} MiB"

    def has(self, assignment_id: AssignmentId, attempt: int) -> bool:
        """Return whether it was given that attempt and has not ended it."""
        return any(held.lease == (assignment_id, attempt) for held in self.held)

    def release(
        self, assignment_id: AssignmentId, *, attempt: int, now_s: float
    ) -> HeldAssignment | None:
        """Forget an assignment that ended; None if it does not have that attempt of it."""
        # A result is a sign of life as well.
        self.last_heard_s = now_s
        lease = (assignment_id, attempt)
        released = next((held for held in self.held if held.lease == lease), None)
        if released is not None:
            # The next one in line gets its time to start from now on.
            self.held.remove(released)
            self.progress_at_s = now_s
            self.agent_steps = 0
        return released

    def is_to_be_told_again(self, *, now_s: float, patience: Patience) -> bool:
        """Return whether its next assignment seems lost on the way, and count it as sent then.

        A learner that has it after all ignores the repetition.
        """
        if not self.held or self.held[0].started_s is not None:
            return False
        # Only the first: heartbeats are about what a learner does now.
        following = self.held[0]
        # Sent n times: due r (2^n - 1) after it was given, for the waits are r, 2 r, 4 r, ...
        wait_s = patience.resend_s * (2.0**following.num_sent - 1.0)
        is_due = now_s - following.waits_since_s(self) >= wait_s
        following.num_sent += is_due
        return is_due


MAX_CRASHES = 2
"""Crashes of a slot in a row after which its next process is not waited for."""


def slot_place(slot: int) -> str:
    """Return the place of the processes in a slot."""
    return f"slot {slot}"


class Slot(Struct):
    """A place of the launcher for one learner process.

    Attributes:
        populations: The only ones it trains; empty: any.
        learner: Learner that said Hello from it.
        started_s: When its process was started; None while there is none.
        start_at_s: When it is to be started.
        crashes: In a row.
        is_waiting: Whether its process was asked for, and waits for a place to run.
    """

    populations: tuple[str, ...]
    learner: LearnerId | None = None
    started_s: float | None = None
    start_at_s: float = 0.0
    crashes: int = 0
    is_waiting: bool = False

    def vacate(self, *, start_at_s: float) -> None:
        """Plan the next start; there is no learner until then."""
        self.learner = None
        self.started_s = None
        self.start_at_s = start_at_s
        self.is_waiting = False

    def backoff(self, *, now_s: float, patience: Patience, jitter: float) -> None:
        """Plan the next start: 1, 2, 4... times the first backoff, +-20%."""
        first_s, last_s = patience.backoff_s
        # The exponent is bounded, for 2.0**1024 is no float.
        delay_s = min(first_s * 2.0 ** min(self.crashes, 30), last_s) * (0.8 + 0.4 * jitter)
        self.crashes += 1
        self.vacate(start_at_s=now_s + delay_s)


class Pause(Struct, kw_only=True):
    """Nothing is given out until a try succeeds: the disk refuses, or nothing finishes any more.

    Attributes:
        reason: Last words of the disk, or of the last failure.
        since_s: When it began.
        wait_s: From a refusal to the next try.
        retry_at_s: When that is.
        is_storage: Whether it is for the disk.
        tried_at_s: When the current try began; None while there is none.
        num_refusals: So far: of the disk, or tries that failed.
        unlinked: Ghosts whose directories could not be made.
        failed_s: When each place failed last, or was given a try, of those that have finished
            nothing since.
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
        """Return whether what is given out or linked now shows if it can go on."""
        return self.tried_at_s is not None


class Crew(Struct, kw_only=True):
    """Learners that are there or coming, and what they hold. An epoch begins with none.

    Attributes:
        patience: How long to wait for learners.
        slots: Places of the launcher.
        learners: By id.
        holders: Which learner has which assignment.
        episodes: Episodes in flight that learners hold, by each policy that learns in them.
        gone: Learners that left or were given up, the last ones; they may not come back. With those
            that were out of reach, the failure that is withdrawn if they speak.
        refused_at_s: When a learner that was refused was last noted in the events.
        failed_starts: Processes in a row that ended without a Hello.
        faults: Places whose learner was at fault and has done nothing right since.
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
        """Yield the places of learners that are yet to say Hello, with their slots.

        A place whose learner was at fault is not waited for, nor one whose processes end, or never
        say Hello, time after time, or for which there is no machine.
        """
        for index, slot in enumerate(self.slots):
            place = slot_place(index)
            is_awaited = not slot.is_waiting and slot.crashes < MAX_CRASHES
            if slot.learner is None and is_awaited and place not in self.faults:
                yield place, slot

    def clear_faults(self, learner: Learner) -> None:
        """Record that a learner did its work: faults and crashes of its place are over."""
        self.faults.pop(learner.place, None)
        if learner.slot is not None:
            self.slots[learner.slot].crashes = 0


def overdue(learner: Learner, *, now_s: float, patience: Patience) -> str | None:
    """Say why a learner has to be given up, or None."""
    silent_s = now_s - learner.last_heard_s
    if silent_s > patience.liveness_s:
        return f"silent for {silent_s:.1f} s"
    if not learner.held:
        return None
    running = learner.held[0]
    # No heartbeat was about it yet, though it was sent again and again.
    if running.started_s is None:
        waited_s = now_s - running.waits_since_s(learner)
        return (
            f"did not start its work for {waited_s:.1f} s" if waited_s > patience.stall_s else None
        )
    # A learner that has been as slow before, and went on, is not stuck.
    stall_s = max(patience.stall_s, STALL_GAPS * learner.longest_gap_s)
    if now_s - learner.progress_at_s > stall_s:
        return f"no progress for {now_s - learner.progress_at_s:.1f} s"
    return None


def forgive(
    learners: Iterable[Learner], slots: Iterable[Slot], pause: Pause | None, *, gap_s: float
) -> None:
    """Extend everybody's time by a gap in the controller's own loop (suspend, SIGSTOP).

    Nobody could be heard in it, so nobody is judged by it.
    """
    for learner in learners:
        learner.last_heard_s += gap_s
        learner.progress_at_s += gap_s
        for held in learner.held:
            # ``sent_s`` stays: a result may claim all seconds since then.
            held.given_s += gap_s
            if held.started_s is not None:
                held.started_s += gap_s
    # A try to write is told from older assignments by when they were given.
    if pause is not None and pause.tried_at_s is not None:
        pause.tried_at_s += gap_s
    # ``start_at_s`` stays: a backoff may pass while the controller stands still.
    for slot in slots:
        if slot.started_s is not None:
            slot.started_s += gap_s


def make_slots(config: RunConfig) -> list[Slot]:
    """Return one slot per learner; bound to a population where the configuration counts them apart.

    In deterministic mode one learner does everything in one order, unless populations are bound to
    learners of their own; then each has one.
    """
    learners = config.learners
    if isinstance(learners, dict):
        return [
            Slot(populations=(population,))
            for population, count in learners.items()
            for _ in range(1 if config.deterministic else count)
        ]
    # Of several learners without populations of their own, speed would decide who does what.
    count = 1 if config.deterministic or learners is None else learners
    return [Slot(populations=()) for _ in range(count)]
