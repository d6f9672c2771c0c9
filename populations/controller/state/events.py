"""Events of the controller, and the commands that follow from them: plain data.

Events are named in the past tense and handled with their time (`Now`). The server carries commands
out in order, after the commit.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from arena.checkpoints.manifest import Manifest
from arena.types import Hyperparameters, LearnerId, PlayerId, PolicyId
from arena.wire.messages import Failed, Finished, FromController, Heartbeat, Hello
from populations.controller.rating_input import Snapshot
from populations.core import Exploration, Explore, SearchSpace
from populations.hooks.findings import Finding
from populations.league.ratings import Ratings
from populations.records.rows import GenerationRow, GhostRow


class Now(Struct, frozen=True, kw_only=True):
    """Time of an event, on two clocks.

    Attributes:
        monotonic_s: Seconds on the controller's monotonic clock, for all durations and deadlines.
        utc: Date and time in ISO 8601, for users and records; never compared.
    """

    monotonic_s: float
    utc: str


class BaseEvent(Struct, frozen=True, kw_only=True):
    """Event that the server passes to the state machine."""


class LearnerEvent(BaseEvent, frozen=True, kw_only=True):
    """Event that follows from a message from a learner, except a heartbeat, or from one to it.

    Attributes:
        learner: Learner that the event is about.
    """

    learner: LearnerId


class ControllerStarted(BaseEvent, frozen=True, kw_only=True):
    """First event of an epoch: the journal is loaded and recovered, and the socket is bound."""


class LearnerJoined(LearnerEvent, frozen=True, kw_only=True):
    """A learner has sent a Hello, perhaps once more because it received no answer.

    Attributes:
        hello: First message of the learner.
        slot: Slot of the launcher that started this process; None: the launcher did not start it.
    """

    hello: Hello
    # The server determines the slot, as it knows the processes of the launcher.
    slot: int | None


class HeartbeatReceived(BaseEvent, frozen=True, kw_only=True):
    """A learner has sent a heartbeat, which shows that it is alive."""

    learner: LearnerId
    heartbeat: Heartbeat


class AssignmentFinished(LearnerEvent, frozen=True, kw_only=True):
    """A learner has finished an assignment, and its checkpoints were read back and verified.

    Attributes:
        finished: Message of the learner.
        manifests: Manifests by checkpoint key, verified against every byte on disk.
    """

    finished: Finished
    # These come from the directories that the server verified, not from the learner's message.
    manifests: dict[str, Manifest]


class AssignmentFailed(LearnerEvent, frozen=True, kw_only=True):
    """A learner has failed an assignment, or published a checkpoint that did not verify.

    Attributes:
        failed: Message of the learner.
        damage: Fault that the server found when it read the checkpoint that the learner reported
            as corrupt; None: it found none, or the assignment does not name that checkpoint.
    """

    failed: Failed
    damage: str | None = None


class LearnerLeft(LearnerEvent, frozen=True, kw_only=True):
    """A learner has sent a Goodbye, with its reason to leave."""

    reason: str


class LearnerUnreachable(LearnerEvent, frozen=True, kw_only=True):
    """An assignment could not be sent to a learner."""


class LearnerExited(BaseEvent, frozen=True, kw_only=True):
    """A process that the launcher started has ended.

    Attributes:
        slot: Slot of the launcher.
        code: Exit code (-n: killed by signal n); None: it was lost with its machine.
    """

    slot: int
    code: int | None


class StrangerSpoke(LearnerEvent, frozen=True, kw_only=True):
    """A message has come from a learner that has not joined this epoch, or has been given up."""


class RatingsFitted(BaseEvent, frozen=True, kw_only=True):
    """The thread of fits has fitted ratings.

    Attributes:
        ratings: Ratings by population. Their rows are durable; a resume repeats the fit for the
            rest (`Fits.refit`).
    """

    ratings: Mapping[str, Ratings]


class HyperparametersExplored(BaseEvent, frozen=True, kw_only=True):
    """The worker thread has explored hyperparameters for a policy with a pending decision.

    Attributes:
        policy: Policy with the pending decision.
        exploration: Old and new values.
        problem: Why the rule failed, so that values were perturbed instead; None: it did not fail.
    """

    policy: PolicyId
    exploration: Exploration
    problem: str | None = None


class GhostsLinked(BaseEvent, frozen=True, kw_only=True):
    """The server has made the directories of ghosts, or the disk has refused them.

    Attributes:
        players: Ghosts whose directories exist.
        refused: Ghosts whose directories could not be written, for want of room or otherwise.
        reason: Error message of the disk.
    """

    players: tuple[PlayerId, ...]
    refused: tuple[PlayerId, ...] = ()
    reason: str = ""


class CheckpointsRemoved(BaseEvent, frozen=True, kw_only=True):
    """The directories of checkpoints and ghosts that were marked for removal are removed."""

    keys: tuple[str, ...]


class StopRequested(BaseEvent, frozen=True, kw_only=True):
    """A user has requested that the run stops with everything saved."""

    reason: str


class Ticked(BaseEvent, frozen=True, kw_only=True):
    """Time has passed.

    Attributes:
        deaf_s: Seconds since the server had last read all messages that had arrived.
        waiting: Slots of the launcher whose process waits for a machine with room.
    """

    # With a slow disk or many learners, messages wait unread; that time is not a learner's silence.
    deaf_s: float = 0.0
    waiting: frozenset[int] = frozenset()


Event = BaseEvent | Finding
"""Event of any kind; a `Finding` reports that a sink, a hook or an export failed or recovered."""


class Command(Struct, frozen=True, kw_only=True):
    """Command of the state machine, which the server carries out after the commit."""


class SendMessage(Command, frozen=True, kw_only=True):
    """Command to send a message to a learner; if that fails, it is not sent again."""

    learner: LearnerId
    message: FromController


class StartLearner(Command, frozen=True, kw_only=True):
    """Command to start a learner process in a slot of the launcher."""

    slot: int
    populations: tuple[str, ...]


class KillLearner(Command, frozen=True, kw_only=True):
    """Command to end the process in a slot at once.

    Attributes:
        slot: Slot of the process.
        dump_stacks: Whether it gets a moment to write its stacks to the log first.
    """

    slot: int
    dump_stacks: bool = False


class FitRatings(Command, frozen=True, kw_only=True):
    """Command to fit ratings on the thread of fits; the answer is `RatingsFitted`."""

    known: Snapshot


class ExploreHyperparameters(Command, frozen=True, kw_only=True):
    """Command to explore on the worker thread; the answer is `HyperparametersExplored`.

    Attributes:
        policy: Policy with the pending decision.
        rule: Rule of its population.
        hyperparameters: Values to start from: the policy's own, or its donor's.
        search_space: Hyperparameters that may change.
        history: All generations of the population, in order of beginning; the policy's last one
            is given as ended.
        agent_steps: Agent steps of the policy.
        seed: Seed of the draw, the same at every attempt.
    """

    policy: PolicyId
    # A rule keeps no state, so the worker thread may call it.
    rule: Explore
    hyperparameters: Hyperparameters
    search_space: SearchSpace
    # The tuple is a copy of references to frozen rows, as the controller goes on meanwhile.
    history: tuple[GenerationRow, ...]
    agent_steps: int
    # The seed is stored in ``PolicyRow.pending``, so a repeated command has the same answer.
    seed: tuple[int, ...]


class LinkGhosts(Command, frozen=True, kw_only=True):
    """Idempotent command to make the directories of ghosts; the answer is `GhostsLinked`."""

    # These are rows instead of ids, because the server looks nothing up in the state.
    ghosts: tuple[GhostRow, ...]


class RemoveCheckpoints(Command, frozen=True, kw_only=True):
    """Idempotent command to remove directories of checkpoints and ghosts (`CheckpointsRemoved`)."""

    keys: tuple[str, ...]


class WriteMetrics(Command, frozen=True, kw_only=True):
    """Command to pass metrics to the sinks.

    Attributes:
        policy: Id of the policy, or `arena.metrics.sink.RUN` for metrics of the run.
        agent_steps: Position on the curves: agent steps of the policy, or of the run.
        metrics: Values by name.
    """

    policy: str
    agent_steps: int
    metrics: Mapping[str, float]


class EndRun(Command, frozen=True, kw_only=True):
    """Command to leave the server's loop, because the run is over."""
