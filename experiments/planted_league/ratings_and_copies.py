"""Are ratings right, and copies of the better? Simulated leagues whose true skills are known.

    python -m experiments.planted_league.ratings_and_copies             # both parts, 10 seeds
    python -m experiments.planted_league.ratings_and_copies --part ratings --policies 50
    python -m experiments.planted_league.ratings_and_copies --part ratings evaluation.share=0

``ratings``: Spearman's correlation of the final policies' ratings with their planted skills is to
be above 0.98 (median of the seeds) with at most half of the matches of a round robin, all
evaluation matches counted, those while training too. PBT copies no policy there, so that skills
keep their planted spread of 200.

``exploits``: with ``pbt.confidence`` 0.9, policies copy a truly worse donor less than half as often
as with plain truncation (``pbt.confidence`` 0), everything else equal. Often: as a share of the
copies, and in all. No policy copies before skills are near their ceilings, because a rating
cannot be unsure about what a policy has learned since.

Markdown on standard output; the exit code is 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from statistics import median

from populations.config.run_config import load_config
from populations.simulation.environment import simulated_config
from populations.simulation.league import Outcome, default_model, simulate

BOUND_SPEARMAN = 0.98
BOUND_MATCHES = 0.5
BOUND_WRONG = 0.5

RATINGS = (
    "pbt.exploit=none",
    "stop.agent_steps_per_policy=500000",
    "evaluation.share=0.02",
)
EXPLOITS = (
    "environment.num_envs=16",
    "pbt.min_rating_gap=0",
    "pbt.min_matches=20",
    "pbt.warm_up_agent_steps=1000000",
    "stop.agent_steps_per_policy=2000000",
)
GATED, PLAIN = "pbt.confidence=0.9", "pbt.confidence=0"
DRAW_RATE = 0.9
"""Draw rate of the second part: a match tells little where most are drawn, so ratings are noisy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One simulated league."""

    num_policies: int
    seed: int
    overrides: tuple[str, ...]
    matches_per_s: float = 1000.0
    draw_rate: float = 0.0
    has_finals: bool = True


def say(line: str) -> None:
    """Write a line to standard output at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run(task: Task) -> Outcome:
    """Simulate it."""
    overrides = [*task.overrides, f"seed={task.seed}"]
    config = simulated_config(load_config("default", overrides), num_policies=task.num_policies)
    return simulate(
        config,
        model=replace(default_model(config), draw_rate=task.draw_rate),
        matches_per_s=task.matches_per_s,
        has_finals=task.has_finals,
        clock=time.thread_time,
    )


def wrong_share(outcome: Outcome) -> float:
    """Return the share of the copies whose donor was truly worse; 0 without copies."""
    return outcome.num_wrong_exploits / max(len(outcome.exploits), 1)


def matches_share(outcome: Outcome) -> float:
    """Return the evaluation matches, as a share of a round robin's."""
    return outcome.num_matches / outcome.num_round_robin_matches


def check_ratings(outcomes: Sequence[Outcome], *, seeds: Sequence[int]) -> bool:
    """Print the table of the first part, and say whether its bounds hold."""
    say("| seed | Spearman | matches | of round robin | by final weights | spread | decisions/s |")
    say("|---|---|---|---|---|---|---|")
    for seed, outcome in zip(seeds, outcomes, strict=True):
        say(
            f"| {seed} | {outcome.spearman or 0.0:.4f} | {outcome.num_matches} "
            f"| {matches_share(outcome):.3f} | {outcome.num_final_matches} "
            f"| {outcome.skill_deviation:.0f} | {outcome.decisions_per_s:.0f} |"
        )
    spearman = median(outcome.spearman or 0.0 for outcome in outcomes)
    share = median(matches_share(outcome) for outcome in outcomes)
    holds = spearman > BOUND_SPEARMAN and share <= BOUND_MATCHES
    say(
        f"\nmedian: Spearman {spearman:.4f} (to be above {BOUND_SPEARMAN}), {share:.3f} of a round "
        f"robin's matches (at most {BOUND_MATCHES}): {'holds' if holds else 'MISSED'}\n"
    )
    return holds


def check_exploits(
    gated: Sequence[Outcome], plain: Sequence[Outcome], *, seeds: Sequence[int]
) -> bool:
    """Print the table of the second part, and say whether its bounds hold."""
    say("| seed | gated: copies | worse donor | share | plain: copies | worse donor | share |")
    say("|---|---|---|---|---|---|---|")
    for seed, sure, any_ in zip(seeds, gated, plain, strict=True):
        cells = [
            f"{len(o.exploits)} | {o.num_wrong_exploits} | {wrong_share(o):.3f}"
            for o in (sure, any_)
        ]
        say(f"| {seed} | {cells[0]} | {cells[1]} |")
    ratios = []
    for name, figure in (("share", wrong_share), ("number", _number)):
        with_gate, without = median(map(figure, gated)), median(map(figure, plain))
        ratios.append(with_gate / without if without > 0.0 else float("inf"))
        say(f"\nmedian {name}: gated {with_gate:.4g}, plain {without:.4g}: ratio {ratios[-1]:.3f}")
    holds = max(ratios) < BOUND_WRONG
    say(f"\nto be below {BOUND_WRONG}: {'holds' if holds else 'MISSED'}\n")
    return holds


def _number(outcome: Outcome) -> float:
    return float(outcome.num_wrong_exploits)


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, and say with the exit code whether all bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("ratings", "exploits", "both"), default="both")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 11)))
    parser.add_argument("--policies", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE, after the experiment's own")
    options = parser.parse_args(argv)

    def tasks(
        *overrides: str, matches_per_s: float, draw_rate: float = 0.0, has_finals: bool = True
    ) -> list[Task]:
        return [
            Task(
                num_policies=options.policies,
                seed=seed,
                overrides=(*overrides, *options.overrides),
                matches_per_s=matches_per_s,
                draw_rate=draw_rate,
                has_finals=has_finals,
            )
            for seed in options.seeds
        ]

    holds = True
    say(f"{options.policies} policies; overrides: {' '.join(options.overrides) or 'none'}\n")
    with ProcessPoolExecutor(options.jobs) as pool:
        if options.part != "exploits":
            outcomes = list(pool.map(run, tasks(*RATINGS, matches_per_s=100.0)))
            holds &= check_ratings(outcomes, seeds=options.seeds)
        if options.part != "ratings":
            gated, plain = (
                list(
                    pool.map(
                        run,
                        tasks(
                            *EXPLOITS,
                            gate,
                            matches_per_s=1000.0,
                            draw_rate=DRAW_RATE,
                            has_finals=False,
                        ),
                    )
                )
                for gate in (GATED, PLAIN)
            )
            holds &= check_exploits(gated, plain, seeds=options.seeds)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
