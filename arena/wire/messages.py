"""The messages between controller and learners. Torch-free.

Every message is a frozen Struct; `arena.wire.codec` turns it into frames and back.
A connection begins with Hello and Welcome. An assignment goes through Train or Evaluate,
Heartbeat..., Finished or Failed, Acknowledge. Weights do not travel with these; a reference does
(digest, and key relative to the store's root). See `arena.wire.store_messages`.

Tests: `tests/arena/wire/test_codec.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

from arena.types import (
    AgentSteps,
    AssignmentId,
    CheckpointRef,
    Count,
    Digest,
    Entrant,
    Finite,
    Game,
    Generation,
    LearnerId,
    LearnerUpdates,
    Number,
    PackageVersion,
    Part,
    PolicyId,
    RunId,
    Seating,
    Seconds,
    StoreKey,
    Tally,
    Text,
    Value,
    WeightsRef,
    text_form,
    trainee_entrant,
)

PROTOCOL_VERSION = 3


class Trainee(Part, frozen=True, kw_only=True):
    """Policy that learns in an assignment; it has the seats that a seating names without weights.

    Attributes:
        policy: Policy's id.
        generation: Generation, recorded in the checkpoint and in tallies.
        agent_steps: Agent steps so far; the new checkpoint adds those of the assignment.
        learner_updates: Optimizer steps so far.
        checkpoint: Weights, optimizer and normalizers to continue from (the policy's or a donor's).
            None: start from ``initial_weights``, or from the assignment's seed.
        donor: Policy that the checkpoint belongs to, if it is another one.
        initial_weights: Weights of another run's player to start from (fresh optimizer).
        hyperparameters: Hyperparameters, applied after the checkpoint is loaded.
    """

    policy: PolicyId
    generation: Generation
    agent_steps: AgentSteps
    learner_updates: LearnerUpdates
    checkpoint: CheckpointRef | None
    donor: PolicyId | None = None
    initial_weights: WeightsRef | None = None
    hyperparameters: dict[Text, Value]

    @property
    def entrant(self) -> Entrant:
        """Return its name in tallies."""
        return trainee_entrant(self.policy, generation=self.generation)


class Train(Part, frozen=True, kw_only=True):
    """Command: let trainees play and learn, and publish their checkpoints.

    Attributes:
        assignment_id: Assignment's id.
        attempt: Number of times the assignment was given out, from 1.
        trainees: Policies that learn.
        opponents: Seatings of the episodes that begin, one per block of environments. Empty only if
            ``agent_steps`` is 0.
        carried: Seatings of the episodes in flight that the learner reported for these trainees.
            The learner continues those episodes if it still holds exactly these and the trainees'
            weights are the same; otherwise they begin anew.
        agent_steps: Budget of the trainees together; the learner does whole rollouts, at least one.
            0: publish the initial checkpoint and do nothing else.
        episodes: Whole episodes that each environment plays, after which the assignment ends
            whatever is left of the budget; nothing is carried then. None: the budget alone decides.
        episode_length: Expected calls of ``step`` in an episode; 0: unknown.
        lesson: Index in ``EnvironmentSpec.lessons``; 0 where there are none.
        seed: Seed of everything random in the assignment.
        may_stop_early: Whether a learner that is told to stop may publish its progress.
    """

    assignment_id: AssignmentId
    attempt: Count
    trainees: tuple[Trainee, ...]
    opponents: tuple[Seating, ...]
    carried: tuple[Seating, ...] = ()
    agent_steps: AgentSteps
    episodes: Count | None = None
    episode_length: Finite = 0.0
    lesson: Count = 0
    seed: Count
    may_stop_early: bool


class Pairing(Part, frozen=True, kw_only=True):
    """Seating of frozen players, and the number of matches to play."""

    seating: Seating
    num_matches: Count


class Evaluate(Part, frozen=True, kw_only=True):
    """Command: let frozen players play matches to their ends, sampling from the policies.

    Attributes:
        assignment_id: Assignment's id.
        attempt: Number of times the assignment was given out, from 1.
        pairings: Seatings and their numbers of matches.
        seed: Seed of everything random in the assignment.
        games: Number of games to report, at most `MAX_GAMES`.
    """

    assignment_id: AssignmentId
    attempt: Count
    pairings: tuple[Pairing, ...]
    seed: Count
    games: Count = 0


class Hello(Part, frozen=True, kw_only=True):
    """First message of a learner. Digests must equal the controller's.

    Attributes:
        learner: Learner's id, chosen by the learner: new for each process.
        pid: Learner's process id.
        host: Learner's host name.
        protocol: PROTOCOL_VERSION.
        arena_version: Learner's release, for the log.
        environment_digest: Digest of its EnvironmentSpec: as its host has the environment, where
            others can join the run, and as its setup says elsewhere.
        config_digest: Digest of its LearnerSetup.
        device: Device that it computes on.
        slots: Assignments that it carries out at once.
        populations: Populations that it trains; empty: any.
        store: Digest of ``store.id`` in its store of checkpoints. None: there is no such file. Only
            a learner that sees the run's directory knows it.
        proof: Digest of the results of a small training from a fixed seed
            (`arena.learners.proof`); learners with equal ones are a group. None: it has not proved
            them.
        versions: Versions of packages on its host. None: it does not say.
    """

    learner: LearnerId
    pid: Count
    host: Text
    protocol: Count
    arena_version: Text
    environment_digest: Digest
    config_digest: Digest
    device: Text
    slots: Count
    populations: tuple[Text, ...]
    store: Digest | None
    proof: Digest | None = None
    versions: dict[Text, PackageVersion] | None = None


class Heartbeat(Part, frozen=True, kw_only=True):
    """Sign of life of a process, with the position of its training loop.

    Attributes:
        assignment_id: Running assignment, or None when idle.
        attempt: Attempt of the assignment; 0 when idle.
        progress: Counter that only the training loop itself raises.
        agent_steps: Agent steps of the trainees in this assignment so far.
        rss_bytes: Resident memory.
    """

    assignment_id: AssignmentId | None
    attempt: Count
    progress: Count
    agent_steps: AgentSteps
    rss_bytes: Count


class Published(Part, frozen=True, kw_only=True):
    """Checkpoint that a trainee has published."""

    policy: PolicyId
    checkpoint: CheckpointRef


class InFlight(Part, frozen=True, kw_only=True):
    """Unfinished episodes: a seating and the environments that play it.

    Attributes:
        entrants: Names of the players as in a tally, one per seat.
        num_envs: Number of environments.
    """

    entrants: tuple[Entrant, ...]
    num_envs: Count


class Finished(Part, frozen=True, kw_only=True):
    """Report: an assignment is done. Sent again until acknowledged.

    Attributes:
        assignment_id: Assignment's id.
        attempt: Attempt of the assignment.
        checkpoints: New checkpoint of each trainee.
        tallies: Tally of each distinct seating that finished a match.
        metrics: Finite numbers by ``group/name_unit``.
        duration_s: Wall time that it took.
        in_flight: Episodes of the trainees that the learner holds to continue.
        dropped: Policies whose episodes in flight are gone, for lack of memory or otherwise.
        games: Games of an evaluation, as many as it was asked for and fit the bounds.
    """

    assignment_id: AssignmentId
    attempt: Count
    checkpoints: tuple[Published, ...]
    tallies: tuple[Tally, ...]
    metrics: dict[Text, Number]
    duration_s: Seconds
    in_flight: tuple[InFlight, ...] = ()
    dropped: tuple[PolicyId, ...] = ()
    games: tuple[Game, ...] = ()


FailureKind = Annotated[
    str,
    text_form(
        "a kind",
        "stopped|making|environment|code|storage|place|checkpoint|message|non_finite|error",
    ),
]


class Failed(Part, frozen=True, kw_only=True):
    """Report: an assignment could not be done.

    Attributes:
        assignment_id: Assignment's id.
        attempt: Attempt of the assignment.
        kind: Place of the failure. ``stopped``: told to stop before anything was worth publishing.
            ``making``: the environment, or a module that it needs, cannot be made or imported.
            ``environment``: stepping or resetting it raised, it broke its contract, or its numbers
            are not finite or out of bounds. ``code``: users' other code raised, as a bot, an
            outcome, a network or an algorithm. ``storage``: the run's disk is full, read-only or
            failing; a retry may succeed. ``place``: the learner's own machine, its disk,
            descriptors, memory or device, or its way to the run's store. ``checkpoint``: a named
            checkpoint is corrupt (``key``). ``message``: the result cannot be sent, as one that is
            too large. ``non_finite``: the policy's numbers broke, although those of its batch were
            finite and bounded. ``error``: anything else.
        reason: One paragraph for a person.
        policy: Trainee whose checkpoint, network or numbers failed, where known.
        key: Checkpoint or ghost directory that is corrupt, or with whose weights a network raised.
    """

    assignment_id: AssignmentId
    attempt: Count
    kind: FailureKind
    reason: Text
    policy: PolicyId | None = None
    key: StoreKey | None = None


class Goodbye(Part, frozen=True, kw_only=True):
    """Report: a learner leaves by itself (it was told to stop, or got a signal)."""

    reason: Text


class Welcome(Part, frozen=True, kw_only=True):
    """Answer: the controller accepts a learner."""

    heartbeat_s: Seconds


class Refuse(Part, frozen=True, kw_only=True):
    """Answer: the controller rejects a learner or fences out an old one. The learner exits.

    Attributes:
        reason: One paragraph for a person.
        again: Whether the next process from there may join: this one was given up, is of another
            epoch, or is refused for a while.
    """

    reason: Text
    again: bool = False


class Acknowledge(Part, frozen=True, kw_only=True):
    """Answer: a Finished or Failed is committed (or was before), so the learner may forget it."""

    assignment_id: AssignmentId
    attempt: Count


class Stop(Part, frozen=True, kw_only=True):
    """Command: end within ``grace_s``: publish what is worth it, say Goodbye, exit."""

    grace_s: Seconds


Assignment = Train | Evaluate
FromLearner = Hello | Heartbeat | Finished | Failed | Goodbye
FromController = Welcome | Refuse | Train | Evaluate | Acknowledge | Stop
Message = FromLearner | FromController


def named_references(message: Train | Evaluate) -> Iterator[CheckpointRef | WeightsRef]:
    """Yield the checkpoints and weights that a learner needs to carry out an assignment."""
    if isinstance(message, Train):
        for trainee in message.trainees:
            if trainee.checkpoint is not None:
                yield trainee.checkpoint
            if trainee.initial_weights is not None:
                yield trainee.initial_weights
        seatings: Iterable[Seating] = (*message.opponents, *message.carried)
    else:
        seatings = (pairing.seating for pairing in message.pairings)
    for seating in seatings:
        for player in seating.players:
            if player.weights is not None:
                yield player.weights


class Header(Part, frozen=True, kw_only=True):
    """Header of every message.

    Attributes:
        run: Run's id.
        epoch: Number of times a controller was started on the run. A learner sends the epoch that
            it was welcomed by (0 before), and the controller refuses any other.
        learner: Learner's id.
        sequence: Counter of a sender's messages.
    """

    run: RunId
    epoch: Count
    learner: LearnerId
    sequence: Count
