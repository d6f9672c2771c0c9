"""Commands of the controller. The server carries them out in order, after the commit."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from arena.types import Hyperparameters, LearnerId, PolicyId
from arena.wire.messages import FromController
from populations.controller.rating_fit import Snapshot
from populations.core import Explore, SearchSpace
from populations.records.rows import GenerationRow, GhostRow


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
    """Fit ratings on the worker thread; the answer is `RatingsFitted`."""

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
