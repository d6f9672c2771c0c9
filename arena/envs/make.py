"""Construction of the batched view that a configuration asks for.

Tests: `tests/arena/envs/test_batched.py`, `tests/arena/envs/batched/test_backends.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from pettingzoo.utils.conversions import aec_to_parallel_wrapper

from arena.config import EnvironmentConfig
from arena.environment_spec import EnvironmentSpec
from arena.envs.agents import agents_of
from arena.envs.base import BatchedEnv
from arena.envs.batched.find import check_backend, find_game, names_code
from arena.envs.batched.native import make_game_batch
from arena.envs.describe import MASK_SEED, agent_spec
from arena.envs.openspiel.game import is_openspiel, load_game, openspiel_facts
from arena.envs.openspiel.stepper import OpenSpielStepper
from arena.envs.outcome import make_outcome, needs_infos
from arena.envs.pettingzoo.aec import AecStepper
from arena.envs.pettingzoo.batch import PettingZooBatch, Stepper
from arena.envs.pettingzoo.buffers import Buffers, check_partition
from arena.envs.pettingzoo.cycle_to_parallel import Cycle
from arena.envs.pettingzoo.episode import EpisodeRow
from arena.envs.pettingzoo.global_state import no_state
from arena.envs.pettingzoo.global_state_wrapper import GlobalStateWrapper, States
from arena.envs.pettingzoo.parallel import ParallelStepper
from arena.envs.pettingzoo.reward_components import ComponentRow, ReportingAtOnce, ReportingTurns
from arena.envs.pettingzoo.strip_wrappers import holder_of_state, strip_checking_wrappers
from arena.envs.pettingzoo.told_stepper import Phases
from arena.envs.registry import make_environment
from arena.envs.spaces.agent_id_wrapper import AgentIdWrapper
from arena.envs.spaces.observations import ObservationLayout
from arena.errors import ConfigError, EnvironmentFault

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")


def make_batched_env(
    environment: EnvironmentConfig,
    *,
    spec: EnvironmentSpec,
    sides: Mapping[str, tuple[str, ...]],
    populations: Mapping[str, tuple[str, ...]],
    num_envs: int,
    launch_directory: str,
    device: torch.device = CPU,
    agent_ids: Collection[str] = (),
    reads_state: bool = False,
    on_fault: Callable[[EnvironmentFault], None] | None = None,
    on_step: Callable[[], object] | None = None,
) -> BatchedEnv:
    """Make B environments that step as one: a batched game where there is one.

    Args:
        environment: Configuration: ``outcome`` is the rule that scores a match, ``backend`` the way
            of stepping.
        spec: Inspected environment; id and kwargs are taken from here.
        sides: Agents by side, in the order of the score's columns.
        populations: Agents by population; every agent is in one.
        num_envs: B.
        launch_directory: Directory put first on ``sys.path``.
        device: Device of the turns.
        agent_ids: Populations whose observations end with a one-hot agent id.
        reads_state: Whether turns contain the environment's state.
        on_fault: Callback for each environment that broke and was made anew, its episode void,
            where environments are stepped one by one. None, or in a batched game: a fault is
            raised.
        on_step: Callback before each environment's step, where they are stepped one by one.

    Raises:
        ConfigError: If the environment cannot be made or differs from the spec, or the outcome or a
            population names an unknown agent.
    """
    check_partition(spec.agents, populations=populations)
    env = _make_untold(
        environment,
        spec=spec,
        sides=sides,
        populations=populations,
        num_envs=num_envs,
        launch_directory=launch_directory,
        device=device,
        reads_state=reads_state,
        on_fault=on_fault,
        on_step=on_step,
    )
    # The outermost layer: batched games and steppers alike know nothing of agent ids.
    told = {name: agents for name, agents in populations.items() if name in agent_ids}
    return AgentIdWrapper(env, populations=told, device=device) if told else env


def _make_untold(
    environment: EnvironmentConfig,
    *,
    spec: EnvironmentSpec,
    sides: Mapping[str, tuple[str, ...]],
    populations: Mapping[str, tuple[str, ...]],
    num_envs: int,
    launch_directory: str,
    device: torch.device,
    reads_state: bool,
    on_fault: Callable[[EnvironmentFault], None] | None,
    on_step: Callable[[], object] | None,
) -> BatchedEnv:
    # None where the id has neither a twin nor is a batched game itself
    game_class = find_game(spec.id, launch_directory=launch_directory)
    check_backend(environment.possible_backend, spec.id, has_game=game_class is not None)
    if reads_state and environment.backend == "batched":
        raise no_state(spec.id, why="as environment.backend batched steps it")
    # A batched game has no state(), so `auto` steps the original where a value network reads it.
    if game_class is not None and environment.possible_backend != "pettingzoo" and not reads_state:
        try:
            return make_game_batch(
                environment,
                game_class,
                spec=spec,
                sides=sides,
                populations=populations,
                num_envs=num_envs,
                launch_directory=launch_directory,
                device=device,
            )
        except ConfigError as error:
            # The twin may lack an option or the outcome's infos, which the original has. A user's
            # own batched game has no original to fall back on.
            if environment.backend == "batched" or names_code(spec.id):
                raise
            logger.info("stepping %s one by one: %s", spec.id, error)
    return _make_one_by_one(
        environment,
        spec=spec,
        sides=sides,
        populations=populations,
        num_envs=num_envs,
        launch_directory=launch_directory,
        device=device,
        reads_state=reads_state,
        on_fault=on_fault,
        on_step=on_step,
    )


def _make_one_by_one(
    environment: EnvironmentConfig,
    *,
    spec: EnvironmentSpec,
    sides: Mapping[str, tuple[str, ...]],
    populations: Mapping[str, tuple[str, ...]],
    num_envs: int,
    launch_directory: str,
    device: torch.device,
    reads_state: bool,
    on_fault: Callable[[EnvironmentFault], None] | None,
    on_step: Callable[[], object] | None,
) -> BatchedEnv:
    score = make_outcome(
        environment.outcome, sides=sides, agents=spec.agents, launch_directory=launch_directory
    )
    buffers = Buffers(
        spec,
        populations=populations,
        num_envs=num_envs,
        num_sides=len(sides),
        device=device,
        continuous_actions=environment.continuous_actions,
        components=tuple(environment.reward_weights),
    )
    # Before the steppers: each one writes its row of the states.
    states = _states(spec, buffers) if reads_state else None
    keeps_infos = needs_infos(environment.outcome)
    phases = Phases(num_envs)
    if is_openspiel(spec.id):
        make_stepper = _openspiel_stepper(spec, populations=populations)
    else:
        make_stepper = _pettingzoo_stepper(
            spec,
            populations=populations,
            launch_directory=launch_directory,
            possible_agents=environment.possible_agents,
            states=states,
            phases=phases,
        )

    # Also called where environment b broke: a new row forgets the old returns and infos.
    def make(b: int) -> Stepper:
        return make_stepper(EpisodeRow(buffers, b=b, score=score, keeps_infos=keeps_infos))

    batch = PettingZooBatch(
        spec.id,
        buffers=buffers,
        steppers=[make(b) for b in range(num_envs)],
        remake=make,
        on_fault=on_fault,
        on_step=on_step,
        on_tell=phases.post,
    )
    return batch if states is None else GlobalStateWrapper(batch, states=states, device=device)


def _states(spec: EnvironmentSpec, buffers: Buffers) -> States:
    if spec.state is None:
        raise no_state(spec.id, why="or it was not looked at when it was inspected")
    # The buffers' array itself: after a step it tells which rows need a final state.
    return States(ObservationLayout.from_json(spec.state), truncated=buffers.truncated)


def _openspiel_stepper(
    spec: EnvironmentSpec, *, populations: Mapping[str, tuple[str, ...]]
) -> Callable[[EpisodeRow], Stepper]:
    # The digest covers form, agents and spaces at once; versions may differ.
    if openspiel_facts(spec.id, kwargs=spec.kwargs).digest != spec.digest:
        raise ConfigError(f"environment.id {spec.id} is not what it was when it was inspected")
    # One game for all rows: a game is immutable, its states are not.
    game = load_game(spec.id, spec.kwargs)
    in_turn = spec.api == "aec"
    actions_of = {
        # In turns all agents of a population share one slot; else each agent has its own.
        agent: (name, 0, 1) if in_turn else (name, slot, len(agents))
        for name, agents in populations.items()
        for slot, agent in enumerate(agents)
    }
    return lambda row: OpenSpielStepper(game, row=row, actions_of=actions_of)


def _pettingzoo_stepper(
    spec: EnvironmentSpec,
    *,
    populations: Mapping[str, tuple[str, ...]],
    launch_directory: str,
    possible_agents: Sequence[str] | None,
    states: States | None,
    phases: Phases,
) -> Callable[[EpisodeRow], Stepper]:
    """Return the factory of a row's stepper, which checks its first environment against the spec.

    The factory raises ConfigError if the environment cannot be made or differs.
    """
    # One agent without a mask suffices for an illegal move that the game must judge.
    has_masks = all(agent.mask is not None for agent in spec.agent_specs.values())
    stepper = _stepper(spec, populations=populations)

    def make(row: EpisodeRow) -> Stepper:
        env = make_environment(
            spec.id, kwargs=spec.kwargs, api=spec.api, launch_directory=launch_directory
        )
        # Kept with its wrappers: `Cycle`, which replaces a conversion below, has no state().
        whole = env
        # The first environment stands for all: they come from the same factory and kwargs.
        if row.b == 0:
            _check_spec(env, spec=spec, possible_agents=possible_agents)
        if row.components is None:
            env = strip_checking_wrappers(env, has_masks=has_masks)
        else:
            env = _reporting(env, api=spec.api, has_masks=has_masks, components=row.components)
        made = phases.watching(stepper(env, row), whole, b=row.b)
        return made if states is None else states.watching(made, whole, b=row.b)

    return make


def _reporting(
    env: Any,  # noqa: ANN401
    *,
    api: str,
    has_masks: bool,
    components: ComponentRow,
) -> Any:  # noqa: ANN401
    """Strip PettingZoo's checking wrappers, and credit the components of rewards in steps."""
    if api == "parallel" and type(env) is not aec_to_parallel_wrapper:
        return ReportingAtOnce(
            strip_checking_wrappers(env, has_masks=has_masks), components=components
        )
    # The components go below the cycle:
    # In a cycle each turn has its own components; the infos of the last turn do not contain all.
    is_cycle = api == "parallel"
    turns = strip_checking_wrappers(env.aec_env if is_cycle else env, has_masks=has_masks)
    state = holder_of_state(turns)
    reporting = ReportingTurns(turns, state=state, components=components)
    # `strip_checking_wrappers` was given the inner environment, so the cycle is rebuilt here.
    return Cycle(reporting, state=state) if is_cycle else reporting


