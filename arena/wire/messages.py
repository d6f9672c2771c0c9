"""The messages between controller and learners. Torch-free.

Every message is a frozen dataclass of plain data; `arena.wire.codec` turns it into frames and back.
The life of an assignment: Hello, Welcome, Train or Evaluate, Heartbeat..., Finished or Failed,
Acknowledge. Weights never travel: a reference (digest, key relative to the store's root) does.
"""

from __future__ import annotations

from dataclasses import dataclass

from arena.types import (
    AssignmentId,
    CheckpointRef,
    Digest,
    Entrant,
    LearnerId,
    PolicyId,
    Seating,
    Tally,
    WeightsRef,
)

PROTOCOL_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainee:
    """A policy that learns in an assignment; it sits where a seating names it without weights.

    Attributes:
        policy: Its id.
        generation: Recorded in the checkpoint and in tallies.
        agent_steps: Its count so far; the new checkpoint's is this plus what it does.
        learner_updates: Its count so far.
        checkpoint: Weights, optimizer and normalizers to go on from (its own or a donor's). None:
            start from ``initial_weights``, or from the assignment's seed.
        donor: Whose the checkpoint is, if not its own.
        initial_weights: Weights of another run's player to start from (fresh optimizer).
        hyperparameters: Applied after the checkpoint is loaded.
    """

    policy: PolicyId
    generation: int
    agent_steps: int
    learner_updates: int
    checkpoint: CheckpointRef | None
    donor: PolicyId | None = None
    initial_weights: WeightsRef | None = None
    hyperparameters: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Let trainees play and learn, publish their checkpoints.

    Attributes:
        assignment_id: The decision.
        attempt: How often it was given out, from 1.
        trainees: Who learns.
        opponents: Seatings of the episodes that begin, one per block of environments. Empty only if
            ``agent_steps`` is 0.
        carried: Seatings of the episodes in flight that the learner reported of these trainees. It
            goes on with those episodes if it still holds exactly these and the trainees' weights
            are the same; else they begin anew.
        agent_steps: Budget for the trainees together; the learner does whole rollouts, at least
            one. 0: publish the initial checkpoint and do nothing else.
        episodes: Whole episodes that each environment plays, after which the assignment ends,
            whatever is left of the budget; then nothing is carried. None: the budget alone decides.
        episode_length: Expected calls of ``step`` in an episode; 0: not known.
        seed: Everything random in the assignment derives from it.
        may_stop_early: Whether a learner that is told to stop may publish what it has.
    """

    assignment_id: AssignmentId
    attempt: int
    trainees: tuple[Trainee, ...]
    opponents: tuple[Seating, ...]
    carried: tuple[Seating, ...] = ()
    agent_steps: int
    episodes: int | None = None
    episode_length: float = 0.0
    seed: int
    may_stop_early: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """A seating of frozen players and how many matches it plays."""

    seating: Seating
    num_matches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Let frozen players play matches to their ends, sampling from the policies."""

    assignment_id: AssignmentId
    attempt: int
    pairings: tuple[Pairing, ...]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A learner's first message. Digests must equal the controller's.

    Attributes:
        learner: Chosen by the learner: new for each process.
        pid: Its process id.
        host: Its host name.
        protocol: PROTOCOL_VERSION.
        arena_version: For the log.
        environment_digest: Of the EnvironmentSpec it was set up with.
        config_digest: Of its LearnerSetup.
        device: What it computes on.
        slots: How many assignments it carries out at once.
        populations: Which populations it trains; empty: any.
        store: Digest of ``store.id`` where it looks for checkpoints; None: there is no such file.
            Only a learner that sees the run's directory knows it.
    """

    learner: LearnerId
    pid: int
    host: str
    protocol: int
    arena_version: str
    environment_digest: Digest
    config_digest: Digest
    device: str
    slots: int
    populations: tuple[str, ...]
    store: Digest | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The process is alive; the training loop is where ``progress`` says.

    Attributes:
        assignment_id: What runs now, or None when idle.
        attempt: Of it; 0 when idle.
        progress: A counter that only the training loop itself raises.
        agent_steps: Trainees' decisions in this assignment so far.
        rss_bytes: Resident memory.
    """

    assignment_id: AssignmentId | None
    attempt: int
    progress: int
    agent_steps: int
    rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A checkpoint that a trainee has published."""

    policy: PolicyId
    checkpoint: CheckpointRef


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """Episodes that have not ended: a seating and the environments that play it.

    Attributes:
        entrants: Names of the players as in a tally, one per seat.
        num_envs: Environments.
    """

    entrants: tuple[Entrant, ...]
    num_envs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An assignment is done. Sent again until acknowledged.

    Attributes:
        assignment_id: The assignment.
        attempt: The attempt.
        checkpoints: One per trainee.
        tallies: One per distinct seating that finished a match.
        metrics: Flat: ``group/name_unit`` to a finite number.
        duration_s: Wall time that it took.
        in_flight: Episodes of the trainees that the learner holds to go on with.
        dropped: Policies whose episodes in flight it let go for want of memory.
    """

    assignment_id: AssignmentId
    attempt: int
    checkpoints: tuple[Published, ...]
    tallies: tuple[Tally, ...]
    metrics: dict[str, float]
    duration_s: float
    in_flight: tuple[InFlight, ...] = ()
    dropped: tuple[PolicyId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An assignment could not be done.

    Attributes:
        assignment_id: The assignment.
        attempt: The attempt.
        kind: ``stopped`` (told to stop before anything was worth publishing), ``non_finite``
            (the policy's numbers broke), ``checkpoint`` (a named checkpoint is corrupt; ``key``),
            ``environment`` (it raised or broke its contract), ``storage`` (the disk is full,
            read-only or failing: nobody's fault, and the same may work later) or ``error``.
        reason: One paragraph for a person.
        policy: Whose fault it is, where that is known.
        key: The checkpoint or ghost directory that is corrupt.
    """

    assignment_id: AssignmentId
    attempt: int
    kind: str
    reason: str
    policy: PolicyId | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodbye:
    """A learner leaves by itself (it was told to stop, or got a signal)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The controller takes a learner in."""

    heartbeat_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """The controller does not take a learner, or fences out an old one. The learner exits."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """A Finished or Failed is committed (or was before); forget it."""

    assignment_id: AssignmentId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End within ``grace_s``: publish what is worth it, say Goodbye, exit."""

    grace_s: float


Assignment = Train | Evaluate
FromLearner = Hello | Heartbeat | Finished | Failed | Goodbye
FromController = Welcome | Refuse | Train | Evaluate | Acknowledge | Stop
Message = FromLearner | FromController


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Travels with every message.

    Attributes:
        run: The run's id.
        epoch: How often a controller was started on the run; a learner puts the one it was
            welcomed by (0 before), and the controller refuses any other.
        learner: The learner's id.
        sequence: Counts a sender's messages.
    """

    run: str
    epoch: int
    learner: LearnerId
    sequence: int
