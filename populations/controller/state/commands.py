"""Commands of the controller. The server carries them out in order, after the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from arena.types import Hyperparameters, LearnerId, PolicyId
from arena.wire.messages import FromController
from populations.controller.rating_fit import Snapshot
from populations.core import Explore, SearchSpace
from populations.records.rows import GenerationRow, GhostRow


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage:
    """Send to a learner; a message that cannot be delivered is not sent again."""

    learner: LearnerId
    message: FromController


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLearner:
    """Start a learner process in a slot of the launcher."""

    slot: int
    populations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KillLearner:
    """End the process in a slot at once.

    Attributes:
        slot: Slot of the process.
        dump_stacks: Whether it first writes where it is, in no more than a moment.
    """

    slot: int
    dump_stacks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRatings:
    """Fit ratings on the worker thread; the answer is `RatingsFitted`."""

    known: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploreHyperparameters:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkGhosts:
    """Make the directories of ghosts; the answer is `GhostsLinked`. Idempotent."""

    # Rows and not ids: the server looks nothing up in the state.
    ghosts: tuple[GhostRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveCheckpoints:
    """Remove directories, ghosts' too; the answer is `CheckpointsRemoved`. Idempotent."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMetrics:
    """Hand figures of what is committed to the sinks.

    Attributes:
        policy: Its id, or `arena.metrics.sink.RUN` for the run's own.
        agent_steps: Position on the curves: the policy's count, or the run's.
        metrics: By name.
    """

    policy: str
    agent_steps: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRun:
    """Leave the loop: nothing is open any more, or it does not matter."""


Command = (
    SendMessage
    | StartLearner
    | KillLearner
    | FitRatings
    | ExploreHyperparameters
    | LinkGhosts
    | RemoveCheckpoints
    | WriteMetrics
    | EndRun
)
