"""Subject of the measurements: a resolved configuration, its environments and policies.

Shapes: B environments, F features of a flattened observation, n actions.

Tests: `tests/tools/bench/test_measure.py`, `tests/tools/bench/test_whole_run.py`.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from arena.config import LearnerSetup, NetworkConfig
from arena.core import Algorithm
from arena.envs.base import BatchedEnv
from arena.envs.inspect import inspect_and_play, inspect_lessons
from arena.envs.make import learner_request, make_batched_env
from arena.envs.spaces.agent_id_wrapper import observation_layouts
from arena.learners.work.players import Players
from arena.learners.work.worker import resolve_device
from arena.learning.acting import product_dtype
from arena.learning.hyperparameters import hyperparameter_model
from arena.networks.actor_critic import make_actor_critic
from arena.networks.frozen import FrozenPolicy
from arena.resolve import code_directory
from arena.spaces import ObservationLayout
from arena.types import Hyperparameters, PolicyId
from arena.wire.messages import Trainee
from populations.config.overrides import apply_overrides, apply_values
from populations.config.resolve import usable_cores
from populations.config.run_config import RunConfig, load_config, validate_config
from populations.config.run_file import learner_setup, new_run_file, with_config
from populations.config.sizing import needs_pace

from .loop import LoopSettings

SEED = 1
LOOP_ENVIRONMENT = "classic/connect_four-v3"

DEFAULT: dict[str, object] = {
    "environment": {"id": LOOP_ENVIRONMENT, "num_envs": 2048},
    "populations": {
        "player": {
            "size": 8,
            "network": {"hidden_sizes": [128, 128], "normalize_observations": False},
            "hyperparameters": {"num_epochs": 4, "num_minibatches": 8, "rollout_length": 32},
        }
    },
    # The intervals are the preset's: a policy makes 100,000 steps of this game in a second.
    "ghosts": {"every_agent_steps": 500_000},
    "pbt": {"ready_agent_steps": 500_000, "warm_up_agent_steps": 1_000_000},
    "evaluation": {"share": 0.05},
}
"""Default subject: the game that the hand-written loop plays."""

# The key does not allow 0. Adam's step is about the learning rate for any gradient.
STAND_STILL = {"learning_rate": 1e-9}
"""Learning rate of a policy that is updated on one rollout throughout a measurement."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A configuration and the pieces of a learner that it describes.

    Attributes:
        source: Preset or file of the configuration.
        config: Resolved.
        setup: Setup of a learner, without a store.
        population: Population of the measured policy: the first one.
    """

    source: str
    config: RunConfig
    setup: LearnerSetup
    population: str

    @cached_property
    def device(self) -> torch.device:
        """Device of networks and environments."""
        return resolve_device(self.setup.device)

    @property
    def policy(self) -> PolicyId:
        """Id of the measured policy."""
        return PolicyId(f"{self.population}/p000")

    @property
    def num_envs(self) -> int:
        """Number of environments, B."""
        return self.setup.num_envs

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Start values of the measured population."""
        return self.config.populations[self.population].start_values

    @cached_property
    def players(self) -> Players:
        """Players of a learner: layouts of their actions, and precision of their products."""
        return Players(self.setup, device=self.device)

    @cached_property
    def observations(self) -> dict[str, ObservationLayout]:
        """Layouts of observations by population."""
        return observation_layouts(self.setup)

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """Widths of the measured policy's layers, from F to n logits and the value."""
        hidden = self.setup.populations[self.population].network.hidden_sizes
        return (
            self.observations[self.population].size,
            *hidden,
            # One more output is the value: actor and critic are one network, like the loop's.
            self.players.actions[self.population].num_logits + 1,
        )

    def make_env(self) -> BatchedEnv:
        """Make the batch that a learner would step."""
        return make_batched_env(
            learner_request(self.setup, spec=self.setup.spec.in_lesson(0), device=self.device)
        )

    def make_policy(self, *, precision: str | None = None, stands_still: bool = False) -> Algorithm:
        """Make a policy that learns.

        Args:
            precision: None: the configuration's.
            stands_still: Whether updates do all epochs at the usual cost, but change hardly
                anything.
        """
        hyperparameters, players = dict(self.hyperparameters), self.players
        if precision is not None:
            setup = self.setup.model_copy(update={"precision": precision})
            players = Players(setup, device=self.device)
        if stands_still:
            model = hyperparameter_model(
                self.setup.populations[self.population].algorithm,
                launch_directory=self.setup.launch_directory,
            )
            # A user's algorithm may have no learning rate.
            still = {k: v for k, v in STAND_STILL.items() if k in model.model_fields}
            # target_kl would end updates early.
            hyperparameters.pop("target_kl", None)
            hyperparameters |= still
        trainee = Trainee(
            policy=self.policy,
            generation=0,
            agent_steps=0,
            learner_updates=0,
            checkpoint=None,
            hyperparameters=hyperparameters,
        )
        return players.algorithm(trainee, seed=SEED)

    def make_frozen(self, population: str, *, seed: int) -> FrozenPolicy:
        """Make a frozen policy with random weights; how it plays makes no difference here."""
        network = self.setup.populations[population].network
        observation, action = self.observations[population], self.players.actions[population]
        policy = make_actor_critic(network, observation=observation, action=action, seed=seed)
        return FrozenPolicy(policy.to(self.device))

    @property
    def loop_settings(self) -> LoopSettings | None:
        """The hand-written loop of the same size; None where it cannot play this."""
        population = self.setup.populations[self.population]
        environment = self.setup.environment
        # The loop's game is batched: compared with PettingZoo, the ratio would measure
        # environments.
        if self.setup.spec.id != LOOP_ENVIRONMENT or environment.backend == "pettingzoo":
            return None
        # The loop's update is PPO's.
        if population.algorithm != "ppo":
            return None
        return LoopSettings(
            num_games=self.num_envs,
            rollout_length=int(self.hyperparameters["rollout_length"]),
            num_epochs=int(self.hyperparameters["num_epochs"]),
            num_minibatches=int(self.hyperparameters["num_minibatches"]),
            hidden_sizes=population.network.hidden_sizes,
        )

    @property
    def settings(self) -> dict[str, object]:
        """Settings that must be equal for ratios to be comparable; plain data."""
        names = ("num_epochs", "num_minibatches", "rollout_length")
        population = self.config.populations[self.population]
        return {
            "environment": self.setup.spec.id,
            "backend": self.setup.environment.backend,
            "num_envs": self.num_envs,
            "hidden_sizes": list(population.network.hidden_sizes),
            "policies": population.size,
            "precision": self.setup.precision,
        } | {name: population.start_values.get(name) for name in names}


