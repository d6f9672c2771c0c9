"""Does self-play converge where there is hidden information? Exploitability of one policy.

    python -m experiments.learning.convergence openspiel:kuhn_poker --seeds 1 2 3

One JSON line per seed: half of NashConv of the weights that learn ("last") and of their
exponential average ("average"), now and then and at the end. Uniform play: .4583 in Kuhn, 2.3736 in
Leduc poker. A magnet and the average hold the policy back from cycling; the learning rate falls to
almost nothing. ``--hyperparameter magnet_coef=0 --hyperparameter entropy_coef=0.05`` does without.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence

import torch

from arena.envs.batched.kuhn_poker import KuhnPoker
from arena.envs.batched.leduc_poker import LeducPoker
from arena.game_theory.exploitability import exploitability
from arena.game_theory.game_tree import grow_tree
from experiments.learning.frozen_players import as_policy
from experiments.learning.in_process import MirrorLearner, prepare
from populations.config.run_config import validate_config
from populations.config.run_file import RunFile

GAMES = {"openspiel:kuhn_poker": KuhnPoker, "openspiel:leduc_poker": LeducPoker}

LAST_LEARNING_RATE = 1e-5

HYPERPARAMETERS: Mapping[str, float] = {
    "learning_rate": 1e-3,
    "entropy_coef": 0.0,
    "gamma": 1.0,
    "gae_lambda": 1.0,
    "magnet_coef": 0.2,
    "magnet_rate": 0.01,
    "ema_decay": 0.99,
    "rollout_length": 40,
}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("game", choices=sorted(GAMES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--agent-steps", type=float, default=2e6)
    parser.add_argument("--looks", type=int, default=4, help="number of looks at the policy")
    parser.add_argument("--num-envs", type=int, default=128)
    parser.add_argument("--hyperparameter", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    changed = dict(text.split("=", 1) for text in options.hyperparameter)
    hyperparameters = {**HYPERPARAMETERS, **{k: float(v) for k, v in changed.items()}}
    run_file = prepare(
        validate_config(
            {
                "environment": {"id": options.game, "num_envs": options.num_envs},
                "populations": {
                    "player": {
                        "size": 1,
                        "network": {
                            "hidden_sizes": [64, 64],
                            "normalize_observations": False,
                            "separate_value": True,
                        },
                        "hyperparameters": hyperparameters,
                    }
                },
                "precision": "float32",
            }
        )
    )
    for seed in options.seeds:
        looks = train(
            run_file,
            game=options.game,
            seed=seed,
            hyperparameters=hyperparameters,
            marks=[options.agent_steps * k / options.looks for k in range(1, options.looks + 1)],
        )
        sys.stdout.write(json.dumps({"seed": seed, "looks": looks}) + "\n")
        sys.stdout.flush()


def train(
    run_file: RunFile,
    *,
    game: str,
    seed: int,
    hyperparameters: Mapping[str, float],
    marks: Sequence[float],
) -> list[dict[str, float]]:
    """Train up to each mark and look; the learning rate falls in a straight line.

    Args:
        run_file: Run to train.
        game: One of `GAMES`.
        seed: Seed of all that is random.
        hyperparameters: At the start.
        marks: Agent steps.
    """
    tree = grow_tree(GAMES[game])
    learner = MirrorLearner(run_file, seed=seed)
    first = hyperparameters["learning_rate"]
    looks = []
    try:
        for mark in marks:
            while learner.agent_steps < mark:
                learner.advance()
                share = min(1.0, learner.agent_steps / marks[-1])
                rate = first + share * (LAST_LEARNING_RATE - first)
                learner.explore({**hyperparameters, "learning_rate": rate})
            last = learner.frozen(learner.live_weights(), greedy=False)
            average = learner.frozen(learner.weights(), greedy=False)
            looks.append(
                {
                    "agent_steps": learner.agent_steps,
                    "updates": learner.updates,
                    "train_s": round(learner.train_s, 1),
                    "last": round(exploitability(tree, as_policy(last)), 4),
                    "average": round(exploitability(tree, as_policy(average)), 4),
                }
            )
    finally:
        learner.close()
    return looks


if __name__ == "__main__":
    main()
