"""Other trainers on `experiments.speed.slow_environment`: the other side of `env_workers`.

    PYTHONPATH=. /tmp/sf-venv/bin/python experiments/speed/slow_peers.py sample_factory
    PYTHONPATH=. /tmp/rllib-venv/bin/python experiments/speed/slow_peers.py rllib --cost-ms 5

Runs in the trainer's own environment and imports nothing of Arena. PPO as `env_workers` has it:
eight environments in two worker processes, rollouts of 32, four epochs of four minibatches, two
layers of 128, one policy for both agents. One line of JSON: agent steps per second after the first
updates.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium

from experiments.speed.slow_environment import ACTION, AGENTS, OBSERVATION, SlowEnvironment

NUM_WORKERS = 2
ENVS_PER_WORKER = 4
ROLLOUT = 32
BATCH = ROLLOUT * NUM_WORKERS * ENVS_PER_WORKER * len(AGENTS)
NUM_MINIBATCHES = 4
NUM_EPOCHS = 4
WARM_UP_UPDATES = 3
KWARGS = "SLOW_ENVIRONMENT"
"""Environment variable with the environment's arguments, which all its processes inherit."""


def slow_environment(*_: object, **__: object) -> SlowEnvironment:
    """Return the environment that is to be measured; any trainer's arguments are ignored."""
    return SlowEnvironment(**json.loads(os.environ[KWARGS]))


class AsLists(gymnasium.Env):
    """The environment as Sample Factory wants it: lists by agent, episodes that begin again."""

    num_agents = len(AGENTS)
    is_multiagent = True
    observation_space = OBSERVATION
    action_space = ACTION
    render_mode = None

    def __init__(self, *_: object, **__: object) -> None:
        self._env = slow_environment()

    def reset(self, *, seed: int | None = None, options: object = None) -> Any:
        """Begin an episode."""
        observations, _ = self._env.reset(seed=seed)
        return [observations[agent] for agent in AGENTS], [{} for _ in AGENTS]

    def step(self, actions: Any) -> Any:
        """Step; begin another episode where one is over."""
        chosen = {agent: int(action) for agent, action in zip(AGENTS, actions, strict=True)}
        *parts, _ = self._env.step(chosen)
        seen, rewards, over, cut = ([part[agent] for agent in AGENTS] for part in parts)
        if not self._env.agents:
            seen, _ = self.reset()
        return seen, rewards, over, cut, [{} for _ in AGENTS]


def train_with_sample_factory(directory: str) -> None:
    """Train with Sample Factory until the process is killed."""
    arguments = importlib.import_module("sample_factory.cfg.arguments")
    environments = importlib.import_module("sample_factory.envs.env_utils")
    environments.register_env("slow", AsLists)
    given = [
        *("--algo=APPO", "--env=slow", "--experiment=slow", f"--train_dir={directory}"),
        *("--device=cpu", f"--num_workers={NUM_WORKERS}", "--use_rnn=False"),
        *(f"--num_envs_per_worker={ENVS_PER_WORKER}", "--worker_num_splits=2"),
        *(f"--batch_size={BATCH // NUM_MINIBATCHES}", f"--num_epochs={NUM_EPOCHS}"),
        *(f"--num_batches_per_epoch={NUM_MINIBATCHES}", f"--rollout={ROLLOUT}"),
        *("--encoder_mlp_layers", "128", "128", "--normalize_input=False"),
        *("--train_for_seconds=100000", "--save_every_sec=100000", "--with_vtrace=False"),
    ]
    parser, _ = arguments.parse_sf_args(given)
    importlib.import_module("sample_factory.train").run_rl(arguments.parse_full_cfg(parser, given))