def load_subject(
    source: str | None,
    overrides: Sequence[str] = (),
    *,
    policies: int | None = None,
) -> Subject:
    """Read and resolve what is measured.

    Args:
        source: A preset's name or a YAML file; None: Connect Four as in `DEFAULT`.
        overrides: ``KEY=VALUE``.
        policies: Size of each population; None: as the configuration says.

    Raises:
        ConfigError: If the configuration is wrong, or its environment cannot be made.
    """
    # Overrides are applied before validation, which sees the whole configuration.
    config = (
        validate_config(apply_overrides(DEFAULT, overrides))
        if source is None
        else load_config(source, overrides)
    )
    directory = code_directory()
    request = config.inspection(launch_directory=directory)
    # Playing takes a while, and only automatic sizes depend on the environment's speed.
    found = inspect_and_play(request, play="timed" if needs_pace(config) else None)
    spec = inspect_lessons(found.spec, config.lessons, request=request)
    name = "default" if source is None else source
    run_file = new_run_file(config, spec, name=name, launch_directory=directory, pace=found.pace)
    if policies is not None:
        # The sizes are set after resolution, which has filled in the populations' names.
        sizes = {f"populations.{name}.size": policies for name in run_file.config.populations}
        run_file = with_config(run_file, with_changes(run_file.config, sizes))
    return Subject(
        source=name,
        config=run_file.config,
        setup=learner_setup(run_file, root=Path(directory)),
        population=next(iter(run_file.config.populations)),
    )


def with_changes(config: RunConfig, changes: Mapping[str, object]) -> RunConfig:
    """Return a configuration with other values at some dotted paths."""
    values = [(tuple(path.split(".")), value) for path, value in changes.items()]
    # The configuration goes through plain data, so that it is validated as a whole.
    return validate_config(apply_values(config.model_dump(mode="json"), values))


def machine_facts(device: torch.device) -> dict[str, object]:
    """Return plain data: processor, cores this process may use, versions, bfloat16, GPU."""
    return {
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "bfloat16": has_bfloat16(device),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the hardware multiplies bfloat16 matrices itself; in software it is slower."""
    # "auto" takes bfloat16 only where the hardware has it.
    return product_dtype("auto", network=NetworkConfig(), device=device) is torch.bfloat16


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf8").splitlines()
    # Only Linux has this file.
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
