"""Rows of the journal: everything that is durable about a run.

The controller's state is these rows in memory; the journal is the same rows in SQLite. After each
committed event ``load(journal) == state in memory``. Rows are frozen: a change is a new row in
place of the old one.

Tests: `tests/populations/records/test_tables.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import field

from arena.types import (
    AssignmentId,
    CheckpointRef,
    Digest,
    Entrant,
    Game,
    Number,
    PlayerId,
    PolicyId,
    Tally,
    Value,
    WeightsRef,
    trainee_entrant,
)
from arena.wire.messages import Evaluate, Train
from populations.records.aggregates import PairRow, RecordRow, Row

if TYPE_CHECKING:
    Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
    """Plain data."""
else:
    # A type that names itself is more than msgspec reads.
    Json = Any

Document = dict[str, Any]
"""Plain data of a view, or of one of its rows."""

PolicyState = Literal["active", "quarantined", "retired"]
RunState = Literal["running", "stopped", "finished", "failed"]
AssignmentStatus = Literal["queued", "finished", "failed"]
Cause = Literal[
    "start",
    "exploit",
    "explore",
    "quarantine",
    "reset",
    "immigrate",
    "replay",
    "repair",
    "rewind",
    "reconfigure",
]
"""Events that begin a generation."""


class RunRow(Row, frozen=True, kw_only=True):
    """The run itself; there is one row.

    Attributes:
        run: Run's UUID.
        state: ``running`` while a controller owns it (``crashed`` is that without a lock holder).
        reason: Reason for not running.
        epoch: Number of controllers that were started on it.
        decisions: Random draws so far: draw k is seeded by (run seed, k).
        next_assignment: Id of the next assignment.
        elapsed_s: Time of committed work, over all epochs.
        closing_s: Part of it in which nothing was to be trained: finals, evaluation alone, saving.
        agent_steps: Agent steps of all policies.
        matches: Training and evaluation matches.
        assignments_finished: Committed assignments.
        training_s: Learner seconds spent on training assignments.
        evaluation_s: Learner seconds spent on evaluation assignments.
        extra_evaluation_s: Learner seconds spent on evaluations beside training and its finals
            (`arena evaluate --into`), which belong to no share.
        share_reached: Evaluation's share of learner seconds when training ended last; None: it did
            not, or nothing was spent.
        training_assignments: Committed training assignments.
        evaluation_assignments: Committed evaluation assignments.
        exploits: Committed exploits.
        pbt_decisions: Decisions of PBT that were due and were made.
        pbt_marks: Marks of policies' clocks that decisions have answered, those that failed
            included.
        lesson: Index of the lesson of ``environment.curriculum`` that is trained in.
        configuration: Digest of what run.yaml says.
        proof: Digest that the proofs of all learners of a deterministic run have; empty: none has
            proved anything.
        devices: Kinds of devices that learners have computed on, of `admission.DEVICES`.
        outsiders: Digests of the weights of other runs' players that were copied at launch, by
            directory (`populations.matchmaking.external_players.external_player_key`).
    """

    run: str
    state: RunState = "running"
    reason: str = ""
    epoch: int = 0
    # Durable, so that a resumed run draws on where the one before ended.
    decisions: int = 0
    # From 1: assignment 0 stands for an unknown one in `CheckpointRow`.
    next_assignment: int = 1
    # Durable: `stop.duration_s` counts the time of all epochs, without that of their finals.
    elapsed_s: float = 0.0
    closing_s: float = 0.0
    agent_steps: int = 0
    matches: int = 0
    assignments_finished: int = 0
    # Evaluation's share is measured by these four: seconds, in deterministic mode assignments.
    training_s: float = 0.0
    evaluation_s: float = 0.0
    extra_evaluation_s: float = 0.0
    share_reached: float | None = None
    training_assignments: int = 0
    evaluation_assignments: int = 0
    exploits: int = 0
    pbt_decisions: int = 0
    pbt_marks: int = 0
    lesson: int = 0
    configuration: str = ""
    proof: str = ""
    devices: tuple[str, ...] = ()
    outsiders: Mapping[str, Digest] = field(default_factory=dict)


class PolicyRow(Row, frozen=True, kw_only=True):
    """Member of a population.

    Attributes:
        policy: Policy's id.
        population: Name of its population.
        index: Policy's number; 0 is the reference member.
        role: ``main``, ``main_exploiter`` or ``league_exploiter``.
        state: ``active``; ``quarantined`` (it broke) and ``retired`` (``pbt.share``: halving) are
            not trained, ranked, copied or snapshotted.
        generation: Number of times its weights or hyperparameters were replaced.
        agent_steps: Agent steps so far; never falls.
        learner_updates: Optimizer steps so far; never falls.
        checkpoint: Key of the checkpoint that it continues from (its own, or its donor's after an
            exploit); None before the first.
        initial_weights: Source of its weights while it has no checkpoint: the directory of a ghost
            or of imported weights, relative to the store's root; empty: fresh random ones; None:
            those that the whole population starts from.
        parent: Policy that its weights were last copied from.
        hyperparameters: Hyperparameters from its next assignment on; values in use.
        factors: Factors by which PBT has moved those that have a schedule.
        pending: PBT decision that waits for new hyperparameters; empty: none. The policy is not
            trained meanwhile.
        ready_at: agent_steps at its last PBT decision (0: none yet).
        ghost_at: agent_steps at its last ghost (-1: none yet).
        generation_at: agent_steps when its generation began.
        validated_generation: Last generation whose weights have played themselves; -1: none.
        rescues: Number of times it came back from quarantine since PBT last decided about it.
        speed: agent_steps per learner second, smoothed; 0 while unknown. Used for budgets, ignored
            in deterministic mode.
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
    # None is before the first: a policy that has lost its checkpoints is quarantined instead.
    checkpoint: str | None = None
    initial_weights: str | None = None
    parent: PolicyId | None = None
    hyperparameters: Mapping[str, Value]
    factors: Mapping[str, Number] = field(default_factory=dict)
    # Durable: the question is asked again after a crash and has the same answer.
    pending: Mapping[str, Json] = field(default_factory=dict)
    ready_at: int = 0
    # Not 0: the first ghost is left at step 0.
    ghost_at: int = -1
    generation_at: int = 0
    # Not 0: the weights of generation 0 have to play themselves, too.
    validated_generation: int = -1
    # Bounded by `quarantine.MAX_RESCUES`; a decision of PBT sets it back.
    rescues: int = 0
    speed: float = 0.0
    episode_length: float = 0.0

    @property
    def trainee(self) -> Entrant:
        """Return its policy and generation, as results of training name them."""
        return trainee_entrant(self.policy, generation=self.generation)


