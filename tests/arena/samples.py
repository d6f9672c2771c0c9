"""Parts of play and learning of which a test says only what matters to it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from arena.config import EnvironmentConfig, NetworkConfig, RandomOpenings
from arena.core import Actor, ActorInput, ActorOutput, Algorithm, AlgorithmOutput
from arena.environment_spec import EnvironmentRequest, EnvironmentSpec
from arena.envs.base import BatchedEnv, Turn
from arena.envs.describe import environment_facts, populations_of
from arena.envs.make import OnFault, OnStep, make_batched_env
from arena.envs.one_by_one.steppers import EnvsRequest
from arena.envs.workers.envs import EnvWorkers
from arena.experience import Rollout
from arena.learning.hyperparameters import PpoHyperparameters
from arena.learning.ppo import Ppo
from arena.matches.seating import make_seats
from arena.rollout.collector import Collector, TrainingBlock
from arena.rollout.recorder import SeatedPlayer
from arena.spaces import ActionLayout
from arena.types import Entrant
from tests.layouts import flat_observation

ASSETS = str(Path(__file__).parents[1] / "assets")
CPU = torch.device("cpu")


class Counted:
    """Progress that a test reads."""

    def __init__(self) -> None:
        self.turns = 0
        self.agent_steps = 0

    def advance(self, agent_steps: int = 0) -> None:
        self.turns += 1
        self.agent_steps += agent_steps


class Always(Actor):
    """Plays one action, and counts its decisions."""

    reads_agent = False

    def __init__(self, action: int) -> None:
        self.action = action
        self.decisions = 0

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        self.decisions += len(inputs.observation)
        return ActorOutput(action=torch.full((len(inputs.observation),), self.action))


class Inert(Algorithm):
    """An algorithm as short as it can be: it does the first action and learns nothing."""

    rollout_length = 1
    gamma = gae_lambda = 1.0
    learner_updates = 0

    def act(self, inputs: ActorInput, *, generator: torch.Generator) -> AlgorithmOutput:
        zeros = torch.zeros(len(inputs.observation))
        return AlgorithmOutput(action=zeros.long(), log_prob=zeros, value=zeros)

    def value(self, inputs: ActorInput) -> torch.Tensor:
        return torch.zeros(len(inputs.observation))

    def update(self, rollout: Rollout, *, generator: torch.Generator) -> dict[str, float]:
        return {}

    def weights(self) -> dict[str, torch.Tensor]:
        return {}

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        return {}

    def load(
        self,
        weights: Mapping[str, torch.Tensor],
        optimizer_state: Mapping[str, torch.Tensor] | None,
        *,
        learner_updates: int,
    ) -> None:
        self.learner_updates = learner_updates


def make_ppo(
    network: NetworkConfig,
    *,
    size: int,
    action: ActionLayout,
    numbers: PpoHyperparameters | Mapping[str, float] | None = None,
    precision: str = "float32",
    seed: int = 1,
    **options: Any,
) -> Ppo:
    """PPO over ``size`` numbers on the processor."""
    return Ppo(
        network,
        observation=flat_observation(size),
        action=action,
        hyperparameters=PpoHyperparameters.model_validate(numbers or {}),
        device=CPU,
        precision=precision,
        seed=seed,
        **options,
    )


def make_rollout(observation: torch.Tensor, **given: Any) -> Rollout:
    """A rollout of these decisions; what is not given is zero."""
    zeros = torch.zeros(len(observation))
    fields: dict[str, Any] = dict.fromkeys(("log_prob", "value", "advantage", "return_"), zeros)
    fields |= {"action_mask": None, "action": zeros.long(), "agent_steps": len(observation)}
    return Rollout(observation=observation, **{**fields, **given})


def make_turn(reward: torch.Tensor, **given: Any) -> Turn:
    """A turn after which all goes on, unless it is said otherwise. ``reward``: [B, A]."""
    nobody = torch.zeros(reward.shape, dtype=torch.bool)
    fields: dict[str, Any] = dict.fromkeys(("terminated", "truncated"), nobody)
    fields |= {"groups": {}, "final_observation": {}, "episode_over": nobody[:, 0]}
    return Turn(reward=reward, **{**fields, "score": torch.empty(0), **given})


def make_blocks(*players: Sequence[SeatedPlayer]) -> list[TrainingBlock]:
    """Blocks of environments, whose entrants are named by block and seat."""
    return [
        TrainingBlock(
            entrants=tuple(Entrant(f"block{block}-{seat}") for seat in range(len(seated))),
            players=tuple(seated),
        )
        for block, seated in enumerate(players)
    ]


def make_collector(
    env: BatchedEnv,
    blocks: Iterable[TrainingBlock],
    *,
    sides: Mapping[str, tuple[str, ...]],
    populations: Mapping[str, tuple[str, ...]],
    action: ActionLayout,
    seed: int = 1,
    **options: Any,
) -> Collector:
    """A collector of environments whose agents all act alike."""
    fields = {"openings": RandomOpenings(), "progress": Counted(), **options}
    return Collector(
        env,
        seeds=range(env.num_envs),
        blocks=tuple(blocks),
        seats=make_seats(agents=env.agents, sides=sides, populations=populations),
        sides=tuple(sides),
        populations=populations,
        actions=dict.fromkeys(populations, action),
        generator=torch.Generator().manual_seed(seed),
        **fields,
    )


def facts_of(
    environment: str, kwargs: Mapping[str, object] | None = None, *, reads_state: bool = False
) -> EnvironmentSpec:
    """The facts of an environment, which may be one of tests/assets."""
    return environment_facts(
        EnvironmentRequest(
            environment, kwargs=kwargs or {}, launch_directory=ASSETS, reads_state=reads_state
        )
    )


def each_alone(spec: EnvironmentSpec) -> dict[str, tuple[str, ...]]:
    """Sides of one agent each."""
    return {agent: (agent,) for agent in spec.agents}


def make_request(
    spec: EnvironmentSpec,
    *,
    num_envs: int,
    sides: Mapping[str, tuple[str, ...]] | None = None,
    populations: Mapping[str, tuple[str, ...]] | None = None,
    launch_directory: str = ASSETS,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> EnvsRequest:
    """Environments in which each agent is a side, and agents with equal spaces a population.

    Args:
        config: Settings beside the environment's id and arguments.
    """
    return EnvsRequest(
        EnvironmentConfig(id=spec.id, kwargs=dict(spec.kwargs), **(config or {})),
        spec=spec,
        sides=sides or each_alone(spec),
        populations=populations or populations_of(spec),
        num_envs=num_envs,
        launch_directory=launch_directory,
        **options,
    )


def make_env(
    spec: EnvironmentSpec,
    *,
    on_fault: OnFault = None,
    on_step: OnStep = None,
    workers: EnvWorkers | None = None,
    **request: Any,
) -> BatchedEnv:
    """Make the environments of `make_request`."""
    asked = make_request(spec, **request)
    return make_batched_env(asked, on_fault=on_fault, on_step=on_step, workers=workers)
