"""The rows of the journal: all that is durable about a run.

The controller's state is these rows in memory; the journal is the same rows in SQLite. After each
committed event ``load(journal) == state in memory``. Frozen: a change is a new row in the place of
the old one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from arena.types import (
    AssignmentId,
    CheckpointRef,
    Digest,
    Entrant,
    PlayerId,
    PolicyId,
    Tally,
    WeightsRef,
)
from arena.wire.messages import Evaluate, Train
from populations.records.aggregates import PairRow, RecordRow

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
"""Plain data."""

PolicyState = Literal["active", "quarantined"]
RunState = Literal["running", "stopped", "finished", "failed"]
AssignmentStatus = Literal["queued", "finished", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """The run itself; there is one.

    Attributes:
        run: Its UUID.
        state: ``running`` while a controller owns it (``crashed`` is that without a lock holder).
        reason: Why it is not running.
        epoch: How many controllers were started on it.
        decisions: Random draws so far: draw k is seeded by (run seed, k).
        next_assignment: The next assignment's id.
        elapsed_s: Of committed work, over all epochs.
        agent_steps: Of all policies.
        matches: Training and evaluation.
        assignments_finished: Committed.
        training_s: Learner seconds spent on training assignments.
        evaluation_s: Learner seconds spent on evaluation assignments.
        training_assignments: Committed.
        evaluation_assignments: Committed.
        exploits: Committed.
    """

    run: str
    state: RunState = "running"
    reason: str = ""
    epoch: int = 0
    decisions: int = 0
    next_assignment: int = 1
    elapsed_s: float = 0.0
    agent_steps: int = 0
    matches: int = 0
    assignments_finished: int = 0
    training_s: float = 0.0
    evaluation_s: float = 0.0
    training_assignments: int = 0
    evaluation_assignments: int = 0
    exploits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """A member of a population.

    Attributes:
        policy: Its id.
        population: Its population.
        index: Its number; 0 is the reference member.
        role: ``main``, ``main_exploiter`` or ``league_exploiter``.
        state: Quarantined policies are not trained, ranked, copied or snapshotted.
        generation: How many times its weights or hyperparameters were replaced.
        agent_steps: Never falls.
        learner_updates: Never falls.
        checkpoint: Key of the checkpoint it goes on from (its own, or its donor's after an
            exploit); None before the first.
        initial_weights: Where its weights come from while it has no checkpoint: the directory of
            a ghost or of imported ones, relative to the store's root; empty: fresh random ones;
            None: those that the whole population starts from.
        parent: The policy its weights were last copied from.
        hyperparameters: In use from its next assignment on.
        pending: A PBT decision about it that waits for new hyperparameters; empty: none. Until
            they are there, the policy is not trained.
        ready_at: agent_steps at its last PBT decision (0: none yet).
        ghost_at: agent_steps at its last ghost (-1: none yet).
        generation_at: agent_steps when its generation began.
        validated_generation: The last generation of which weights have played themselves; -1: none.
        failures: Failed or lost assignments in a row on its checkpoint.
        halvings: How often its learning rate was halved after a quarantine.
        speed: agent_steps per learner second, smoothed; 0 while unknown. A figure for budgets,
            ignored in deterministic mode.
        episode_length: Mean calls of ``step`` per episode, smoothed; 0 while unknown.
    """

    policy: PolicyId
    population: str
    index: int
    role: str = "main"
    state: PolicyState = "active"
    generation: int = 0
    agent_steps: int = 0
    learner_updates: int = 0
    checkpoint: str | None = None
    initial_weights: str | None = None
    parent: PolicyId | None = None
    hyperparameters: Mapping[str, float]
    pending: Mapping[str, Json] = field(default_factory=dict)
    ready_at: int = 0
    ghost_at: int = -1
    generation_at: int = 0
    validated_generation: int = -1
    failures: int = 0
    halvings: int = 0
    speed: float = 0.0
    episode_length: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """A recorded checkpoint. ``deleted`` ones keep their row: lineage and ratings refer to them.

    Attributes:
        key: Directory relative to the store's root.
        digest: Checkpoint digest.
        weights_digest: What is rated.
        policy: Whose it is.
        generation: The policy's generation when it was made.
        agent_steps: The policy's count.
        learner_updates: The policy's count.
        parent: Weights digest it was trained from (a donor's after an exploit).
        assignment_id: That made it; 0: not known, a repair recorded it from its manifest.
        state: ``present``; ``doomed`` (retention decided, directory to be removed), ``deleted``,
            or ``corrupt`` (its bytes do not match).
    """

    key: str
    digest: Digest
    weights_digest: Digest
    policy: PolicyId
    generation: int
    agent_steps: int
    learner_updates: int
    parent: Digest | None
    assignment_id: AssignmentId
    state: Literal["present", "doomed", "deleted", "corrupt"] = "present"

    @property
    def ref(self) -> CheckpointRef:
        """To go on training from."""
        return CheckpointRef(digest=self.digest, key=self.key)

    @property
    def weights(self) -> WeightsRef:
        """To play with."""
        return WeightsRef(digest=self.weights_digest, key=self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class GhostRow:
    """A frozen snapshot, kept as an opponent for ever.

    Attributes:
        player: Its id.
        policy: Whose snapshot it is.
        population: Its population.
        agent_steps: The policy's count.
        generation: The policy's generation.
        weights_digest: Of its weights.
        key: Its directory relative to the store's root.
        checkpoint: Key of the checkpoint it was linked from.
        linked: Whether its directory is known to be there (done again at resume if not).
        corrupt: Whether its bytes no longer match; it is no opponent any more.
        role: The policy's.
        quality: Number that a stateful rule of matchmaking keeps about it
            (`populations.matchmaking.drawing.GhostMemory`).
    """

    player: PlayerId
    policy: PolicyId
    population: str
    agent_steps: int
    generation: int
    weights_digest: Digest
    key: str
    checkpoint: str
    linked: bool = False
    corrupt: bool = False
    role: str = "main"
    quality: float = 0.0

    @property
    def weights(self) -> WeightsRef:
        """To play with."""
        return WeightsRef(digest=self.weights_digest, key=self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRow:
    """One generation of a policy: what lineage, replay and model-based exploring read.

    Attributes:
        entrant: The policy and its generation, ``player/p003#2``.
        policy: Whose generation it is.
        population: Its population.
        generation: Its number, from 0.
        cause: What began it; ``repair``: not known, the journal that said so was lost.
        parent: Entrant (policy and generation) that the weights came from, or the player of another
            run; None for fresh ones.
        parent_agent_steps: The parent's count when they were copied; None without a parent in this
            run.
        hyperparameters: In use during it.
        agent_steps_begin: The policy's count when it began.
        agent_steps_end: The policy's count when it ended; None while it lasts.
        rating_begin: Elo of the weights that it began with, or of the nearest rated ones before;
            None if none were rated. Once it has ended, by the fit that `rating_end` is from.
        rating_end: Elo of the newest rated weights when it ended; None while it lasts, or unrated.
        gain_deviation: Standard deviation of ``rating_end - rating_begin``, Elo; None where the two
            are not from one fit, or are about the same weights: nothing is known of its gain.
        gain_agent_steps: Agent steps from the weights of the one rating to those of the other; None
            where nothing is known.
    """

    entrant: Entrant
    policy: PolicyId
    population: str
    generation: int
    cause: Literal[
        "start", "exploit", "explore", "quarantine", "reset", "immigrate", "replay", "repair"
    ]
    parent: Entrant | None
    parent_agent_steps: int | None = None
    hyperparameters: Mapping[str, float]
    agent_steps_begin: int
    agent_steps_end: int | None = None
    rating_begin: float | None = None
    rating_end: float | None = None
    gain_deviation: float | None = None
    gain_agent_steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentRow:
    """A decision about what one learner does.

    Attributes:
        assignment_id: The decision.
        attempt: How often it was given out; 0: not yet.
        kind: Of the message.
        status: ``queued`` until it ends; who runs it is not durable.
        message: As it was last given out (attempt included).
        learner: Who ended it.
        agent_steps: Trained in it.
        matches: Played in it.
        duration_s: That the learner reported.
        metrics: Flat, finite.
        reason: Of a failure.
    """

    assignment_id: AssignmentId
    attempt: int = 0
    kind: Literal["train", "evaluate"]
    status: AssignmentStatus = "queued"
    message: Train | Evaluate
    learner: str | None = None
    agent_steps: int = 0
    matches: int = 0
    duration_s: float = 0.0
    metrics: Mapping[str, float]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TallyRow:
    """A committed tally. `RecordRow` and `PairRow` are their fold, kept beside them.

    Attributes:
        sequence: Order of commit, from 1 without gaps.
        assignment_id: That played it.
        kind: Only evaluation moves ratings.
        tally: The results.
    """

    sequence: int
    assignment_id: AssignmentId
    kind: Literal["train", "evaluate"]
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingsRow:
    """The last fit of one population's ratings.

    Attributes:
        population: Whose scale it is; ``bot:random`` is at 0.
        entrants: Who is rated.
        ratings: Elo, one per entrant.
        deviations: Standard deviations in Elo, one per entrant. Those of differences are smaller
            than these say (errors go together): they are in
            `populations.controller.rating_fit.Fitted`.
        cyclicity: Share of the results that no rating can express; 0 where nothing is known.
        num_tallies: The fit covers evaluation tallies with sequence up to this.
        child_deviation: Elo by which new weights are off the rating of those they come from.
        pair_deviation: Elo by which pairs are off what their ratings say; intervals know it.
        misfit: Standard deviations by which the results are off the fit beyond chance.
        advantages: Elo that one seat is worth against another, a row of the table after the other;
            empty if that was not recorded.
        optimism: Elo by which the best of them is rated too high because it was chosen for that.
    """

    population: str
    entrants: tuple[Entrant, ...]
    ratings: tuple[float, ...]
    deviations: tuple[float, ...]
    cyclicity: float
    num_tallies: int
    child_deviation: float = 200.0
    pair_deviation: float = 0.0
    misfit: float = 0.0
    advantages: tuple[float, ...] = ()
    optimism: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """Why something was decided. Explains; is never replayed.

    Attributes:
        sequence: Order of commit, from 1 without gaps.
        time: UTC, ISO 8601, for people.
        kind: A past-tense word (``exploited``, ``ghost_created``).
        subject: The policy, ghost, learner or assignment it is about; empty for the run.
        data: The numbers.
    """

    sequence: int
    time: str
    kind: str
    subject: str
    data: Mapping[str, Json]


Row = (
    RunRow
    | PolicyRow
    | CheckpointRow
    | GhostRow
    | GenerationRow
    | AssignmentRow
    | TallyRow
    | RecordRow
    | PairRow
    | RatingsRow
    | EventRow
)
