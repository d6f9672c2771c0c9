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
    """JSON value: text, number, true or false, null, or nested lists and mappings of them."""
else:
    # msgspec cannot read a recursive type.
    Json = Any

Document = dict[str, Any]
"""JSON object of a view, or of one row of a view."""

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
        state: ``running`` while a controller owns the run; without a lock holder it has crashed.
        reason: Reason why the run does not run; empty while it does.
        epoch: Number of controllers started on this run: one by the launch, one by each resume.
        decisions: Random draws so far: draw k is seeded by (run seed, k).
        next_assignment: Id of the next assignment.
        elapsed_s: Time of committed work, over all epochs.
        closing_s: Part of ``elapsed_s`` without any training to do: final matches, evaluation
            alone, saving.
        agent_steps: Agent steps of all policies.
        matches: Training and evaluation matches.
        assignments_finished: Committed assignments.
        training_s: Learner seconds spent on training assignments.
        evaluation_s: Learner seconds spent on evaluation assignments.
        extra_evaluation_s: Learner seconds spent on evaluations that a user started on a stopped
            run (`arena evaluate --into`); ``evaluation.share`` does not count them.
        share_reached: Evaluation's share of learner seconds when training last ended; None:
            training has not ended, or no learner seconds were spent.
        training_assignments: Committed training assignments.
        evaluation_assignments: Committed evaluation assignments.
        exploits: Committed exploits.
        pbt_decisions: Decisions of PBT that were due and were made.
        pbt_marks: Marks of policies' PBT clocks (`populations.pbt.scheduler`) that decisions have
            answered, failed decisions included.
        lesson: Index of the current lesson of ``environment.curriculum``.
        configuration: Digest of the contents of run.yaml.
        proof: Digest of the test results that all learners of a deterministic run must share;
            empty: no learner has reported any yet.
        devices: Kinds of devices that learners have computed on, of `admission.DEVICES`.
        outsiders: Digests of the weights of other runs' players that were copied at launch, by
            directory (`populations.matchmaking.external_players.external_player_key`).
    """

    run: str
    state: RunState = "running"
    reason: str = ""
    epoch: int = 0
    # The count is durable so that a resumed run continues the same sequence of random draws.
    decisions: int = 0
    # Ids start at 1, because 0 stands for an unknown assignment in `CheckpointRow`.
    next_assignment: int = 1
    # `stop.duration_s` counts the time of all epochs without their final matches, so both times
    # are durable.
    elapsed_s: float = 0.0
    closing_s: float = 0.0
    agent_steps: int = 0
    matches: int = 0
    assignments_finished: int = 0
    # Evaluation's share is computed from learner seconds, in deterministic mode from numbers of
    # assignments, because seconds differ between two equal runs.
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
        agent_steps: Agent steps so far; never decreases.
        learner_updates: Optimizer steps so far; never decreases.
        checkpoint: Key of the checkpoint that it continues from (its own, or its donor's after an
            exploit); None before the first.
        initial_weights: Source of its weights while it has no checkpoint: the directory of a ghost
            or of imported weights, relative to the store's root; empty: fresh random weights; None:
            the weights that the whole population starts from.
        parent: Policy that its weights were last copied from.
        hyperparameters: Hyperparameters from its next assignment on; values in use.
        factors: Factors by which PBT has multiplied hyperparameters that follow a schedule.
        pending: PBT decision that waits for new hyperparameters; empty: none. The policy is not
            trained meanwhile.
        ready_at: agent_steps at its last PBT decision (0: none yet).
        ghost_at: agent_steps when its last ghost was made (-1: none yet).
        generation_at: agent_steps when its generation began.
        validated_generation: Last generation whose weights have played themselves; -1: none.
        rescues: Number of returns from quarantine since the last PBT decision about the policy.
        speed: agent_steps per learner second, smoothed; 0 while unknown. It sets the size of an
            assignment; deterministic mode ignores it.
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
    # None means only "no checkpoint yet": a policy that has lost its checkpoints is quarantined.
    checkpoint: str | None = None
    initial_weights: str | None = None
    parent: PolicyId | None = None
    hyperparameters: Mapping[str, Value]
    factors: Mapping[str, Number] = field(default_factory=dict)
    # A pending decision is durable: after a crash the controller asks again for hyperparameters,
    # and gets the same answer.
    pending: Mapping[str, Json] = field(default_factory=dict)
    ready_at: int = 0
    # The default is not 0, because the first ghost is made at step 0.
    ghost_at: int = -1
    generation_at: int = 0
    # The default is not 0, because the weights of generation 0 must play themselves, too.
    validated_generation: int = -1
    # `quarantine.MAX_RESCUES` bounds the number; a PBT decision resets it to 0.
    rescues: int = 0
    speed: float = 0.0
    episode_length: float = 0.0

    @property
    def trainee(self) -> Entrant:
        """Return its policy and generation, as results of training name them."""
        return trainee_entrant(self.policy, generation=self.generation)


class PostponedRow(Row, frozen=True, kw_only=True):
    """PBT decision that is due but postponed, because too little is known of the policy.

    Attributes:
        policy: Policy's id.
        reason: Reason for the postponement, in words.
    """

    policy: PolicyId
    reason: str


class CheckpointRow(Row, frozen=True, kw_only=True):
    """Recorded checkpoint. The row of a ``deleted`` one remains while something refers to it.

    Attributes:
        key: Directory relative to the store's root.
        digest: Digest of the checkpoint.
        weights_digest: Digest of the weights, by which ratings name them.
        policy: Policy that it belongs to.
        generation: Policy's generation when it was made.
        agent_steps: Policy's agent steps.
        learner_updates: Policy's optimizer steps.
        parent: Digest of the weights it was trained from (a donor's after an exploit).
        assignment_id: Assignment that made it; 0: unknown, a repair recorded it from its manifest.
        state: ``present``; ``doomed`` (marked for removal by retention), ``deleted``, or
            ``corrupt`` (its bytes do not match).
        pinned: Whether a user has protected it from removal (`arena pin`).
        since_parent: Agent steps from ``parent`` to this checkpoint where the rows between the two
            were removed; None: no row was.
    """

    key: str
    digest: Digest
    weights_digest: Digest
    policy: PolicyId
    generation: int
    agent_steps: int
    learner_updates: int
    # Ratings follow the line of parents: the nearest rated ancestor gives the prior mean.
    parent: Digest | None
    assignment_id: AssignmentId
    # ``doomed`` is committed before the directory is removed, and ``deleted`` afterwards, so a
    # resume after a crash finishes the removal.
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
    """Frozen copy of a policy, an opponent until a rule of `populations.thinning` removes it.

    Attributes:
        player: Ghost's id.
        policy: Policy that it is a snapshot of.
        population: Name of its population.
        agent_steps: Policy's agent steps.
        generation: Policy's generation.
        weights_digest: Digest of its weights.
        key: Ghost's directory relative to the store's root.
        checkpoint: Key of the checkpoint it was linked from.
        linked: Whether its directory is known to exist; if not, a resume links it again.
        corrupt: Whether its bytes no longer match its digest; it is no opponent any more.
        doomed: Whether it is marked for deletion: it is no opponent any more. Its row is removed
            after its directory; a resume repeats an interrupted removal.
        role: Role of the policy.
        quality: Number that a stateful matchmaking rule stores for this ghost
            (`populations.matchmaking.drawing.GhostMemory`).
        pinned: Whether a user has protected it from removal (`arena pin`).
    """

    player: PlayerId
    policy: PolicyId
    population: str
    agent_steps: int
    generation: int
    weights_digest: Digest
    key: str
    # The checkpoint's row outlives its directory: from it the ghost's teammates are found.
    checkpoint: str
    # The row is committed before the directory is made; after a crash in between this is False.
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
        """Return whether the ghost can be an opponent."""
        return not self.corrupt and not self.doomed

    @property
    def weights(self) -> WeightsRef:
        """Reference to play with."""
        return WeightsRef(digest=self.weights_digest, key=self.key)


class GenerationRow(Row, frozen=True, kw_only=True):
    """Generation of a policy, for lineage, replay and model-based exploring.

    An old row to which nothing refers is removed (`populations.controller.result_merging`); the
    event ``generation_rows_removed`` then has its contents.

    Attributes:
        entrant: Policy and generation, ``player/p003#2``.
        policy: Policy of the generation.
        population: Name of its population.
        generation: Number of the generation, from 0.
        cause: Event that began it; ``repair``: unknown, because the journal was lost.
        parent: Entrant (policy and generation) that the weights came from, or the player of another
            run; None for fresh weights.
        parent_agent_steps: Parent's agent steps when its weights were copied; None without a parent
            in this run.
        hyperparameters: Hyperparameters in use; values with a schedule are those at the beginning.
        factors: Factors by which PBT has multiplied hyperparameters that follow a schedule.
        agent_steps_begin: Policy's agent steps when it began.
        agent_steps_end: Policy's agent steps when it ended; None while it lasts.
        rating_begin: Elo of the weights that it began with, or of their nearest rated ancestor;
            None if none was rated. After its end, taken from the same fit as `rating_end`.
        rating_end: Elo of the newest rated weights when it ended; None while it lasts, or unrated.
        gain_deviation: Standard deviation of ``rating_end - rating_begin``, Elo; None where the
            gain is unknown: the two ratings are of different fits, or of the same weights.
        gain_agent_steps: Agent steps between the weights of ``rating_begin`` and those of
            ``rating_end``; None where unknown.
        line_begin: Number of the policy's generation at whose beginning its weights were last
            replaced; later generations changed only hyperparameters.
        copies: Number of times the policy had copied another's weights, a copy at the beginning of
            this generation included.
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
    # These two sum up earlier generations, whose rows may be removed.
    line_begin: int = 0
    copies: int = 0


class AssignmentRow(Row, frozen=True, kw_only=True):
    """Unit of a learner's work.

    Attributes:
        assignment_id: Assignment's id.
        attempt: Number of times it was sent to a learner; 0: not yet.
        kind: Kind of the message.
        status: ``queued`` until it ends; which learner carries it out is not durable.
        message: Message as last sent (attempt included).
        learner: Learner that finished it or failed.
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
    # The message has everything that the work depends on, so a repeated assignment gets the same
    # seed and inputs.
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
    """Committed tally: results of matches. `RecordRow` and `PairRow` have the sums of all tallies.

    It has no time: the event ``evaluation_assigned`` has the time of sending its assignment, and
    an `ArchiveRow` the run's time at the end of a range of tallies.

    Attributes:
        sequence: Order of commit, from 1 without gaps.
        assignment_id: Assignment whose matches it counts.
        kind: ``train`` or ``evaluate``; only evaluation changes ratings.
        tally: Results.
    """

    # Numbers have no gaps, so the last one is also the number of tallies.
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
        deviations: Standard deviations in Elo, one per entrant. Differences of two ratings have
            smaller ones, because entrants share errors: see `populations.league.ratings.Ratings`.
        cyclicity: Share of the results of strong players that no rating can express; 0 where
            unknown.
        num_tallies: Sequence of the last evaluation tally that the fit covers.
        child_deviation: Elo by which new weights deviate from the rating of their parents.
        pair_deviation: Elo by which pairs deviate from their ratings; part of the intervals.
        misfit: Standard deviations by which the results deviate from the fit beyond chance.
        anchor_deviation: Elo by which results against ``bot:random`` are off the ratings.
        anchor_errors: ``anchor_deviation`` for each entrant, from its own matches against the
            anchor; empty: zeros. It is part of the intervals and not of ``deviations``, because it
            does not change the order of players.
        rank_lows: Best rank that each entrant may have among the players of its time, 95%; the best
            is 1; empty if not recorded. See `populations.ratings.ranks.rank_intervals`.
        rank_highs: Worst rank that each entrant may have, as for ``rank_lows``.
        advantages: Elo that one seat is worth against another, row by row of the table; empty if
            not recorded.
        optimism: Elo by which the best entrant is rated too high, because the maximum of noisy
            ratings is biased upwards.
        best: Weights of each policy's best retained checkpoint: the one with the highest lower end
            of its 95% interval in this fit. Policies without a checkpoint are left out.
        best_ratings: Ratings in Elo of the weights in ``best``.
        best_deviations: Standard deviations in Elo of the ratings in ``best_ratings``.
        former_best: Weights in ``best`` of the previous fit, which this fit has rated again.
        num_records: Number of entrants with evaluation matches when the fit began.
        open: Entrants whose rating has no upper bound, because no other entrant has taken a point
            from them (`populations.ratings.ranks`).
        champion: Weights of the population's champion; None: there is none, or it was not
            recorded.
        champion_agent_steps: Agent steps of the run when it became champion.
        champion_player: Player named in the last event ``champion``; None: there was no such event.
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
    # With these, a fit that is repeated after a resume has the same entrants as the first one.
    former_best: tuple[Entrant, ...] = ()
    # Records are in order of first evaluation, so records beyond this number are in no fit yet.
    num_records: int = 0
    open: tuple[Entrant, ...] = ()
    champion: Entrant | None = None
    champion_agent_steps: int = 0
    champion_player: PlayerId | None = None


class AlertRow(Row, frozen=True, kw_only=True):
    """Active alert, with the data of the event ``alert`` that raised it.

    Attributes:
        name: Kind of the alert.
        subject: Population, sink or hook that it is about; empty: the run.
        what: Trouble in words, with numbers.
        advice: Remedy.
        source: Policy or other source of the measurements.
    """

    name: str
    subject: str
    what: str
    advice: str
    source: str


class EventRow(Row, frozen=True, kw_only=True):
    """Explanation of a decision, for readers only: a resume never replays events.

    Attributes:
        sequence: Order of commit, from 1 without gaps.
        time: Time in UTC, ISO 8601, for people.
        kind: Past-tense word (``exploited``, ``ghost_created``).
        subject: Policy, ghost, learner or assignment that it is about; empty for the run.
        data: Numbers behind the decision.
    """

    sequence: int
    # The time is only for people: no decision depends on the calendar.
    time: str
    kind: str
    subject: str
    data: Mapping[str, Json]


class GameRow(Game, Row, frozen=True, kw_only=True):
    """Evaluation game that is retained, so that it can be replayed.

    Attributes:
        game: Id of the game: assignment, dot, number in the assignment's report.
        time: Time of its commit in UTC, ISO 8601, for people.
        players: Player in each of its seats, by its id at that time.
        entrants: The same players by their weights; players from outside the run by their ids.
        keys: Directories of these weights when they played; empty for bots.
        holds: Whether these directories are retained because of this game.
    """

    game: str
    time: str
    # In a person's game the players have names from the command line, so any text is valid.
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
        row: The row as it was before its removal.
    """

    row: Removable


class ArchiveRow(Row, frozen=True, kw_only=True):
    """Range of the run's details: of tallies, ended assignments and events.

    A range spans a twenty-fourth of ``journal.keep_detail_hours``; without that key there are no
    ranges. Each begins where the previous one ends. Once a range has a file, its rows are read
    from that file: their copies in the journal are no longer read, and are removed step by step.

    Attributes:
        number: Number of the range, from 1 without gaps.
        elapsed_s: The run's time at its end.
        tallies: Sequence of its last tally.
        evaluated: Sequence of the last evaluation tally before its end.
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