class PostponedRow(Row, frozen=True, kw_only=True):
    """Decision of PBT about a policy that is due and waits.

    Attributes:
        policy: Policy's id.
        reason: Reason why it waits, in words.
    """

    policy: PolicyId
    reason: str


class CheckpointRow(Row, frozen=True, kw_only=True):
    """Recorded checkpoint. ``deleted`` ones keep their row while something refers to it.

    Attributes:
        key: Directory relative to the store's root.
        digest: Digest of the checkpoint.
        weights_digest: Digest of the weights, which are rated.
        policy: Policy that it belongs to.
        generation: Policy's generation when it was made.
        agent_steps: Policy's agent steps.
        learner_updates: Policy's optimizer steps.
        parent: Digest of the weights it was trained from (a donor's after an exploit).
        assignment_id: Assignment that made it; 0: unknown, a repair recorded it from its manifest.
        state: ``present``; ``doomed`` (marked for removal by retention), ``deleted``, or
            ``corrupt`` (its bytes do not match).
        pinned: Whether a user wants it to stay.
        since_parent: Agent steps from its parent to it, where rows between them were removed; None:
            none were.
    """

    key: str
    digest: Digest
    weights_digest: Digest
    policy: PolicyId
    generation: int
    agent_steps: int
    learner_updates: int
    # Ratings follow this line: the nearest rated ancestor is the prior mean.
    parent: Digest | None
    assignment_id: AssignmentId
    # Doomed is committed before the directory goes, deleted after: a crash loses no removal.
    state: Literal["present", "doomed", "deleted", "corrupt"] = "present"
    pinned: bool = False
    since_parent: int | None = None

    @property
    def trainee(self) -> Entrant:
        """Return its policy and generation, as results of training name them."""
        return trainee_entrant(self.policy, generation=self.generation)

    @property
    def ref(self) -> CheckpointRef:
        """Reference to continue training from."""
        return CheckpointRef(digest=self.digest, key=self.key)

    @property
    def weights(self) -> WeightsRef:
        """Reference to play with."""
        return WeightsRef(digest=self.weights_digest, key=self.key)


