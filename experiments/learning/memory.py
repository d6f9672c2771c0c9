"""Is memory needed, and does it work? One policy learns a T-maze with a GRU, an LSTM and neither.

    python -m experiments.learning.memory --seeds 1 2 3

One JSON line per core and seed: how often the policy, playing its likeliest actions, turned to the
side that the sign at the start had shown (`tests/assets/t_maze.py`), and after how many decisions.
Without memory half of the turns are right. Environment, collector and algorithm are those of a
learner; see `experiments.learning.in_process`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch

from arena.matches.play import Play
from arena.matches.seated import SeatedPlayers, block_of_envs
from experiments.learning.in_process import MirrorLearner, prepare
from populations.config.run_config import validate_config
from populations.config.run_file import RunFile

CORES = ("none", "gru", "lstm")

SETTINGS: dict[str, Any] = {
    "environment": {"id": "tests.assets.t_maze:TMaze", "num_envs": 32},
    "populations": {
        "player": {
            "agents": ["left", "right"],
            "size": 1,
            "network": {"hidden_sizes": [32], "core_size": 32},
            "hyperparameters": {
                "learning_rate": 3e-3,
                "gamma": 0.98,
                "num_minibatches": 2,
                "rollout_length": 32,
            },
        }
    },
    "matchmaking": {"latest_ratio": 1.0},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Figures of a policy.

    Attributes:
        core: ``none``, ``gru`` or ``lstm``.
        seed: Seed of all that is random.
        agent_steps: Decisions that it has learned from.
        right: Share of mazes in which it turned to the right side.
        seconds: Seconds of training.
    """

    core: str
    seed: int
    agent_steps: int
    right: float
    seconds: float


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--cores", nargs="+", choices=CORES, default=CORES)
    parser.add_argument("--agent-steps", type=int, default=100_000, help="most agent steps")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for core in options.cores:
        for seed in options.seeds:
            found = measure(core, seed=seed, agent_steps=options.agent_steps)
            sys.stdout.write(json.dumps(asdict(found)) + "\n")
            sys.stdout.flush()


def measure(
    core: str, *, seed: int, agent_steps: int, enough: float = 0.98, updates_between: int = 10
) -> Found:
    """Learn until so many mazes are solved, or for so many decisions."""
    learner = MirrorLearner(make_run_file(core), seed=seed)
    try:
        right = 0.0
        while right < enough and learner.agent_steps < agent_steps:
            for _ in range(updates_between):
                learner.advance()
            right = solved(learner, seed=seed)
        return Found(
            core=core,
            seed=seed,
            agent_steps=learner.agent_steps,
            right=right,
            seconds=round(learner.train_s, 1),
        )
    finally:
        learner.close()


def make_run_file(core: str) -> RunFile:
    """Make the run that would learn it."""
    player = SETTINGS["populations"]["player"]
    network = {**player["network"], "core": core}
    populations = {"player": {**player, "network": network}}
    return prepare(validate_config({**SETTINGS, "populations": populations}))


@torch.no_grad()
def solved(learner: MirrorLearner, *, seed: int) -> float:
    """Return the share of mazes in which the policy's likeliest actions lead to the prize.

    One episode in each environment; a maze that is cut off was not solved.
    """
    env, seats = learner.evaluation_env, learner.seats
    policy = learner.frozen(learner.weights(), greedy=True)
    seated = SeatedPlayers(
        [(policy,) * len(seats)],
        block_of_env=block_of_envs([env.num_envs]),
        seats=seats,
        agents=env.agents,
    )
    generator = torch.Generator().manual_seed(seed)
    episodes = torch.ones(env.num_envs, dtype=torch.int64)
    play = Play(
        env, seeds=range(env.num_envs), generator=generator, seated=seated, episodes=episodes
    )
    prizes = 0
    while not play.is_done:
        play.step()
        prizes += int((play.turn.reward == 1.0).sum())
    return prizes / (env.num_envs * len(env.agents))


if __name__ == "__main__":
    main()
