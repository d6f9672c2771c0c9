"""How long until one policy in mirror self-play holds 95% wins against random Connect Four?

    python -m experiments.learning.mirror --seeds 1 2 3 4 5 --precision auto

One JSON line per seed. After each update the clock stands still for 200 matches against uniformly
random play, half of them in each seat, the policy sampling and draws not counting as wins. It holds
the target when it reaches it there and then again in 2,000 matches. The settings are the best that
were found for a hand-written loop, so that the two can be compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import torch

from arena.types import RANDOM_BOT
from experiments.learning.in_process import MirrorLearner, prepare
from populations.config.overrides import apply_overrides
from populations.config.run_config import validate_config
from populations.config.run_file import RunFile

QUICK_MATCHES, THOROUGH_MATCHES = 100, 1000
"""Matches in each seat."""

SETTINGS = {
    "environment": {"id": "classic/connect_four-v3", "num_envs": 512},
    "populations": {
        "player": {
            "size": 1,
            "network": {"hidden_sizes": [128, 128], "normalize_observations": False},
            "hyperparameters": {
                "learning_rate": 2.5e-3,
                "entropy_coef": 0.01,
                # As in the loop, where .99 and .95 are per move of both; here per own decision.
                "gamma": 0.99**2,
                "gae_lambda": 0.95**2,
                "num_epochs": 4,
                "num_minibatches": 8,
                "rollout_length": 32,
            },
        }
    },
    "matchmaking": {"latest_ratio": 1.0},
}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    parser.add_argument("--precision", choices=["float32", "bfloat16", "auto"], default="auto")
    parser.add_argument("--target", type=float, default=0.95, help="share of wins")
    parser.add_argument("--max-s", type=float, default=120.0, help="most seconds of training")
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE, as arena launch takes them")
    options = parser.parse_intermixed_args()
    torch.set_num_threads(options.threads)
    document = apply_overrides(SETTINGS, [f"precision={options.precision}", *options.overrides])
    run_file = prepare(validate_config(document))
    for seed in options.seeds:
        line = {
            "seed": seed,
            "precision": options.precision,
            "threads": options.threads,
            **time_to_target(run_file, seed=seed, target=options.target, max_s=options.max_s),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def time_to_target(
    run_file: RunFile, *, seed: int, target: float, max_s: float
) -> dict[str, object]:
    """Train until the target holds or the time is up.

    Args:
        run_file: Run to train.
        seed: Seed of all that is random.
        target: Share of matches won.
        max_s: Seconds of training.
    """
    start = time.perf_counter()
    learner = MirrorLearner(run_file, seed=seed)
    started = time.perf_counter()
    try:
        holds = False
        win_rate = 0.0
        while not holds and learner.train_s < max_s:
            learner.advance()
            win_rate = _win_rate(learner, matches=QUICK_MATCHES)
            if win_rate >= target:
                win_rate = _win_rate(learner, matches=THOROUGH_MATCHES)
                holds = win_rate >= target
        return {
            "holds": holds,
            "train_s": round(learner.train_s, 2),
            "agent_steps": learner.agent_steps,
            "updates": learner.updates,
            "agent_steps_per_s": round(learner.agent_steps / learner.train_s),
            "wins": round(win_rate, 4),
            "start_up_s": round(started - start, 2),
            "evaluation_s": round(time.perf_counter() - started - learner.train_s, 2),
        }
    finally:
        learner.close()


def _win_rate(learner: MirrorLearner, *, matches: int) -> float:
    return learner.play(RANDOM_BOT, matches=matches, greedy=False).win_rate


if __name__ == "__main__":
    main()
