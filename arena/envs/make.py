"""Construction of the batched view that a configuration asks for.

Tests: `tests/arena/envs/test_batched.py`, `tests/arena/envs/batched/test_backends.py`,
`tests/arena/envs/spaces/test_critic_input.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from arena.config import EnvironmentConfig, LearnerSetup
from arena.environment_spec import EnvironmentSpec
from arena.envs.base import BatchedEnv
from arena.envs.batched.batch import GameBatch
from arena.envs.batched.find import check_backend, find_game, game_facts, names_code
from arena.envs.batched.game import BatchedGameClass
from arena.envs.batched.scoring import make_batched_score
from arena.envs.describe import populations_of
from arena.envs.one_by_one.envs import OneByOne, ToleratedFaults
from arena.envs.one_by_one.steppers import EnvsRequest, make_one_by_one, make_rows
from arena.envs.pettingzoo.buffers import check_partition
from arena.envs.pettingzoo.states import no_state
from arena.envs.random_play import action_layouts
from arena.envs.registry import TWINS
from arena.envs.spaces.agent_id_wrapper import AgentIdWrapper
from arena.envs.stepped import PettingZooBatch
from arena.envs.workers.envs import EnvWorkers, WorkerEnvs
from arena.errors import ConfigError, EnvironmentFault
from arena.processes.settings import SETTINGS
from arena.spaces import ActionLayout

logger = logging.getLogger(__name__)

OnFault = Callable[[EnvironmentFault], None] | None
OnStep = Callable[[], object] | None


def learner_request(
    setup: LearnerSetup, *, spec: EnvironmentSpec, device: torch.device
) -> EnvsRequest:
    """Return the request of a learner, for matches or for a lesson as its spec says.

    Raises:
        ConfigError: If the number of environments has not been chosen yet.
    """
    return EnvsRequest(
        setup.environment,
        spec=spec,
        sides=setup.sides,
        populations=setup.agents_of,
        num_envs=setup.num_envs,
        launch_directory=setup.launch_directory,
        device=str(device),
        agent_ids=setup.agent_ids,
        reads_state=setup.reads_state,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainEnvs:
    """Factory of batches of an environment itself, never of its twin.

    Each agent is a side, and agents with equal spaces are one population.

    Attributes:
        spec: Facts about the environment.
        launch_directory: Directory where its code is looked for first.
        possible_agents: ``environment.possible_agents``.
    """

    spec: EnvironmentSpec
    launch_directory: str
    possible_agents: Sequence[str] | None = None

    @property
    def populations(self) -> dict[str, tuple[str, ...]]:
        """Agents with equal spaces, by the name of the first."""
        return populations_of(self.spec)

    @property
    def actions(self) -> dict[str, ActionLayout]:
        """Layouts of actions by population."""
        return action_layouts(self.spec, populations=self.populations)

    def make(self, *, num_envs: int) -> BatchedEnv:
        """Make B environments, as `make_batched_env` does."""
        spec, possible = self.spec, self.possible_agents
        environment = EnvironmentConfig(
            id=spec.id,
            kwargs=dict(spec.kwargs),
            # The twin has an id of its own, so the original is forced by the backend.
            backend="pettingzoo" if spec.id in TWINS else "auto",
            possible_agents=None if possible is None else list(possible),
        )
        return make_batched_env(
            EnvsRequest(
                environment,
                spec=spec,
                sides={agent: (agent,) for agent in spec.agents},
                populations=self.populations,
                num_envs=num_envs,
                launch_directory=self.launch_directory,
            )
        )


def make_batched_env(
    request: EnvsRequest,
    *,
    on_fault: OnFault = None,
    on_step: OnStep = None,
    workers: EnvWorkers | None = None,
) -> BatchedEnv:
    """Make B environments that step as one: a batched game where there is one.

    Args:
        request: The environments.
        on_fault: Callback for each environment that broke and was made anew, its episode void,
            where environments are stepped one by one. None, or in a batched game: a fault is
            raised.
        on_step: Callback before each environment's step, where they are stepped one by one.
        workers: Processes that step the environments. None: this process does.

    Raises:
        ConfigError: If the environment cannot be made or differs from the spec, or the outcome or a
            population names an unknown agent.
    """
    check_partition(request.spec.agents, populations=request.populations)
    env = SETTINGS.run(_make_untold, request, on_fault, on_step, workers)
    # This wrapper is the outermost layer, because batched games and steppers do not know agent
    # ids.
    told = {
        name: agents for name, agents in request.populations.items() if name in request.agent_ids
    }
    return (
        AgentIdWrapper(env, populations=told, device=torch.device(request.device)) if told else env
    )


def _make_untold(
    request: EnvsRequest, on_fault: OnFault, on_step: OnStep, workers: EnvWorkers | None
) -> BatchedEnv:
    environment, spec = request.environment, request.spec
    # Only an id that has a twin or is itself a batched game has a game class.
    game_class = find_game(spec.id, launch_directory=request.launch_directory)
    check_backend(environment.possible_backend, spec.id, has_game=game_class is not None)
    if request.reads_state and environment.backend == "batched":
        raise no_state(spec.id, why="as environment.backend batched steps it")
    # A batched game has no state(), so `auto` steps the original if a value network reads it.
    is_possible = environment.possible_backend != "pettingzoo" and not request.reads_state
    if game_class is not None and is_possible:
        try:
            batch = make_game_batch(request, game_class)
        except ConfigError as error:
            # The twin may lack an option or the outcome's infos, which the original has. A user's
            # own batched game has no original to fall back on.
            if environment.backend == "batched" or names_code(spec.id):
                raise
            logger.info("stepping %s one by one: %s", spec.id, error)
        else:
            if workers is not None:
                raise ConfigError(
                    f"environment.num_env_workers must be 0 where {spec.id} steps as a batched game"
                )
            return batch
    return _make_one_by_one(request, on_fault, on_step, workers)


def make_game_batch(request: EnvsRequest, game_class: BatchedGameClass) -> GameBatch:
    """Make B games that step as one.

    Raises:
        ConfigError: If the game refuses the kwargs, differs from the spec, or cannot be scored by
            the outcome.
    """
    spec, device = request.spec, torch.device(request.device)
    # A twin may differ from the inspected original, or have other options.
    found = game_facts(spec.id, game_class, kwargs=spec.kwargs)
    if found.digest != spec.digest:
        raise ConfigError(
            f"environment.id {spec.id} must have the agents and spaces that it had when it was "
            f"inspected, {spec}, got {found}"
        )
    return GameBatch(
        spec.id,
        game=game_class(request.num_envs, device=device, **spec.kwargs),
        populations=request.populations,
        score=make_batched_score(
            request.environment.outcome,
            sides=request.sides,
            agents=spec.agents,
            launch_directory=request.launch_directory,
            device=device,
        ),
        num_sides=len(request.sides),
        num_envs=request.num_envs,
        device=device,
    )


def _make_one_by_one(
    request: EnvsRequest, on_fault: OnFault, on_step: OnStep, workers: EnvWorkers | None
) -> BatchedEnv:
    envs: OneByOne | WorkerEnvs
    if workers is None:
        rows, faults = make_rows(request), ToleratedFaults(on_fault)
        envs = make_one_by_one(request, rows, faults=faults, on_step=on_step)
    else:
        envs = workers.make(request, on_fault=on_fault, on_step=on_step)
    return PettingZooBatch(envs, device=torch.device(request.device))
