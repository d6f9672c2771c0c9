"""Is a population with PBT stronger than as many fixed random hyperparameter settings?

    python -m experiments.leagues.pbt_against_fixed tictactoe --seeds 1 2 3 [KEY=VALUE ...]

Not a test that passes or fails: it prints one JSON line per seed. Two runs begin with the same
policies, whose hyperparameters are drawn from the search space; in one PBT copies and explores, in
the other all stay as they are. Equal agent steps. Then the last policies of both runs play one
tournament, sampling, and Bradley-Terry rates them on one scale. The interval of the difference of
the two medians is over matches: each pair's results are drawn again, and rated again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np
from msgspec.structs import replace

from experiments.commands import arena
from experiments.leagues.scores import Counts, meet
from experiments.learning.in_process import prepare
from populations.config.run_config import RunConfig, load_config
from populations.controller.evolution.generations import first_generations
from populations.controller.evolution.initial_policies import initial_policies
from populations.controller.server.run_directory import create_run
from populations.pbt.explore import Resample
from populations.ratings.bradley_terry import BradleyTerry
from populations.ratings.model import Result
from populations.records.rows import PolicyRow
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal
from populations.views.questions.inspection import Inspection

NUM_RESAMPLES = 200
WIDE: dict[str, dict[str, object]] = {
    "learning_rate": {"low": 1e-4, "high": 2e-2, "log": True},
    "entropy_coef": {"low": 3e-3, "high": 0.5, "log": True},
    "gamma": {"low": 0.9, "high": 0.9999, "complement": True, "log": True},
}
"""Search space with bad corners: within the presets' bounds nearly everything works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One of the two ways to train."""

    name: str
    overrides: tuple[str, ...]


def kinds(agent_steps: int) -> tuple[Kind, Kind]:
    """Return PBT with some ten decisions about each policy, and none."""
    ready = (
        f"pbt.ready_agent_steps={agent_steps // 10}",
        f"pbt.warm_up_agent_steps={agent_steps // 10}",
        "evaluation.share=0.2",
    )
    return (
        Kind(name="pbt", overrides=ready),
        Kind(name="fixed", overrides=(*ready, "pbt.exploit=none", "pbt.explore=none")),
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--size", type=int, default=4)
    parser.add_argument(
        "--agent-steps", type=int, default=800_000, help="agent steps of each policy"
    )
    parser.add_argument("--matches", type=int, default=150, help="matches of each pair, per seat")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as scratch:
            players: dict[str, list[str]] = {}
            line: dict[str, object] = {"preset": options.preset, "seed": seed}
            for kind in kinds(options.agent_steps):
                config = load_config(
                    options.preset,
                    [
                        f"seed={seed}",
                        f"populations.player.size={options.size}",
                        f"populations.player.search_space={json.dumps(WIDE)}",
                        f"stop.agent_steps_per_policy={options.agent_steps}",
                        "stop.duration_s=null",
                        "pbt.reference=false",
                        "pbt.share=even",
                        "learners=2",
                        *kind.overrides,
                        *options.overrides,
                    ],
                )
                run = Path(scratch) / kind.name
                train(config, run)
                line[kind.name] = _facts(run)
                players[kind.name] = [f"{run}:player/p{index:03d}" for index in range(options.size)]
            everybody = [player for found in players.values() for player in found]
            met = meet([*everybody, "bot:random"], matches=options.matches, seed=seed)
        line |= compare(met, pbt=players["pbt"], fixed=players["fixed"], seed=seed)
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def train(config: RunConfig, run: Path) -> None:
    """Train from hyperparameters that are drawn from the search space, to the end."""
    run_file = prepare(config)
    run.mkdir(parents=True)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    create_run(run, run_file, initial_weights={}, utc=now)
    policies = drawn(run_file.config)
    with Journal.open(run / JOURNAL) as journal:
        journal.commit([*policies, *first_generations(policies)])
    arena("launch", "--resume", "--run-dir", run)


def drawn(config: RunConfig) -> list[PolicyRow]:
    """Return a run's first policies with hyperparameters from the search space; by seed and
    index.
    """
    space = config.populations["player"].search_space
    return [
        replace(
            policy,
            hyperparameters=Resample()
            .explore(
                policy.hyperparameters,
                space,
                rng=np.random.default_rng([config.seed, policy.index]),
            )
            .new,
        )
        for policy in initial_policies(config)
    ]


def _facts(run: Path) -> dict[str, object]:
    inspection = Inspection.open(run)
    try:
        tables = inspection.tables
        return {
            "agent_steps": tables.run.agent_steps,
            "elapsed_s": round(tables.run.elapsed_s, 1),
            "exploits": tables.run.exploits,
            "hyperparameters": [
                {name: float(f"{row.hyperparameters[name]:.3g}") for name in WIDE}
                for row in tables.policies.values()
            ],
        }
    finally:
        inspection.close()


def compare(
    met: Mapping[tuple[str, str], Counts],
    *,
    pbt: Sequence[str],
    fixed: Sequence[str],
    seed: int,
) -> dict[str, object]:
    """Return the median ratings of both runs' policies, and their difference with its interval.

    Args:
        met: Results of every pair, either way round; bot:random took part.
        pbt: Policies of the one run.
        fixed: Ratings of the other.
        seed: Seed of the resampling.
    """
    once = {pair: counts for pair, counts in met.items() if pair[0] < pair[1]}
    found = ratings(once)
    rng = np.random.default_rng(seed)
    again = []
    for _ in range(NUM_RESAMPLES):
        resampled = ratings({pair: _drawn_again(counts, rng) for pair, counts in once.items()})
        again.append(_median(resampled, pbt) - _median(resampled, fixed))
    low, high = np.quantile(again, [0.025, 0.975])
    return {
        "pbt_ratings": sorted(round(found[player]) for player in pbt),
        "fixed_ratings": sorted(round(found[player]) for player in fixed),
        "pbt_median": round(_median(found, pbt)),
        "fixed_median": round(_median(found, fixed)),
        "difference": round(_median(found, pbt) - _median(found, fixed)),
        "interval": [round(float(low)), round(float(high))],
    }


def ratings(met: Mapping[tuple[str, str], Counts]) -> dict[str, float]:
    """Rate all players who met; bot:random is at 0."""
    results = [
        Result(
            first=first,
            second=second,
            seats=(0, 0),
            wins=counts.wins,
            draws=counts.draws,
            losses=counts.losses,
        )
        for (first, second), counts in met.items()
    ]
    fit = BradleyTerry().fit(results, anchors={"bot:random"})
    return {player: fit.rating(player) for pair in met for player in pair}


def _median(found: Mapping[str, float], players: Sequence[str]) -> float:
    return float(median(found[player] for player in players))


def _drawn_again(counts: Counts, rng: np.random.Generator) -> Counts:
    shares = np.array([counts.wins, counts.draws, counts.losses]) / counts.matches
    wins, draws, losses = rng.multinomial(counts.matches, shares).tolist()
    return Counts(wins=wins, draws=draws, losses=losses)


if __name__ == "__main__":
    main()
