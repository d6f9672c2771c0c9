"""Pace of an environment, for a configuration that leaves sizes to Arena."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from ..terminal.output import log_console

if TYPE_CHECKING:
    from arena.envs.inspect import Inspected, Play
    from populations.config.run_config import RunConfig
    from populations.config.run_file import RunFile


def inspect_for(config: RunConfig, *, launch_directory: str) -> tuple[RunConfig, Inspected]:
    """Find the facts about a configuration's environment, and its pace if sizes follow from it.

    Returns:
        The configuration, with careful sizes where they cannot be measured, and what was found.

    Raises:
        ConfigError: If there is no such environment, or a deterministic run cannot be measured.
        EnvironmentFault: If it cannot even be reset.
    """
    from dataclasses import replace

    from arena.envs.inspect import inspect_and_play, inspect_lessons
    from populations.config.resume.named_code import named_code
    from populations.config.sizing import needs_pace, without_pace

    is_needed = needs_pace(config)
    request = config.inspection(launch_directory=launch_directory)
    screen = log_console()
    watching = screen.status(f"playing {config.environment.id} at random, to choose sizes")
    # Playing takes seconds; without it there is nothing to wait for.
    with watching if is_needed and screen.is_terminal else nullcontext():
        # Deterministic runs must not depend on this machine's speed.
        amount: Play = "counted" if config.deterministic else "timed"
        found = inspect_and_play(
            request, play=amount if is_needed else None, code=named_code(config)
        )
    spec = inspect_lessons(found.spec, config.lessons, request=request)
    found = replace(found, spec=spec)
    # The environment could not be played: the sizes are careful, and `why` says so.
    if is_needed and found.pace is None:
        config = without_pace(config, why=found.why)
    return config, found


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


def repeats_line(run_file: RunFile) -> str:
    """Say that greedy matches repeat one game; empty: they do not."""
    if not run_file.config.evaluation.greedy or run_file.spec.chance:
        return ""
    return (
        "evaluation.greedy: true in a game without chance: two policies have one game in each "
        "seating, which counts once, so ratings rest on few games; give the factory openings that "
        "differ by its seed in matches (evaluation.kwargs), or leave evaluation.greedy false"
    )


def stakes_line(run_file: RunFile) -> str:
    """Say what a margin was measured to be, or that there could be one; empty: nothing to say."""
    from arena.config import MarginOutcome

    environment, measured = run_file.config.environment, run_file.environment_measured
    if measured is None:
        return ""
    if isinstance(environment.outcome, MarginOutcome):
        return (
            f"environment.outcome: a margin of {environment.outcome.margin:g} is a whole match "
            + ("(the game's range)" if measured.is_margin_known else "(as random play shows)")
        )
    # Only where a rating by margins would tell more than one by wins.
    if environment.outcome == "return" and len(environment.sides or ()) > 1 and measured.has_stakes:
        return (
            "returns are not only -1, 0 and 1 "
            f"(margins up to {measured.largest_margin:g}), and outcome: return rates who wins, not "
            "how much; environment.outcome='{margin: auto}' rates the margin"
        )
    return ""
