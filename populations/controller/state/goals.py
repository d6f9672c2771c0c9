"""Goals of ``stop``: which policies have reached a rating, a result or a success rate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from arena.types import PolicyId
from populations.config.run_config import RunConfig
from populations.config.sections import StopEvaluation
from populations.controller.indexes.stop_goals import (
    MIN_RETURNS,
    MIN_WINDOW,
    WINDOW_PARTS,
    GenerationMatches,
    StopGoals,
    return_bound,
    score_bound,
    window_of_score,
)
from populations.controller.indexes.trainee_metrics import MIN_EPISODES
from populations.controller.state.fits import Fits
from populations.ratings.any_time import any_time_width, squared_width_of_windows
from populations.ratings.model import Z95
from populations.records.rows import PolicyRow
from populations.records.tables import Tables


def have_reached(config: RunConfig, tables: Tables, reached: Callable[[PolicyRow], bool]) -> bool:
    """Return whether in every population that learns one policy has reached a goal, or all have.

    Which of the two is ``stop.members``. A policy in quarantine that waits for nothing counts for
    ``any`` alone.
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
    """Return who has reached a goal that ends the run, in words."""
    if config.stop.members == "all":
        return "every active policy is one"
    return "every population has a policy"


def bound_at_any_time(fits: Fits, policy: PolicyRow) -> float | None:
    """Return a lower bound of a rating that holds at all times, also of the best policy.

    None if the policy is unrated.
    """
    digest = fits.league.standing_weights(policy)
    ratings = fits.ratings(policy.population)
    interval = ratings.interval(digest)
    if interval is None or ratings.row is None:
        return None
    rating, low, _ = interval
    width = any_time_width((rating - low) / Z95, scale=ratings.row.child_deviation)
    # Of many fits one is too high by chance (width), and of many policies the best (optimism),
    # which the champion's rating is already less.
    luck = 0.0 if str(digest) == ratings.row.champion else ratings.row.optimism
    return rating - luck - width


def evaluation_bound(
    config: RunConfig, tables: Tables, goals: StopGoals, policy: PolicyRow
) -> float | None:
    """Return a lower bound of what the goal is about, at all times; None: no goal or matches.

    Of the newest matches the longest window has the least noise, and a short one leaves out early
    losses, of weights that newer ones have replaced. So the best of several counts. Of many
    policies the best is tested where one is enough. Each bound is lower for these chances.
    """
    goal, met = config.stop.evaluation, goals.met(policy)
    if goal is None or met is None:
        return None
    # Every event asks for the bounds of all policies.
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
    """Return the active policies for whose matches ``stop.evaluation`` waits.

    Where one of a population is enough, no other is waited for.
    """
    rows = tables.policies.values()
    reached = [row for row in rows if has_reached_evaluation(config, tables, goals, row)]
    # Who has reached it is not waited for, nor are others of its population if any one is enough.
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
    # In an earlier lesson success is only what that lesson asks for.
    if goal is None or lesson < len(config.environment.curriculum) - 1:
        return False
    found = goals.success_rate(policy, lesson=lesson)
    return found is not None and found >= goal


def goal_reached(config: RunConfig, tables: Tables, goals: StopGoals) -> str | None:
    """Return which of the goals that follow from matches or episodes is reached, in words."""
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
