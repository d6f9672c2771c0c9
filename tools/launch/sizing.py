"""Pace of an environment, for a configuration that leaves sizes to Arena."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from ..terminal.output import duration, log_console

if TYPE_CHECKING:
    from arena.envs.inspect import Inspected, Play
    from populations.config.run_config import RunConfig
    from populations.config.run_file import RunFile

# Source: Connect Four on two cores (`benchmarks/2026-11-27-2-cores-shares.md`). Half of the steps
# cost some 120 Elo, so two policies per learner cost that much, and each doubling as much again.
# From three minutes to six a lone policy gains about as much; longer times were not measured.
MOST_PER_LEARNER, LEAST_TRAINING_S = 2, 180.0
"""Policies that share a learner evenly without a remark, and seconds of a core for each of them
from which on more do."""

SEARCH_SHARE = 0.2
"""Share of a run in which policies that soon leave may still train (``pbt.share: halving``)."""


def inspect_for(config: RunConfig, *, launch_directory: str) -> Inspected:
    """Find the facts about a configuration's environment, and its pace if sizes follow from it.

    Raises:
        ConfigError: If there is no such environment.
        EnvironmentFault: If it cannot even be reset.
    """
    from arena.envs.inspect import inspect_and_play, inspect_lessons
    from populations.config.resume import named_code
    from populations.config.sizing import needs_pace

    is_needed = needs_pace(config)
    request = config.inspection(launch_directory=launch_directory)
    screen = log_console()
    watching = screen.status(f"playing {config.environment.id} at random, to choose sizes")
    # The progress line is shown only if the environment is played, which takes seconds.
    with watching if is_needed and screen.is_terminal else nullcontext():
        # Deterministic runs must not depend on this machine's speed.
        amount: Play = "counted" if config.deterministic else "timed"
        found = inspect_and_play(
            request, play=amount if is_needed else None, code=named_code(config)
        )
    spec = inspect_lessons(found.spec, config.lessons, request=request)
    return replace(found, spec=spec)


def sizing_line(asked: RunConfig, run_file: RunFile, *, why: str) -> str:
    """Say which sizes were chosen, and what for; empty: none.

    Args:
        asked: Configuration as loaded.
        run_file: Run file of the new run.
        why: Reason why the environment could not be played; empty: it was, or need not be.
    """
    chosen, measured = run_file.config, run_file.environment_measured
    reason = why if measured is None else measured.reason
    sizes = []
    if asked.environment.num_envs == "auto":
        sizes.append(f"num_envs {chosen.environment.num_envs}")
    if asked.assignment.episodes is None and chosen.assignment.episodes is not None:
        sizes.append(f"assignment.episodes {chosen.assignment.episodes}")
    return f"{', '.join(sizes)}: {reason}" if sizes else ""


def crowd_line(config: RunConfig) -> str:
    """Say that a population has more policies than its learners can carry in the time of the run;
    empty: none has.

    Args:
        config: Resolved.
    """
    # Without a limit of time each policy gets its steps, however long that takes.
    if config.stop.duration_s is not None:
        for name in config.learning:
            if line := _crowd_line(config, name, duration_s=config.stop.duration_s):
                return f"populations.{name}.size: {line}"
    return ""


def _crowd_line(config: RunConfig, population: str, *, duration_s: float) -> str:
    from populations.config.sizing import num_sharing

    num_policies, learners = config.populations[population].num_policies, config.learners
    own = learners[population] if isinstance(learners, dict) else learners or 0
    num_learners = max(own + config.remote_learners, 1) / num_sharing(config)
    crowd = f"{num_policies} policies share {num_learners:g} learner"
    crowd += "" if num_learners == 1 else "s"
    if config.pbt_of(population).share == "halving":
        # Each policy needs at least one assignment before the first decision.
        once_s = num_policies * config.assignment.target_s / num_learners
        if once_s <= SEARCH_SHARE * duration_s:
            return ""
        return (
            f"{crowd}, so all have trained once after {duration(once_s)} of "
            f"{duration(duration_s)} (assignment.target_s), and only then the worse half leaves "
            "(pbt.share: halving): with fewer policies those that stay train more"
        )
    cores = 1 if config.learner_cores == "auto" else config.learner_cores
    each_s = duration_s * num_learners * cores / num_policies
    if num_policies <= MOST_PER_LEARNER * num_learners or each_s >= LEAST_TRAINING_S:
        return ""
    return (
        f"{crowd}, so each trains for {duration(each_s)} of {duration(duration_s)}: fewer "
        "policies, or pbt.share=halving, train more each"
    )


def repeats_line(run_file: RunFile) -> str:
    """Say that greedy matches repeat one game; empty: they do not."""
    matches = run_file.config.evaluation
    if not matches.greedy or run_file.spec.chance or matches.random_openings.share:
        return ""
    return (
        "evaluation.greedy: true in a game without chance: two policies have one game in each "
        "seating, which counts once, so ratings rest on few games; let matches begin with random "
        "decisions (evaluation.random_openings.share=1), or leave evaluation.greedy false"
    )


def stakes_line(run_file: RunFile) -> str:
    """Say what a margin was measured to be, or that there could be one; empty: nothing to say."""
    from arena.config import MarginOutcome

    config, measured = run_file.config, run_file.environment_measured
    outcome = config.environment.outcome
    if measured is None:
        return ""
    if isinstance(outcome, MarginOutcome):
        return f"environment.outcome: a margin of {outcome.margin:g} is a whole match " + (
            "(the game's range)" if measured.is_margin_known else "(as random play shows)"
        )
    # Margins are suggested where they carry more information than wins.
    if outcome == "return" and len(config.sides) > 1 and measured.has_stakes:
        return (
            "returns are not only -1, 0 and 1 "
            f"(margins up to {measured.largest_margin:g}), and outcome: return rates who wins, not "
            "how much; environment.outcome='{margin: auto}' rates the margin"
        )
    return ""
