"""Goals of ``stop``: which policies have reached a rating, a result or a success rate.

Goals and the lessons of a curriculum need measurements of each policy. They cover the newest
weights of its present generation, because a mean over all of its past would lag behind. They are
computed from the journal's tallies and assignments, which a resumed controller reads again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from msgspec import Struct, field

from arena.matches.comparisons import counted, is_repeating
from arena.matches.pair_scores import num_scored, points
from arena.types import RANDOM_BOT, Digest, Entrant, PolicyId, Tally, population_of
from arena.wire.messages import Train
from populations.config.run_config import RunConfig
from populations.config.sections import StopEvaluation
from populations.controller.indexes.trainee_metrics import (
    EPISODES,
    MIN_EPISODES,
    NewestEpisodes,
    metrics_of_trainee,
)
from populations.controller.state.fits import Fits
from populations.ratings.any_time import any_time_width, squared_width_of_windows
from populations.ratings.model import Z95
from populations.records.rows import AssignmentRow, CheckpointRow, PolicyRow, TallyRow
from populations.records.tables import Tables


def have_reached(config: RunConfig, tables: Tables, reached: Callable[[PolicyRow], bool]) -> bool:
    """Return whether one policy, or all, of every population that learns have reached a goal.

    ``stop.members`` says whether one is enough. A quarantined policy without a pending copy counts
    only for ``any``.
    """
    everybody = config.stop.members == "all"
    populations: dict[str, bool] = {}
    for row in tables.policies.values():
        if everybody:
            if row.state == "active" or row.pending:
                if not reached(row):
                    return False
                populations[row.population] = True
        elif not populations.get(row.population) and reached(row):
            populations[row.population] = True
    return set(populations) == set(config.learning)


def members_said(config: RunConfig) -> str:
    """Return the beginning of a sentence that says which policies have reached the stop goal."""
    if config.stop.members == "all":
        return "every active policy is one"
    return "every population has a policy"


def bound_at_any_time(fits: Fits, policy: PolicyRow) -> float | None:
    """Return a lower bound of a policy's rating, in Elo; None if the policy is unrated.

    The bound holds at all times together, and for the policy that happens to be rated best.
    """
    digest = fits.league.standing_weights(policy)
    ratings = fits.ratings(policy.population)
    interval = ratings.interval(digest)
    if interval is None or ratings.row is None:
        return None
    rating, low, _ = interval
    width = any_time_width((rating - low) / Z95, scale=ratings.row.child_deviation)
    # One of many fits is too high by chance (width), as is the best of many policies (optimism).
    # The champion's rating has been reduced by the optimism already.
    luck = 0.0 if str(digest) == ratings.row.champion else ratings.row.optimism
    return rating - luck - width


def evaluation_bound(
    config: RunConfig, tables: Tables, goals: StopGoals, policy: PolicyRow
) -> float | None:
    """Return a lower bound of the score or mean return of ``stop.evaluation``, at all times.

    None without a goal or matches. A long window of newest matches has little noise, a short one
    leaves out losses of replaced weights; the best of several windows counts. If one policy is
    enough, the best of them is tested. The bounds are lowered for this number of trials.
    """
    goal, met = config.stop.evaluation, goals.met(policy)
    if goal is None or met is None:
        return None
    # The bound is cached, because every event needs the bounds of all policies.
    if met.bound is None:
        met.bound = _bound(config, tables, met, goal)
    return met.bound


def _bound(
    config: RunConfig, tables: Tables, met: GenerationMatches, goal: StopEvaluation
) -> float | None:
    is_any = config.stop.members == "any"
    chances = len(WINDOW_PARTS) * (len(tables.policies) if is_any else 1)
    z_squared = squared_width_of_windows(met.matches / MIN_RETURNS, chances=chances)
    bound_of, longest = return_bound, float(MIN_WINDOW)
    if goal.score is not None:
        bound_of, longest = score_bound, window_of_score(goal.score, z_squared=z_squared)
    bounds = (bound_of(met.sum(part * longest), z_squared=z_squared) for part in WINDOW_PARTS)
    return max((bound for bound in bounds if bound is not None), default=None)


def has_reached_evaluation(
    config: RunConfig, tables: Tables, goals: StopGoals, policy: PolicyRow
) -> bool:
    """Return whether a policy has reached ``stop.evaluation``."""
    goal = config.stop.evaluation
    if goal is None:
        return False
    bound = evaluation_bound(config, tables, goals, policy)
    return bound is not None and bound >= goal.value


def seekers_of_evaluation(config: RunConfig, tables: Tables, goals: StopGoals) -> set[PolicyId]:
    """Return the active policies that ``stop.evaluation`` needs and that have not reached it.

    If one policy of a population is enough and has reached it, the others are not needed.
    """
    rows = tables.policies.values()
    reached = [row for row in rows if has_reached_evaluation(config, tables, goals, row)]
    policies = {row.policy for row in reached}
    populations = {row.population for row in reached if config.stop.members == "any"}
    return {
        row.policy
        for row in rows
        if row.state == "active"
        and row.policy not in policies
        and row.population not in populations
    }


def has_succeeded(config: RunConfig, tables: Tables, goals: StopGoals, policy: PolicyRow) -> bool:
    """Return whether a policy has reached ``stop.success_rate``."""
    goal, lesson = config.stop.success_rate, tables.run.lesson
    # Success counts in the last lesson only, because an earlier one has another environment.
    if goal is None or lesson < len(config.environment.curriculum) - 1:
        return False
    found = goals.success_rate(policy, lesson=lesson)
    return found is not None and found >= goal


def goal_reached(config: RunConfig, tables: Tables, goals: StopGoals) -> str | None:
    """Return the reached goal among those of matches or episodes, in words; None: none is."""
    stop, said = config.stop, members_said(config)
    has_result = partial(has_reached_evaluation, config, tables, goals)
    if (goal := stop.evaluation) is not None and have_reached(config, tables, has_result):
        return (
            f"stop.evaluation: {said} whose {goal.kind} against {goal.player} is "
            f"{goal.value:g} or more, by a lower bound that holds at all times"
        )
    succeeds = partial(has_succeeded, config, tables, goals)
    if stop.success_rate is not None and have_reached(config, tables, succeeds):
        return (
            f"stop.success_rate: {said} that succeeds in {stop.success_rate:g} of "
            f"its newest episodes ({MIN_EPISODES} or more) or in a larger share"
            + ("" if (least := stop.success_return) is None else f": a return of {least:g} or more")
        )
    return None


def unreported(config: RunConfig, goals: StopGoals) -> str | None:
    """Return why ``stop.success_rate`` can never hold, in words; None: it can."""
    if config.stop.success_rate is None:
        return None
    for population, episodes in goals.unreported.items():
        if episodes >= MIN_EPISODES:
            return (
                f"stop.success_rate is {config.stop.success_rate:g}, but in {episodes:.0f} "
                f"ended episodes of {population} the environment has not put success (true, false "
                'or a number) into infos[agent]["success"] at an episode\'s end: let it, or set '
                "stop.success_return to the return of a success, or stop.success_rate to null"
            )
    return None


MIN_WINDOW = 400
"""Least size, in newest matches, of the longest window over which a score or return is taken."""

WINDOW_PARTS = (1.0, 0.5, 0.25)
"""Windows of newest matches, as parts of the longest. A quarter of the window of a score is enough
for a policy that wins all of its matches (`window_of_score`)."""

MAX_WINDOW = 100_000
"""Bound on the retained matches of a generation, because a league may play for months."""

MIN_RETURNS = 30
"""Matches from which on a mean return has an interval: with fewer its deviation is too unsure."""

SUCCESS = "environment/success_mean"
RETURN = "episode/return_mean"


class Sums(NamedTuple):
    """Sums over matches: points in [0, 1] for each match, and undiscounted returns."""

    matches: float = 0.0
    points: float = 0.0
    return_sum: float = 0.0
    return_squares: float = 0.0

    def plus(self, other: Sums) -> Sums:
        """Return the sums over the matches of both."""
        return Sums(*(one + more for one, more in zip(self, other, strict=True)))


class GenerationMatches(Struct):
    """Matches of one generation of a policy against the player of ``stop.evaluation``.

    Attributes:
        generation: Number of the generation.
        matches: Number of all of its matches.
        kept: Number of matches in ``newest``.
        newest: Sums by weights, in order of first evaluation, which is that of training.
        bound: Cached bound by these matches; None: not computed since the last match.
    """

    generation: int
    matches: float = 0.0
    kept: float = 0.0
    newest: dict[Digest, Sums] = {}
    bound: float | None = None

    def add(self, digest: Digest, sums: Sums) -> None:
        """Add matches of some weights, and remove weights that are older than any window."""
        self.bound = None
        self.newest[digest] = self.newest.get(digest, Sums()).plus(sums)
        self.matches += sums.matches
        self.kept += sums.matches
        while self.kept - self.newest[oldest := next(iter(self.newest))].matches >= MAX_WINDOW:
            self.kept -= self.newest.pop(oldest).matches

    def sum(self, window: float) -> Sums:
        """Return the sums over the newest weights that have ``window`` matches together."""
        total = Sums()
        for sums in reversed(self.newest.values()):
            if total.matches >= window:
                break
            total = total.plus(sums)
        return total


class StopGoals(Struct):
    """Measurements of all policies for goals of ``stop`` and lessons. Owned by one thread.

    Attributes:
        player: Player of ``stop.evaluation``; None: matches are not measured.
        repeats_games: Whether players that act without randomness repeat one game in each seating;
            that game counts once.
        unreported: Ended training episodes by population, while none has reported its success.
    """

    player: str | None = None
    repeats_games: bool = False
    unreported: dict[str, float] = {}
    _met: dict[PolicyId, GenerationMatches] = {}
    _successes: NewestEpisodes = field(default_factory=partial(NewestEpisodes, SUCCESS))
    _returns: NewestEpisodes = field(default_factory=partial(NewestEpisodes, RETURN))
    _reported: set[str] = set()
    _repeated: set[tuple[Entrant, ...]] = set()
    """Seatings whose one repeated game has counted already."""

    @classmethod
    def fold(
        cls,
        player: str | None,
        *,
        tallies: Iterable[TallyRow],
        assignments: Iterable[AssignmentRow],
        origins: Mapping[Digest, CheckpointRow],
        repeats_games: bool = False,
    ) -> StopGoals:
        """Return the measurements that follow from the rows of a journal."""
        goals = cls(player, repeats_games=repeats_games)
        for tally in tallies:
            goals.add_tally(tally, origins)
        for assignment in assignments:
            goals.add_assignment(assignment)
        return goals

    def add_tally(self, row: TallyRow, origins: Mapping[Digest, CheckpointRow]) -> None:
        """Add a tally, which must be passed only once.

        Args:
            row: The tally.
            origins: By digest of weights, the checkpoint that first had them.
        """
        if self.player is None or row.kind != "evaluate" or self.player not in row.tally.entrants:
            return
        share = self._share(row.tally)
        if not share:
            return
        for entrant in dict.fromkeys(row.tally.entrants):
            origin = origins.get(Digest(entrant))
            if origin is not None:
                met = self._met.get(origin.policy)
                if met is None or origin.generation > met.generation:
                    met = self._met[origin.policy] = GenerationMatches(origin.generation)
                if origin.generation == met.generation:
                    new = _sums(row.tally, entrant=entrant, other=self.player)
                    met.add(Digest(entrant), Sums(*(share * value for value in new)))

    def _share(self, tally: Tally) -> float:
        """Return the share of a tally's games that count; 0: its one game has counted already."""
        if not self.repeats_games:
            return 1.0
        repeating = set(tally.entrants) - {RANDOM_BOT}
        if tally.distinct == 1 and is_repeating(tally, repeating):
            if tally.entrants in self._repeated:
                return 0.0
            self._repeated.add(tally.entrants)
        return counted(tally, repeating) / max(tally.matches, 1)

    def add_assignment(self, row: AssignmentRow) -> None:
        """Add a training assignment if it is finished; each must be passed only once."""
        if row.status != "finished" or not isinstance(row.message, Train) or not row.agent_steps:
            return
        for trainee in row.message.trainees:
            metrics = metrics_of_trainee(row.metrics, row.message.trainees, of=trainee.policy)
            self._returns.add(row.message, trainee, metrics)
            self._successes.add(row.message, trainee, metrics)
            self._note_report(population_of(trainee.policy), metrics)

    def _note_report(self, population: str, metrics: Mapping[str, float]) -> None:
        episodes = metrics.get(EPISODES, 0.0)
        if SUCCESS in metrics:
            self._reported.add(population)
            self.unreported.pop(population, None)
        elif episodes and population not in self._reported:
            self.unreported[population] = self.unreported.get(population, 0.0) + episodes

    def met(self, policy: PolicyRow) -> GenerationMatches | None:
        """Return a policy's matches of its present generation against the player; None: none."""
        met = self._met.get(policy.policy)
        return met if met is not None and met.generation == policy.generation else None

    def success_rate(self, policy: PolicyRow, *, lesson: int) -> float | None:
        """Return the success rate of a policy's newest episodes; None while there are too few."""
        return self._successes.mean(policy.policy, generation=policy.generation, lesson=lesson)

    def mean_return(self, policy: PolicyRow, *, lesson: int) -> float | None:
        """Return the mean return of a policy's newest episodes; None while there are too few."""
        return self._returns.mean(policy.policy, generation=policy.generation, lesson=lesson)


