"""Construction of the batched view that a configuration asks for.

Tests: `tests/arena/envs/test_batched.py`, `tests/arena/envs/batched/test_backends.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from pettingzoo.utils.conversions import aec_to_parallel_wrapper

from arena.config import EnvironmentConfig, LearnerSetup
from arena.environment_spec import EnvironmentSpec
from arena.envs.agents import agents_of
from arena.envs.base import BatchedEnv
from arena.envs.batched.batch import GameBatch
from arena.envs.batched.find import check_backend, find_game, game_facts, names_code
from arena.envs.batched.game import BatchedGameClass
from arena.envs.batched.scoring import make_batched_score
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
from arena.envs.random_play import populations_of
from arena.envs.registry import make_environment
from arena.envs.spaces.agent_id_wrapper import AgentIdWrapper
from arena.envs.spaces.observations import ObservationLayout
from arena.envs.twins import TWINS
from arena.errors import ConfigError, EnvironmentFault

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """B environments to make, stepped as one.

    Attributes:
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
    """

    environment: EnvironmentConfig
    _: KW_ONLY
    spec: EnvironmentSpec
    sides: Mapping[str, tuple[str, ...]]
    populations: Mapping[str, tuple[str, ...]]
    num_envs: int
    launch_directory: str
    device: torch.device = CPU
    agent_ids: Collection[str] = ()
    reads_state: bool = False
    on_fault: Callable[[EnvironmentFault], None] | None = None
    on_step: Callable[[], object] | None = None

    @classmethod
    def of_setup(
        cls, setup: LearnerSetup, *, spec: EnvironmentSpec, device: torch.device
    ) -> BatchRequest:
        """Return the request of a learner, for matches or for a lesson as its spec says.

        Raises:
            ConfigError: If the number of environments has not been chosen yet.
        """
        return cls(
            setup.environment,
            spec=spec,
            sides=setup.sides,
            populations=setup.agents_of,
            num_envs=setup.num_envs,
            launch_directory=setup.launch_directory,
            device=device,
            agent_ids=setup.agent_ids,
            reads_state=setup.reads_state,
        )

    @classmethod
    def of_spec(
        cls,
        spec: EnvironmentSpec,
        *,
        num_envs: int,
        launch_directory: str,
        possible_agents: list[str] | None = None,
    ) -> BatchRequest:
        """Return the request to look at an environment itself, never its twin.

        Each agent is a side, and agents with equal spaces are one population.
        """
        return cls(
            EnvironmentConfig(
                id=spec.id,
                kwargs=dict(spec.kwargs),
                # A twin has an id of its own.
                backend="pettingzoo" if spec.id in TWINS else "auto",
                possible_agents=possible_agents,
            ),
            spec=spec,
            sides={agent: (agent,) for agent in spec.agents},
            populations=populations_of(spec),
            num_envs=num_envs,
            launch_directory=launch_directory,
        )


def make_batched_env(request: BatchRequest) -> BatchedEnv:
    """Make B environments that step as one: a batched game where there is one.

    Raises:
        ConfigError: If the environment cannot be made or differs from the spec, or the outcome or a
            population names an unknown agent.
    """
    check_partition(request.spec.agents, populations=request.populations)
    env = _make_untold(request)
    # The outermost layer: batched games and steppers alike know nothing of agent ids.
    told = {
        name: agents for name, agents in request.populations.items() if name in request.agent_ids
    }
    return AgentIdWrapper(env, populations=told, device=request.device) if told else env


def _make_untold(request: BatchRequest) -> BatchedEnv:
    environment, spec = request.environment, request.spec
    # None where the id has neither a twin nor is a batched game itself
    game_class = find_game(spec.id, launch_directory=request.launch_directory)
    check_backend(environment.possible_backend, spec.id, has_game=game_class is not None)
    if request.reads_state and environment.backend == "batched":
        raise no_state(spec.id, why="as environment.backend batched steps it")
    # A batched game has no state(), so `auto` steps the original where a value network reads it.
    is_possible = environment.possible_backend != "pettingzoo" and not request.reads_state
    if game_class is not None and is_possible:
        try:
            return make_game_batch(request, game_class)
        except ConfigError as error:
            # The twin may lack an option or the outcome's infos, which the original has. A user's
            # own batched game has no original to fall back on.
            if environment.backend == "batched" or names_code(spec.id):
                raise
            logger.info("stepping %s one by one: %s", spec.id, error)
    return _make_one_by_one(request)


def make_game_batch(request: BatchRequest, game_class: BatchedGameClass) -> GameBatch:
    """Make B games that step as one.

    Raises:
        ConfigError: If the game refuses the kwargs, differs from the spec, or cannot be scored by
            the outcome.
    """
    spec, device = request.spec, request.device
    # A twin may differ from the inspected original, or know other options.
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


def _make_one_by_one(request: BatchRequest) -> BatchedEnv:
    environment, spec, device = request.environment, request.spec, request.device
    score = make_outcome(
        environment.outcome,
        sides=request.sides,
        agents=spec.agents,
        launch_directory=request.launch_directory,
    )
    buffers = Buffers(
        spec,
        populations=request.populations,
        num_envs=request.num_envs,
        num_sides=len(request.sides),
        device=device,
        continuous_actions=environment.continuous_actions,
        components=tuple(environment.reward_weights),
    )
    # Before the steppers: each one writes its row of the states.
    states = _states(spec, buffers) if request.reads_state else None
    keeps_infos = needs_infos(environment.outcome)
    phases = Phases(request.num_envs)
    if is_openspiel(spec.id):
        make_stepper = _openspiel_stepper(spec, populations=request.populations)
    else:
        make_stepper = _pettingzoo_stepper(request, states=states, phases=phases)

    # Also called where environment b broke: a new row forgets the old returns and infos.
    def make(b: int) -> Stepper:
        return make_stepper(EpisodeRow(buffers, b=b, score=score, keeps_infos=keeps_infos))

    batch = PettingZooBatch(
        spec.id,
        buffers=buffers,
        steppers=[make(b) for b in range(request.num_envs)],
        remake=make,
        on_fault=request.on_fault,
        on_step=request.on_step,
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
    request: BatchRequest, *, states: States | None, phases: Phases
) -> Callable[[EpisodeRow], Stepper]:
    """Return the factory of a row's stepper, which checks its first environment against the spec.

    The factory raises ConfigError if the environment cannot be made or differs.
    """
    spec, possible_agents = request.spec, request.environment.possible_agents
    # One agent without a mask suffices for an illegal move that the game must judge.
    has_masks = all(agent.mask is not None for agent in spec.agent_specs.values())
    stepper = _stepper(spec, populations=request.populations)

    def make(row: EpisodeRow) -> Stepper:
        env = make_environment(
            spec.id, kwargs=spec.kwargs, api=spec.api, launch_directory=request.launch_directory
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