def sample_factory(seconds: float) -> float:
    """Return Sample Factory's agent steps per second: of its log, which counts every agent."""
    with tempfile.TemporaryDirectory() as directory:
        program = [sys.executable, __file__, "train", "--directory", directory]
        process = subprocess.Popen(
            program,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        first: tuple[float, int] | None = None
        last, told = (0.0, 0), []
        try:
            for line in process.stdout:
                told.append(line)
                found = re.search(r"Total num frames: (\d+)", line)
                if found is None:
                    continue
                last = (time.perf_counter(), int(found.group(1)))
                if first is None and last[1] >= WARM_UP_UPDATES * BATCH:
                    first = last
                elif first is not None and last[0] - first[0] >= seconds:
                    break
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if first is None or last == first:
        raise SystemExit("".join(told[-20:]))
    return (last[1] - first[1]) / (last[0] - first[0])


def rllib(seconds: float) -> float:
    """Return RLlib's agent steps per second, by its new API stack."""
    ray: Any = importlib.import_module("ray")
    ppo: Any = importlib.import_module("ray.rllib.algorithms.ppo")
    wrappers: Any = importlib.import_module("ray.rllib.env.wrappers.pettingzoo_env")
    models: Any = importlib.import_module("ray.rllib.core.rl_module.default_model_config")
    single: Any = importlib.import_module("ray.rllib.core.rl_module.rl_module")
    several: Any = importlib.import_module("ray.rllib.core.rl_module.multi_rl_module")
    registry: Any = importlib.import_module("ray.tune.registry")
    ray.init(num_cpus=NUM_WORKERS + 1, include_dashboard=False, object_store_memory=500 << 20)
    registry.register_env("slow", lambda _: wrappers.ParallelPettingZooEnv(slow_environment()))
    module = single.RLModuleSpec(
        model_config=models.DefaultModelConfig(fcnet_hiddens=[128, 128], vf_share_layers=True)
    )
    config = (
        ppo.PPOConfig()
        .environment("slow", disable_env_checking=True)
        .framework("torch")
        .env_runners(
            num_env_runners=NUM_WORKERS,
            num_envs_per_env_runner=ENVS_PER_WORKER,
            rollout_fragment_length=ROLLOUT,
            batch_mode="truncate_episodes",
        )
        .learners(num_learners=0)
        .multi_agent(
            policies={"main"},
            policy_mapping_fn=lambda agent, episode, **_: "main",
            policies_to_train=["main"],
        )
        .rl_module(rl_module_spec=several.MultiRLModuleSpec(rl_module_specs={"main": module}))
        .training(
            train_batch_size_per_learner=BATCH // len(AGENTS),
            minibatch_size=BATCH // NUM_MINIBATCHES,
            num_epochs=NUM_EPOCHS,
        )
        .reporting(min_time_s_per_iteration=0)
    )
    algorithm = config.build_algo()
    first: tuple[float, int] | None = None
    for update in range(10**9):
        result = algorithm.train()
        env_steps = result["env_runners"]["num_env_steps_sampled_lifetime"]
        last = (time.perf_counter(), len(AGENTS) * int(env_steps))
        if first is None and update >= WARM_UP_UPDATES:
            first = last
        elif first is not None and last[0] - first[0] >= seconds:
            break
    assert first is not None
    algorithm.stop()
    ray.shutdown()
    return (last[1] - first[1]) / (last[0] - first[0])


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", choices=("sample_factory", "rllib", "train"), help="trainer")
    parser.add_argument("--kind", choices=("spin", "sleep"), default="spin", help="cost of a step")
    parser.add_argument("--cost-ms", type=float, default=5.0, help="cost of a step in ms")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds that count")
    parser.add_argument("--directory", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer == "train":
        train_with_sample_factory(options.directory)
        return
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    os.environ[KWARGS] = json.dumps({"cost_ms": options.cost_ms, "kind": options.kind})
    measure = {"sample_factory": sample_factory, "rllib": rllib}[options.peer]
    found = {"peer": options.peer, "agent_steps_per_s": round(measure(options.seconds), 1)}
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