class GhostRow(Row, frozen=True, kw_only=True):
    """Frozen snapshot, kept as an opponent until it is thinned (`populations.thinning`).

    Attributes:
        player: Ghost's id.
        policy: Policy that it is a snapshot of.
        population: Name of its population.
        agent_steps: Policy's agent steps.
        generation: Policy's generation.
        weights_digest: Digest of its weights.
        key: Ghost's directory relative to the store's root.
        checkpoint: Key of the checkpoint it was linked from.
        linked: Whether its directory is known to exist (a resume links it again if not).
        corrupt: Whether its bytes no longer match; it is no opponent any more.
        doomed: Whether it was thinned: it is no opponent any more. Its row goes once its directory
            is removed (a resume removes it again if not).
        role: The policy's.
        quality: Number that a stateful rule of matchmaking keeps about it
            (`populations.matchmaking.drawing.GhostMemory`).
        pinned: Whether a user wants it to stay.
    """

    player: PlayerId
    policy: PolicyId
    population: str
    agent_steps: int
    generation: int
    weights_digest: Digest
    key: str
    # The row of that checkpoint stays when its directory is removed; it tells the ghost's mates.
    checkpoint: str
    # The row is committed before the directory is made; a crash in between shows here.
    linked: bool = False
    corrupt: bool = False
    doomed: bool = False
    role: str = "main"
    quality: float = 0.0
    pinned: bool = False

    @property
    def trainee(self) -> Entrant:
        """Return its policy and generation, as results of training name them."""
        return trainee_entrant(self.policy, generation=self.generation)

    @property
    def is_present(self) -> bool:
        """Return whether it can be played."""
        return not self.corrupt and not self.doomed

    @property
    def weights(self) -> WeightsRef:
        """Reference to play with."""
        return WeightsRef(digest=self.weights_digest, key=self.key)


class GenerationRow(Row, frozen=True, kw_only=True):
    """Generation of a policy, for lineage, replay and model-based exploring.

    A row goes once it is old and nothing refers to it (`populations.controller.result_merging`);
    the event that says so has it.

    Attributes:
        entrant: Policy and generation, ``player/p003#2``.
        policy: Policy of the generation.
        population: Name of its population.
        generation: Number of the generation, from 0.
        cause: Event that began it; ``repair``: unknown, because the journal was lost.
        parent: Entrant (policy and generation) that the weights came from, or the player of another
            run; None for fresh ones.
        parent_agent_steps: Parent's agent steps when they were copied; None without a parent in
            this run.
        hyperparameters: Hyperparameters in use during it; those with a schedule, at its beginning.
        factors: Factors by which PBT has moved those that have a schedule.
        agent_steps_begin: Policy's agent steps when it began.
        agent_steps_end: Policy's agent steps when it ended; None while it lasts.
        rating_begin: Elo of the weights that it began with, or of the nearest rated ones before;
            None if none were rated. Once it has ended, by the fit of `rating_end`.
        rating_end: Elo of the newest rated weights when it ended; None while it lasts, or unrated.
        gain_deviation: Standard deviation of ``rating_end - rating_begin``, Elo; None where the two
            are not from one fit, or are about the same weights: its gain is unknown.
        gain_agent_steps: Agent steps from the weights of the one rating to those of the other; None
            where unknown.
        line_begin: Number of the policy's generation that its weights began with: since then they
            were not replaced.
        copies: Copies of other policies' weights that the policy had made when it began, its own
            beginning included.
    """

    entrant: Entrant
    policy: PolicyId
    population: str
    generation: int
    cause: Cause
    parent: Entrant | None
    parent_agent_steps: int | None = None
    hyperparameters: Mapping[str, Value]
    factors: Mapping[str, Number] = field(default_factory=dict)
    agent_steps_begin: int
    agent_steps_end: int | None = None
    rating_begin: float | None = None
    rating_end: float | None = None
    gain_deviation: float | None = None
    gain_agent_steps: int | None = None
    # What rows that are gone said, so that nothing needs them.
    line_begin: int = 0
    copies: int = 0