def _stepper(
    spec: EnvironmentSpec, *, populations: Mapping[str, tuple[str, ...]]
) -> Callable[[Any, EpisodeRow], Stepper]:
    """Return the factory of a stepper from an environment and its row."""
    if spec.api == "parallel":
        # `ParallelStepper` finds its action in [B * P] by the position.
        at_once = {
            agent: (name, position, len(agents))
            for name, agents in populations.items()
            for position, agent in enumerate(agents)
        }
        return lambda env, row: ParallelStepper(env, row=row, actions_of=at_once)
    in_turn = {agent: name for name, agents in populations.items() for agent in agents}
    return lambda env, row: AecStepper(env, row=row, population_of=in_turn)


def _check_spec(
    env: Any,  # noqa: ANN401
    *,
    spec: EnvironmentSpec,
    possible_agents: Sequence[str] | None,
) -> None:
    agents = agents_of(env, environment_id=spec.id, declared=possible_agents)
    if possible_agents is not None:
        # An environment that creates agents as it goes knows their spaces only in an episode.
        # The stepper resets before it plays, so that this episode leaves no trace.
        env.reset(seed=MASK_SEED)
    if agents != spec.agents:
        raise ConfigError(
            f"environment.id {spec.id} must have the agents {spec.agents} that it had when it was "
            f"inspected, got {agents}"
        )
    for agent, known in spec.agent_specs.items():
        found = agent_spec(env, agent)
        # Masks are left out: those in info show only after a reset.
        if (found.observation, found.action) != (known.observation, known.action):
            raise ConfigError(
                f"environment.id {spec.id} must have the spaces of agent {agent!r} that it had "
                f"when it was inspected, {known}, got {found}"
            )
