"""Simulation of a league from its configuration, which compares ratings with planted skills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from arena.types import Digest, Entrant, PolicyId
from populations.config.run_config import RunConfig
from populations.controller.phases import agent_steps_left
from populations.gc_pause import collector_paused
from populations.records.aggregates import Row
from populations.records.rows import CheckpointRow, EventRow, TallyRow
from populations.simulation.environment import simulated_run
from populations.simulation.planted import PlantedModel
from populations.simulation.world import World, make_world, start

FloatArray = npt.NDArray[np.float64]

NUM_MARKS = 100
"""Number of points in the curve of the best skill."""

DECISIONS = frozenset(
    {"start_assigned", "train_assigned", "evaluation_assigned"}
    | {"exploited", "explored", "kept", "promoted", "retired"}
)
"""Kinds of events that count as decisions of the controller."""

Progress = Callable[[float], None]
"""Callback that gets the completed share of training, in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of a simulated league.

    Attributes:
        num_policies: Number of policies of all populations.
        num_matches: Number of evaluation matches.
        num_final_matches: Number of evaluation matches with a final policy's last weights.
        num_round_robin_matches: Number of matches if each ordered pair of a population's final
            policies played once, for comparison.
        num_training_matches: Number of training matches, which do not change ratings.
        num_ghosts: Number of ghosts.
        num_retired: Number of retired policies (``pbt.share``: halving).
        spearman: Rank correlation of the final policies' ratings and planted skills, the mean over
            populations; None if fewer than two policies are rated.
        exploits: For each copy, Elo by which the donor was rated better (None: not recorded), and
            by which its planted skill was better.
        best_skill: Curve of pairs: agent steps of the run, best planted skill of a policy then.
        mean_skill: Mean skill of the final policies.
        skill_deviation: Standard deviation of the final policies' skills.
        simulated_s: Duration of the run in simulated time.
        num_decisions: Number of assignments and decisions of PBT.
        decisions_per_s: Decisions per second of the controller's own time, without learners and
            rating fits; 0 without a clock.
    """

    num_policies: int
    num_matches: int
    num_final_matches: int
    num_round_robin_matches: int
    num_training_matches: int
    num_ghosts: int
    num_retired: int
    spearman: float | None
    exploits: tuple[tuple[float | None, float], ...]
    best_skill: tuple[tuple[int, float], ...]
    mean_skill: float
    skill_deviation: float
    simulated_s: float
    num_decisions: int
    decisions_per_s: float

    @property
    def num_wrong_exploits(self) -> int:
        """Number of copies of a donor whose planted skill was lower."""
        return sum(true_gap < 0.0 for _, true_gap in self.exploits)


@dataclass(slots=True)
class Observer:
    """Observer of a world's committed rows that compares them with the planted truth.

    Attributes:
        world: Observed world.
        mark_agent_steps: Agent steps of the run between two points of the curve.
        current: Weights digest that each policy continues from.
        exploits: Copies so far, as in `Outcome`.
        best_skill: Curve of the best skill so far, as in `Outcome`.
        matches: Number of evaluation matches so far, by entrants.
        num_decisions: Number of decisions so far.
    """

    world: World
    mark_agent_steps: int
    current: dict[str, Digest] = field(default_factory=dict)
    exploits: list[tuple[float | None, float]] = field(default_factory=list)
    best_skill: list[tuple[int, float]] = field(default_factory=list)
    matches: Counter[tuple[Entrant, ...]] = field(default_factory=Counter)
    num_decisions: int = 0
    _next_mark: int = 0

    def watch(self, rows: Sequence[Row]) -> None:
        """Observe the rows of a transaction."""
        for row in rows:
            match row:
                # Only a new checkpoint is present; retention puts its row again with other states.
                case CheckpointRow(state="present"):
                    self.current[row.policy] = row.weights_digest
                case TallyRow(kind="evaluate"):
                    self.matches[row.tally.entrants] += row.tally.matches
                case EventRow():
                    self.num_decisions += row.kind in DECISIONS
                    if row.kind == "exploited":
                        self._note_exploit(row)
        # Before its first checkpoint a policy has no weights, and so no skill.
        if self.current and self.world.state.tables.run.agent_steps >= self._next_mark:
            self.note_best()

    def skill(self, policy: str) -> float:
        """Return the planted skill of a policy."""
        return self.world.learner.weights[self.current[policy]].skill

    def note_best(self) -> None:
        """Add a point to the curve of the best skill."""
        agent_steps = self.world.state.tables.run.agent_steps
        self.best_skill.append((agent_steps, max(self.skill(policy) for policy in self.current)))
        self._next_mark = agent_steps + self.mark_agent_steps

    def _note_exploit(self, row: EventRow) -> None:
        donor = Digest(str(row.data["weights"]))
        gap = row.data.get("gap")
        true_gap = self.world.learner.weights[donor].skill - self.skill(row.subject)
        known = float(gap) if isinstance(gap, (int, float)) else None
        self.exploits.append((known, true_gap))
        # The copy is recorded last, because the gap is to the weights that it replaces.
        self.current[row.subject] = donor


@collector_paused()
def simulate(
    config: RunConfig,
    *,
    model: PlantedModel | None = None,
    agent_steps_per_s: float = 100_000.0,
    matches_per_s: float = 1000.0,
    has_finals: bool = True,
    clock: Callable[[], float] = lambda: 0.0,
    progress: Progress = lambda share: None,
) -> Outcome:
    """Run a league of simulated learners to its end.

    Args:
        config: Configuration made by `populations.simulation.environment.simulated_config`.
        model: Planted truth. None: `default_model`.
        agent_steps_per_s: Simulated speed of training of a learner.
        matches_per_s: Simulated speed of evaluation of a learner.
        has_finals: Whether the final matches are played; if not, the run ends with training.
        clock: Clock in seconds, only used for ``decisions_per_s``.
        progress: Callback that gets the progress from time to time.
    """
    world = make_world(
        simulated_run(config),
        model or default_model(config),
        agent_steps_per_s=agent_steps_per_s,
        matches_per_s=matches_per_s,
    )
    world.clock = clock
    state = world.state
    # The smallest goal is used, as policies may retire early (``pbt.share``).
    every = max(
        min(goal for goal, _ in agent_steps_left(state.settings.config, state.tables, state.crew))
        // NUM_MARKS,
        1,
    )
    observer = Observer(world, every)
    world.watch = observer.watch
    start(world)
    told_at, share = 0, 0.0
    while world.advance():
        is_trained = state.phase.name != "training"
        # The share is computed seldom, because it reads all policies.
        if state.tables.run.agent_steps >= told_at + every or (is_trained and share < 1.0):
            told_at = state.tables.run.agent_steps
            # If the policy that was ahead retires, the share of the others is lower: never go back.
            share = max(
                share,
                *(
                    1.0 - n / max(goal, 1)
                    for goal, n in agent_steps_left(state.settings.config, state.tables, state.crew)
                ),
            )
            progress(min(share, 1.0))
        # In this phase training is over, and only final matches remain.
        if state.phase.name == "evaluating" and not has_finals:
            break
    return _outcome(world, observer)


def default_model(config: RunConfig) -> PlantedModel:
    """Return a planted truth in which a policy has time to come close to its ceiling."""
    num_policies = sum(population.num_policies for population in config.populations.values())
    # A policy trains 5 T steps: 1 - e^-5 = 99% of the way to its ceiling at full speed.
    return PlantedModel(learning_agent_steps=total_agent_steps(config) / num_policies / 5.0)


def total_agent_steps(config: RunConfig) -> int:
    """Return the agent steps after which a run ends."""
    stop = config.stop
    num_policies = sum(population.num_policies for population in config.populations.values())
    limits = [] if stop.agent_steps is None else [stop.agent_steps]
    if stop.agent_steps_per_policy is not None:
        limits.append(stop.agent_steps_per_policy * num_policies)
    return min(limits)


def _outcome(world: World, observer: Observer) -> Outcome:
    # The curve must end at the end of the run, not at the last mark.
    observer.note_best()
    tables = world.state.tables
    active = [row for row in tables.policies.values() if row.state == "active"]
    by_population: dict[str, list[str]] = {}
    for row in active:
        by_population.setdefault(row.population, []).append(row.policy)
    skills = np.array([observer.skill(row.policy) for row in active])
    correlations = [
        correlation
        for population, policies in by_population.items()
        if (correlation := _correlation(world, observer, population, policies)) is not None
    ]
    finals = {Entrant(observer.current[row.policy]) for row in active}
    num_matches = observer.matches.total()
    return Outcome(
        num_policies=len(tables.policies),
        num_matches=num_matches,
        num_final_matches=sum(
            matches
            for entrants, matches in observer.matches.items()
            if not finals.isdisjoint(entrants)
        ),
        # There are n (n - 1) ordered pairs of n policies.
        num_round_robin_matches=sum(len(p) * (len(p) - 1) for p in by_population.values()),
        num_training_matches=tables.run.matches - num_matches,
        num_ghosts=len(tables.ghosts),
        num_retired=len(tables.policies.by("inactive").get("retired", ())),
        spearman=float(np.mean(correlations)) if correlations else None,
        exploits=tuple(observer.exploits),
        best_skill=tuple(observer.best_skill),
        mean_skill=float(skills.mean()),
        skill_deviation=float(skills.std()),
        simulated_s=world.now_s,
        num_decisions=observer.num_decisions,
        decisions_per_s=(
            observer.num_decisions / world.handling_s if world.handling_s > 0.0 else 0.0
        ),
    )


def _correlation(
    world: World, observer: Observer, population: str, policies: Sequence[str]
) -> float | None:
    """Return the rank correlation of ratings and planted skills of the rated policies."""
    tables = world.state.tables
    row = tables.ratings.get(population)
    ratings = dict(zip(row.entrants, row.ratings, strict=True)) if row is not None else {}
    rated = []
    for policy in policies:
        # A policy's newest weights may be unrated, so the last evaluated weights give the rating.
        standing = world.state.league.standing_weights(tables.policies[PolicyId(policy)])
        if standing is not None and Entrant(standing) in ratings:
            rated.append((ratings[Entrant(standing)], observer.skill(policy)))
    return spearman(*np.array(rated).T) if len(rated) > 1 else None


def spearman(first: FloatArray, second: FloatArray) -> float | None:
    """Return Spearman's rank correlation, in which equal values share their mean rank.

    None: all values of an argument are equal.

    Args:
        first: Values, shape [N].
        second: Values, shape [N].
    """
    ranks = [_ranks(first), _ranks(second)]
    # Pearson's correlation of the ranks: rho = cov(R_1, R_2) / (sd(R_1) sd(R_2)).
    deviations = [rank - rank.mean() for rank in ranks]
    norm = float(np.sqrt((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    return float((deviations[0] * deviations[1]).sum()) / norm if norm > 0.0 else None


def _ranks(values: FloatArray) -> FloatArray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    # c equal values have the ranks last - c + 1 to last: their mean is last - (c - 1) / 2.
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[inverse], dtype=np.float64)