class AssignmentRow(Row, frozen=True, kw_only=True):
    """Unit of a learner's work.

    Attributes:
        assignment_id: Assignment's id.
        attempt: Number of times it was given out; 0: not yet.
        kind: Kind of the message.
        status: ``queued`` until it ends; the learner that runs it is not durable.
        message: Message as last sent (attempt included).
        learner: Learner that ended it.
        agent_steps: Agent steps trained in it.
        matches: Matches played in it.
        duration_s: Duration that the learner reported.
        metrics: Finite numbers by name.
        reason: Reason of a failure.
    """

    assignment_id: AssignmentId
    attempt: int = 0
    kind: Literal["train", "evaluate"]
    status: AssignmentStatus = "queued"
    # All that the work depends on: a redone assignment gets the same seed and inputs.
    message: Train | Evaluate
    learner: str | None = None
    agent_steps: int = 0
    matches: int = 0
    duration_s: float = 0.0
    metrics: Mapping[str, Number]
    reason: str = ""

    @property
    def trained(self) -> tuple[PolicyId, ...]:
        """Return the policies that it trains."""
        if not isinstance(self.message, Train):
            return ()
        return tuple(trainee.policy for trainee in self.message.trainees)


class TallyRow(Row, frozen=True, kw_only=True):
    """Committed tally. `RecordRow` and `PairRow` are the fold of these, kept beside them.

    It has no time: the event ``evaluation_assigned`` tells when its assignment was given out, and
    an `ArchiveRow` the run's time at the end of a range of tallies.

    Attributes:
        sequence: Order of commit, from 1 without gaps.
        assignment_id: Assignment that played it.
        kind: ``train`` or ``evaluate``; only evaluation changes ratings.
        tally: Results.
    """

    # Without gaps: the last sequence is the number of tallies.
    sequence: int
    assignment_id: AssignmentId
    kind: Literal["train", "evaluate"]
    tally: Tally


