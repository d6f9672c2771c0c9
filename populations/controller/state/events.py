"""Events of the controller, and the commands that follow from them: plain data.

Events are in the past tense, and each comes with its time. The server carries commands out in
order, after the commit.
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
    """When an event happened.

    Attributes:
        monotonic_s: The controller's own monotonic clock: every duration and deadline.
        utc: ISO 8601, for people and records; never compared.
    """

    monotonic_s: float
    utc: str


class BaseEvent(Struct, frozen=True, kw_only=True):
    """Event that the server tells of."""


class LearnerEvent(BaseEvent, frozen=True, kw_only=True):
    """Event that follows from a message of a learner, but for a heartbeat, or from one to it.

    Attributes:
        learner: Learner that the event is about.
    """

    learner: LearnerId


class ControllerStarted(BaseEvent, frozen=True, kw_only=True):
    """The journal is loaded, recovery is done, the socket is bound. First event of an epoch."""


class LearnerJoined(LearnerEvent, frozen=True, kw_only=True):
    """A learner said Hello (again, if it was not sure that it was heard).

    Attributes:
        hello: First message of the learner.
        slot: Slot of the launcher, if the launcher started this process.
    """

    hello: Hello
    # Found by the server, which knows the processes of the launcher.
    slot: int | None


class HeartbeatReceived(BaseEvent, frozen=True, kw_only=True):
    """A learner is alive."""

    learner: LearnerId
    heartbeat: Heartbeat


class AssignmentFinished(LearnerEvent, frozen=True, kw_only=True):
    """A learner finished, and its checkpoints were read back and verified.

    Attributes:
        finished: The message.
        manifests: By checkpoint key, verified against every byte on disk.
    """

    finished: Finished
    # The verified content of the directories, not the learner's words about it.
    manifests: dict[str, Manifest]


class AssignmentFailed(LearnerEvent, frozen=True, kw_only=True):
    """A learner failed, or what it published did not verify.

    Attributes:
        failed: Message of the learner.
        damage: Fault that the controller found when it read the checkpoint that the learner calls
            corrupt; None: nothing is wrong with it, or the assignment does not name it.
    """

    failed: Failed
    damage: str | None = None


class LearnerLeft(LearnerEvent, frozen=True, kw_only=True):
    """A learner said Goodbye."""

    reason: str


class LearnerUnreachable(LearnerEvent, frozen=True, kw_only=True):
    """An assignment could not be sent to a learner."""


class LearnerExited(BaseEvent, frozen=True, kw_only=True):
    """A process that the launcher started has ended.

    Attributes:
        slot: Slot of the launcher.
        code: Exit code (-n: by signal n); None: it was lost with its machine.
    """

    slot: int
    code: int | None


class StrangerSpoke(LearnerEvent, frozen=True, kw_only=True):
    """A message came from a learner that is not (or no longer) part of this epoch."""


class RatingsFitted(BaseEvent, frozen=True, kw_only=True):
    """The thread of fits has fitted ratings.

    Attributes:
        ratings: By population. Their rows are durable; the rest is made by another fit after a
            resume (`Fits.refit`).
    """

    ratings: Mapping[str, Ratings]


class HyperparametersExplored(BaseEvent, frozen=True, kw_only=True):
    """The worker thread has explored for a policy that waits.

    Attributes:
        policy: Policy that waits.
        exploration: Old and new values.
        problem: Why the rule could not be used, so that values were perturbed; None: it could.
    """

    policy: PolicyId
    exploration: Exploration
    problem: str | None = None


class GhostsLinked(BaseEvent, frozen=True, kw_only=True):
    """It was tried to make the directories of ghosts.

    Attributes:
        players: Those that are there.
        refused: Those for which the disk had no room, or that it could not write otherwise.
        reason: Words of the disk.
    """

    players: tuple[PlayerId, ...]
    refused: tuple[PlayerId, ...] = ()
    reason: str = ""


class CheckpointsRemoved(BaseEvent, frozen=True, kw_only=True):
    """The directories of doomed checkpoints and ghosts are gone."""

    keys: tuple[str, ...]


class StopRequested(BaseEvent, frozen=True, kw_only=True):
    """Somebody wants the run to stop with everything saved."""

    reason: str


class Ticked(BaseEvent, frozen=True, kw_only=True):
    """Time has passed.

    Attributes:
        deaf_s: Seconds since all messages that had arrived were read.
        waiting: Slots of the launcher whose learner waits for a place to run.
    """

    # Commits may take long where the disk is slow, and many learners have much to say.
    deaf_s: float = 0.0
    waiting: frozenset[int] = frozenset()


Event = BaseEvent | Finding
"""A `Finding` comes where a sink, a hook or an export failed, or works again."""


class Command(Struct, frozen=True, kw_only=True):
    """Order of the state machine, carried out by the server."""


class SendMessage(Command, frozen=True, kw_only=True):
    """Send to a learner; a message that cannot be delivered is not sent again."""

    learner: LearnerId
    message: FromController


class StartLearner(Command, frozen=True, kw_only=True):
    """Start a learner process in a slot of the launcher."""

    slot: int
    populations: tuple[str, ...]


class KillLearner(Command, frozen=True, kw_only=True):
    """End the process in a slot at once.

    Attributes:
        slot: Slot of the process.
        dump_stacks: Whether it first writes where it is, in no more than a moment.
    """

    slot: int
    dump_stacks: bool = False


class FitRatings(Command, frozen=True, kw_only=True):
    """Fit ratings on the thread of fits; the answer is `RatingsFitted`."""

    known: Snapshot


class ExploreHyperparameters(Command, frozen=True, kw_only=True):
    """Explore on the worker thread; the answer is `HyperparametersExplored`.

    Attributes:
        policy: Policy that waits for it.
        rule: Rule of its population.
        hyperparameters: Values to start from: the policy's own, or its donor's.
        search_space: Hyperparameters that may change.
        history: All generations of the population, in order of beginning, the policy's last ended.
        agent_steps: The policy's count.
        seed: Seed of the draw; the same words at every attempt.
    """

    policy: PolicyId
    # A rule keeps no state, so the worker thread may call it.
    rule: Explore
    hyperparameters: Hyperparameters
    search_space: SearchSpace
    # A copy of references to frozen rows; the controller goes on meanwhile.
    history: tuple[GenerationRow, ...]
    agent_steps: int
    # From ``PolicyRow.pending``: a repeated question has the same answer.
    seed: tuple[int, ...]


class LinkGhosts(Command, frozen=True, kw_only=True):
    """Make the directories of ghosts; the answer is `GhostsLinked`. Idempotent."""

    # Rows and not ids: the server looks nothing up in the state.
    ghosts: tuple[GhostRow, ...]


class RemoveCheckpoints(Command, frozen=True, kw_only=True):
    """Remove directories, ghosts' too; the answer is `CheckpointsRemoved`. Idempotent."""

    keys: tuple[str, ...]


class WriteMetrics(Command, frozen=True, kw_only=True):
    """Hand figures of what is committed to the sinks.

    Attributes:
        policy: Its id, or `arena.metrics.sink.RUN` for the run's own.
        agent_steps: Position on the curves: the policy's count, or the run's.
        metrics: By name.
    """

    policy: str
    agent_steps: int
    metrics: Mapping[str, float]


class EndRun(Command, frozen=True, kw_only=True):
    """Leave the loop: nothing is open any more, or it does not matter."""
