r"""Measure what `environment.num_env_workers` gains where a step of an environment is slow.

    python -m experiments.speed.env_workers --kind spin --cost-ms 5
    python -m experiments.speed.env_workers --kind sleep --cost-ms 1 --workers 0 2
    python -m experiments.speed.env_workers --seconds 20 --workers 0 2 \
        --beside sample_factory=/tmp/sf/bin/python rllib=/tmp/rllib/bin/python

One learner's worker trains a policy of two layers of 128 with PPO in eight environments of
`experiments.speed.slow_environment`, with each number of processes in turn, round after round. A
line of JSON for each number: agent steps per second in training (updates included), as the median
of the rounds with the least and the most, and the median of the rounds' ratios to the first number.
Other trainers (`experiments.speed.slow_peers`) have a turn in each round, with `--beside`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import torch

from arena.config import EnvironmentConfig, LearnerSetup, NetworkConfig, PopulationSetup
from arena.environment_spec import EnvironmentRequest
from arena.envs.describe import environment_facts
from arena.learners.loop import NoProgress
from arena.learners.work.worker import Worker
from arena.matches.seating import make_seats
from arena.types import AssignmentId, CheckpointRef, Player, PlayerId, PolicyId, Seating
from arena.wire.messages import Finished, Train, Trainee

NUM_ENVS = 8
NUM_AGENTS = 2
ROLLOUT = 32
ID = "experiments.speed.slow_environment:env"
POLICY = PolicyId("player/p000")
PEERS = Path(__file__).with_name("slow_peers.py")
TIMEOUT_S = 600.0
HYPERPARAMETERS: dict[str, bool | int | float] = {
    "rollout_length": ROLLOUT,
    "num_epochs": 4,
    "num_minibatches": 4,
}


class Trained:
    """A worker and the policy that it trains.

    Args:
        root: Store of the checkpoints.
        kwargs: Arguments of the environment.
        num_env_workers: Number of processes.
    """

    def __init__(self, root: Path, *, kwargs: dict[str, object], num_env_workers: int) -> None:
        root.mkdir()
        spec = environment_facts(EnvironmentRequest(ID, kwargs=kwargs, launch_directory="."))
        sides = {agent: (agent,) for agent in spec.agents}
        populations = {"player": spec.agents}
        setup = LearnerSetup(
            run="measured",
            root=str(root),
            launch_directory=".",
            environment=EnvironmentConfig(
                id=ID, kwargs=kwargs, num_envs=NUM_ENVS, num_env_workers=num_env_workers
            ),
            spec=spec,
            sides=sides,
            seats=make_seats(agents=spec.agents, sides=sides, populations=populations),
            populations={
                "player": PopulationSetup(
                    agents=spec.agents, network=NetworkConfig(hidden_sizes=(128, 128))
                )
            },
            device="cpu",
            precision="float32",
        )
        self._worker = Worker(setup, progress=NoProgress(), should_stop=lambda: False)
        self._checkpoint: CheckpointRef | None = None
        self.train(0)

    def train(self, agent_steps: int) -> float:
        """Train, and return agent steps per second."""
        me = Player(player=PlayerId(POLICY))
        began_s = time.perf_counter()
        answer = self._worker.carry_out(
            Train(
                assignment_id=AssignmentId(1),
                attempt=1,
                trainees=(
                    Trainee(
                        policy=POLICY,
                        generation=0,
                        agent_steps=0,
                        learner_updates=0,
                        checkpoint=self._checkpoint,
                        hyperparameters=HYPERPARAMETERS,
                    ),
                ),
                opponents=(Seating(players=(me, me)),) if agent_steps else (),
                agent_steps=agent_steps,
                seed=1,
                may_stop_early=False,
            )
        )
        duration_s = time.perf_counter() - began_s
        if not isinstance(answer, Finished):
            raise SystemExit(answer.reason)
        self._checkpoint = answer.checkpoints[0].checkpoint
        return agent_steps / duration_s

    def close(self) -> None:
        """End its processes."""
        self._worker.close()


def beside(python: str, peer: str, *, kwargs: Mapping[str, object], seconds: float) -> float:
    """Return another trainer's agent steps per second, measured in an environment of its own."""
    program = [python, str(PEERS), peer, "--seconds", str(seconds)]
    costs = ["--cost-ms", str(kwargs["cost_ms"]), "--kind", str(kwargs["kind"])]
    done = subprocess.run(
        [*program, *costs],
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
        env={**os.environ, "PYTHONPATH": str(PEERS.parents[2])},
    )
    return float(json.loads(done.stdout.splitlines()[-1])["agent_steps_per_s"])


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line of JSON for each number of processes, and for each other trainer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=("spin", "sleep"), default="spin", help="cost of a step")
    parser.add_argument("--cost-ms", type=float, default=5.0, help="cost of a step in ms")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 4], help="processes")
    parser.add_argument("--rounds", type=int, default=5, help="rounds")
    parser.add_argument("--seconds", type=float, default=4.0, help="about the length of a turn")
    parser.add_argument(
        "--beside", nargs="+", default=[], metavar="PEER=PYTHON", help="other trainers"
    )
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    # Whole rollouts, of which each has an update.
    per_rollout = ROLLOUT * NUM_ENVS * NUM_AGENTS
    rollout_s = ROLLOUT * (NUM_ENVS * options.cost_ms / 1000.0 + 0.003)
    agent_steps = per_rollout * max(1, round(options.seconds / rollout_s))
    kwargs: dict[str, object] = {"cost_ms": options.cost_ms, "kind": options.kind}
    with tempfile.TemporaryDirectory() as directory:
        trained = {
            number: Trained(Path(directory, str(number)), kwargs=kwargs, num_env_workers=number)
            for number in options.workers
        }
        for one in trained.values():
            # Processes start, and modules are loaded.
            one.train(per_rollout)
        turns: dict[int | str, Callable[[], float]] = {
            number: partial(one.train, agent_steps) for number, one in trained.items()
        }
        for peer, _, python in (given.partition("=") for given in options.beside):
            turns[peer] = partial(beside, python, peer, kwargs=kwargs, seconds=options.seconds)
        rounds = [{name: turn() for name, turn in turns.items()} for _ in range(options.rounds)]
        for one in trained.values():
            one.close()
    first = options.workers[0]
    for name in turns:
        speeds = [speeds[name] for speeds in rounds]
        document = {
            **kwargs,
            **({"peer": name} if isinstance(name, str) else {"num_env_workers": name}),
            "agent_steps_per_s": round(median(speeds), 1),
            "least": round(min(speeds), 1),
            "most": round(max(speeds), 1),
            "ratio": round(median(one[name] / one[first] for one in rounds), 2),
        }
        sys.stdout.write(f"{json.dumps(document)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