class RatingsRow(Row, frozen=True, kw_only=True):
    """Last fit of one population's ratings.

    Attributes:
        population: Population of the scale; ``bot:random`` is at 0.
        entrants: Rated entrants.
        ratings: Ratings in Elo, one per entrant.
        deviations: Standard deviations in Elo, one per entrant. Those of differences are smaller,
            as errors are shared: see `populations.league.ratings.Ratings`.
        cyclicity: Share of the results of strong players that no rating can express; 0 where
            unknown.
        num_tallies: Sequence of the last evaluation tally that the fit covers.
        child_deviation: Elo by which new weights deviate from the rating of their parents.
        pair_deviation: Elo by which pairs deviate from their ratings; part of the intervals.
        misfit: Standard deviations by which the results deviate from the fit beyond chance.
        anchor_deviation: Elo by which results against ``bot:random`` are off the ratings.
        anchor_errors: The same of each entrant, by what its own such matches tell; empty: zeros.
            Part of the intervals, not of ``deviations``, for it makes no order among players.
        rank_lows: Best rank that each entrant may have among the players of its time, 95%; the best
            is 1; empty if not recorded. See `populations.ratings.ranks.rank_intervals`.
        rank_highs: The worst one.
        advantages: Elo that one seat is worth against another, row by row of the table; empty if
            not recorded.
        optimism: Elo by which the best of them is rated too high because it was chosen for its
            rating.
        best: Weights of the best-rated kept checkpoint of each policy that has one: that with the
            highest lower end of its 95% interval in this fit.
        best_ratings: Their ratings in Elo, one each.
        best_deviations: Their standard deviations in Elo, one each.
        former_best: Best-rated weights of the fit before, which this fit has rated again.
        num_records: Number of entrants with evaluation matches when the fit began.
        open: Entrants whose results have no upper bound: nobody of the others took a point from
            them (`populations.ratings.ranks`).
        champion: Weights of the population's champion; None: there is none, or it was not
            recorded.
        champion_agent_steps: Agent steps of the run when it became champion.
        champion_player: Player that the last event of another champion names; None: there was none.
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
    anchor_deviation: float = 0.0
    anchor_errors: tuple[float, ...] = ()
    rank_lows: tuple[int, ...] = ()
    rank_highs: tuple[int, ...] = ()
    advantages: tuple[float, ...] = ()
    optimism: float = 0.0
    best: tuple[Entrant, ...] = ()
    best_ratings: tuple[float, ...] = ()
    best_deviations: tuple[float, ...] = ()
    # A fit that is repeated after a resume has the entrants of the first one.
    former_best: tuple[Entrant, ...] = ()
    # Records are in order of first evaluation, so those after this number are in no fit yet.
    num_records: int = 0
    open: tuple[Entrant, ...] = ()
    champion: Entrant | None = None
    champion_agent_steps: int = 0
    champion_player: PlayerId | None = None


class AlertRow(Row, frozen=True, kw_only=True):
    """Alert that holds, as the event of its beginning has it.

    Attributes:
        name: Kind of the alert.
        subject: Population, sink or hook that it is about; empty: the run.
        what: Trouble in words, with numbers.
        advice: Remedy.
        source: Policy or other source that was measured.
    """

    name: str
    subject: str
    what: str
    advice: str
    source: str


class EventRow(Row, frozen=True, kw_only=True):
    """Explanation of a decision; never replayed.

    Attributes:
        sequence: Order of commit, from 1 without gaps.
        time: Time in UTC, ISO 8601, for people.
        kind: Past-tense word (``exploited``, ``ghost_created``).
        subject: Policy, ghost, learner or assignment that it is about; empty for the run.
        data: Numbers behind the decision.
    """

    sequence: int
    # For people alone: no decision compares times of a calendar.
    time: str
    kind: str
    subject: str
    data: Mapping[str, Json]


class GameRow(Game, Row, frozen=True, kw_only=True):
    """Evaluation game that is kept, to be played again.

    Attributes:
        game: Its id: assignment, dot, number in the assignment's report.
        time: Time of its commit in UTC, ISO 8601, for people.
        players: Player in each of its seats, by its id of then.
        entrants: The same players by their weights; those from outside by their ids.
        keys: Directories of these weights when they played; empty for bots.
        holds: Whether the game keeps these directories.
    """

    game: str
    time: str
    # Of a person's game they have names of the command line, so that no form is asked for.
    players: tuple[str, ...]
    entrants: tuple[str, ...]
    keys: tuple[str, ...]
    holds: bool = False


Removable = (
    PostponedRow
    | CheckpointRow
    | GhostRow
    | GenerationRow
    | RecordRow
    | PairRow
    | AlertRow
    | GameRow
)
"""Row that may be removed from its table."""


class Deletion(Row, frozen=True, kw_only=True):
    """Removal of a row from its table.

    Attributes:
        row: The row as it was last.
    """

    row: Removable


class ArchiveRow(Row, frozen=True, kw_only=True):
    """Range of the run's details: of tallies, ended assignments and events.

    It lasts a twenty-fourth of ``journal.keep_detail_hours``; without that key there are none.
    It begins behind that of the row before. Rows of a range that has a file are those of the file:
    what the journal still has of them is removed step by step, and not read any more.

    Attributes:
        number: Number of the range, from 1 without gaps.
        elapsed_s: The run's time at its end.
        tallies: Sequence of its last tally.
        evaluated: Sequence of the last evaluation tally until its end.
        assignments: Id of its last assignment.
        events: Sequence of its last event.
        file: Name of its file in the run's ``archive``; empty: its rows are in the journal.
        digest: sha256 of the file.
    """

    number: int
    elapsed_s: float
    tallies: int
    evaluated: int
    assignments: int
    events: int
    file: str = ""
    digest: str = ""


BEGINNING = ArchiveRow(number=0, elapsed_s=0.0, tallies=0, evaluated=0, assignments=0, events=0)
"""Stands for the range before the first one."""