def _sums(tally: Tally, *, entrant: str, other: str) -> Sums:
    """Return an entrant's results against another, over all pairs of their seats."""
    matches = won = 0.0
    for pair in tally.pairs:
        seats = tally.entrants[pair.first], tally.entrants[pair.second]
        if seats == (entrant, other):
            matches += num_scored(pair)
            won += points(pair)
        elif seats == (other, entrant):
            matches += num_scored(pair)
            won += num_scored(pair) - points(pair)
    if not matches:
        return Sums()
    own = [seat for seat, name in enumerate(tally.entrants) if name == entrant]
    # A match with several pairs of these seats counts as one match.
    share = tally.matches / matches
    return Sums(
        matches=float(tally.matches),
        points=won * share,
        return_sum=sum(tally.return_sum[seat] for seat in own) / len(own),
        return_squares=sum(tally.return_sum_of_squares[seat] for seat in own) / len(own),
    )


def window_of_score(score: float, *, z_squared: float) -> float:
    """Return the longest window of a score, in matches: long enough for its bound to be reached."""
    # The bound of n wins in n matches is n / (n + z^2), which is the score at n = z^2 s / (1 - s).
    return min(max(float(MIN_WINDOW), 4.0 * z_squared * score / (1.0 - score)), float(MAX_WINDOW))


def score_bound(sums: Sums, *, z_squared: float) -> float | None:
    """Return the lower end of Wilson's interval of a score; None without a match.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference" (Journal
    of the American Statistical Association, 1927).
    """
    n = sums.matches
    if n <= 0.0:
        return None
    p = sums.points / n
    # (p + z^2 / 2n - z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)
    root = math.sqrt(z_squared * (max(p * (1.0 - p), 0.0) / n + z_squared / (4.0 * n * n)))
    return (p + z_squared / (2.0 * n) - root) / (1.0 + z_squared / n)


def return_bound(sums: Sums, *, z_squared: float) -> float | None:
    """Return the lower end of a mean return's interval; None with too few matches."""
    n = sums.matches
    if n < MIN_RETURNS:
        return None
    mean = sums.return_sum / n
    # s^2 = (sum of squares - n mean^2) / (n - 1); the mean's deviation is s / sqrt(n).
    variance = max(sums.return_squares - n * mean * mean, 0.0) / (n - 1.0)
    return mean - math.sqrt(z_squared * variance / n)
