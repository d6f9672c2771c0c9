"""Construction of the environments that are stepped one by one, and of the rows that they fill.

Those with a method ``set_phase`` are told their phase before their episodes.

Tests: `tests/arena/envs/test_batched.py`, `tests/arena/envs/batched/test_backends.py`,
`tests/arena/envs/test_phase.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from pettingzoo.utils.conversions import aec_to_parallel_wrapper

from arena.config import EnvironmentConfig
from arena.environment_spec import EnvironmentSpec
from arena.envs.base import Phase
from arena.envs.describe import MASK_SEED, agent_spec, agents_of
from arena.envs.one_by_one.envs import Faults, OneByOne
from arena.envs.openspiel.game import is_openspiel, load_game, openspiel_facts
from arena.envs.openspiel.stepper import OpenSpielStepper
from arena.envs.outcome import make_outcome, needs_infos
from arena.envs.pettingzoo.aec import AecStepper
from arena.envs.pettingzoo.buffers import Allocate, Buffers
from arena.envs.pettingzoo.cycle_to_parallel import Cycle, holder_of_state, strip_checking_wrappers
from arena.envs.pettingzoo.episode import EpisodeRow, Stepper
from arena.envs.pettingzoo.parallel import ParallelStepper
from arena.envs.pettingzoo.reward_components import ComponentRow, ReportingAtOnce, ReportingTurns
from arena.envs.pettingzoo.states import States, no_state
from arena.envs.registry import make_environment
from arena.envs.spaces.observations import ObservationLayout
from arena.errors import ConfigError, EnvironmentFault
from arena.users_code import pass_interrupt, raised

SetPhase = Callable[[str, int | None, dict[str, str]], object]

MAX_WRAPPERS = 64
"""Wrappers that are looked through, so that one which contains itself ends the search."""


@dataclass(frozen=True, slots=True)
class EnvsRequest:
    """B environments to make.

    Attributes:
        environment: Configuration: ``outcome`` is the rule that scores a match.
        spec: Inspected environment; id and kwargs are taken from here.
        sides: Agents by side, in the order of the score's columns.
        populations: Agents by population; every agent is in one.
        num_envs: B.
        launch_directory: Directory put first on ``sys.path``.
        reads_state: Whether turns contain the environment's state.
        device: Device of the turns.
        agent_ids: Populations whose observations end with a one-hot agent id.
    """

    environment: EnvironmentConfig
    _: KW_ONLY
    spec: EnvironmentSpec
    sides: Mapping[str, tuple[str, ...]]
    populations: Mapping[str, tuple[str, ...]]
    num_envs: int
    launch_directory: str
    reads_state: bool = False
    device: str = "cpu"
    agent_ids: tuple[str, ...] = ()


def make_rows(
    request: EnvsRequest, *, allocate: Allocate = np.zeros, first: int = 0
) -> tuple[Buffers, States | None]:
    """Allocate the rows of B environments: buffers, and states if somebody reads them.

    Args:
        request: The environments.
        allocate: Function that allocates what a turn shows.
        first: Index of the first environment in the batch that these are a share of.

    Raises:
        ConfigError: If a value network reads the state of an environment that has none.
    """
    environment, spec = request.environment, request.spec
    buffers = Buffers(
        spec,
        populations=request.populations,
        num_envs=request.num_envs,
        num_sides=len(request.sides),
        continuous_actions=environment.continuous_actions,
        components=tuple(environment.reward_weights),
        allocate=allocate,
        first=first,
    )
    if not request.reads_state:
        return buffers, None
    if spec.state is None:
        raise no_state(spec.id, why="or it was not looked at when it was inspected")
    layout = ObservationLayout.from_json(spec.state)
    # The buffers' array itself: after a step it tells which rows need a final state.
    return buffers, States(layout, truncated=buffers.truncated, allocate=allocate)


def make_one_by_one(
    request: EnvsRequest,
    buffers: Buffers,
    states: States | None,
    *,
    faults: Faults,
    on_step: Callable[[], object] | None,
) -> OneByOne:
    """Make B environments that step in this process.

    Args:
        request: The environments.
        buffers: Buffers that they fill.
        states: States that they fill, too; None: nobody reads them.
        faults: Faults since a reset.
        on_step: Callback before each environment's step.

    Raises:
        ConfigError: If an environment cannot be made or differs from the spec, or the outcome names
            an unknown agent.
    """
    environment, spec = request.environment, request.spec
    score = make_outcome(
        environment.outcome,
        sides=request.sides,
        agents=spec.agents,
        launch_directory=request.launch_directory,
    )
    keeps_infos = needs_infos(environment.outcome)
    phases = Phases(request.num_envs)
    make_stepper: Callable[[EpisodeRow], Stepper]
    if is_openspiel(spec.id):
        make_stepper = openspiel_stepper(spec, populations=request.populations)
    else:
        make_stepper = _pettingzoo_stepper(request, states=states, phases=phases)

    # Also called where environment b broke: a new row forgets the old returns and infos.
    def make(b: int) -> Stepper:
        return make_stepper(EpisodeRow(buffers, b=b, score=score, keeps_infos=keeps_infos))

    return OneByOne(
        spec.id,
        buffers=buffers,
        steppers=[make(b) for b in range(request.num_envs)],
        remake=make,
        faults=faults,
        on_step=on_step,
        on_tell=phases.post,
    )


def openspiel_stepper(
    spec: EnvironmentSpec, *, populations: Mapping[str, tuple[str, ...]]
) -> Callable[[EpisodeRow], OpenSpielStepper]:
    """Return the factory of a row's stepper.

    Raises:
        ConfigError: If the game cannot be made or differs from the spec.
    """
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
    request: EnvsRequest, *, states: States | None, phases: Phases
) -> Callable[[EpisodeRow], Stepper]:
    """Return the factory of a row's stepper, which checks its first environment against the spec.

    The factory raises ConfigError if the environment cannot be made or differs.
    """
    spec, possible_agents = request.spec, request.environment.possible_agents
    # One agent without a mask suffices for an illegal move that the game must judge.
    has_masks = all(agent.mask is not None for agent in spec.agent_specs.values())
    stepper = stepper_of(spec, populations=request.populations)

    def make(row: EpisodeRow) -> Stepper:
        env = make_environment(
            spec.id, kwargs=spec.kwargs, api=spec.api, launch_directory=request.launch_directory
        )
        # Kept with its wrappers: `Cycle`, which replaces a conversion below, has no state().
        whole = env
        # The first environment stands for all: they come from the same factory and kwargs.
        if row.b == 0:
            check_spec(env, spec=spec, possible_agents=possible_agents)
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


def stepper_of(
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


def check_spec(
    env: Any,  # noqa: ANN401
    *,
    spec: EnvironmentSpec,
    possible_agents: Sequence[str] | None,
) -> None:
    """Refuse an environment that differs from its spec.

    Raises:
        ConfigError: If its agents or spaces are others.
    """
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


def find_set_phase(env: Any) -> SetPhase | None:  # noqa: ANN401
    """Return the outermost ``set_phase`` of an environment and its wrappers, if there is one."""
    for _ in range(MAX_WRAPPERS):
        method = getattr(env, "set_phase", None)
        if callable(method):
            found: SetPhase = method
            return found
        # PettingZoo's conversions pass no other attributes on.
        inner = getattr(env, "env", None)
        env = getattr(env, "aec_env", None) if inner is None else inner
        if env is None:
            return None
    return None


class Phases:
    """Phase of each environment of a batch; None: told nothing yet.

    Args:
        num_envs: B.
    """

    def __init__(self, num_envs: int) -> None:
        self.of_env: list[Phase | None] = [None] * num_envs

    def post(self, phases: Sequence[Phase]) -> None:
        """Replace the phases. Length B."""
        self.of_env[:] = phases

    def watching(self, stepper: Stepper, env: Any, *, b: int) -> Stepper:  # noqa: ANN401
        """Return a stepper that tells its environment; the same one if that has no ``set_phase``.

        Args:
            stepper: Stepper of the environment.
            env: The environment with all its wrappers.
            b: Index of the environment in the batch.
        """
        set_phase = find_set_phase(env)
        return stepper if set_phase is None else ToldStepper(stepper, set_phase, phases=self, b=b)


class ToldStepper:
    """`Stepper` that tells its environment the phase before an episode, where it has changed.

    Args:
        stepper: Stepper of the environment.
        set_phase: Method of the environment.
        phases: Phases of the batch.
        b: Index of the environment in the batch.
    """

    def __init__(self, stepper: Stepper, set_phase: SetPhase, *, phases: Phases, b: int) -> None:
        self._stepper = stepper
        self._set_phase = set_phase
        self._phases = phases
        self._b = b
        self._told: Phase | None = None
        self._has_stepped = False

    @property
    def on_turn(self) -> str:
        """Agent whose action is carried out, for messages."""
        return self._stepper.on_turn

    def start(self, seed: int) -> None:
        """Tell the phase if it is another one, then reset.

        Raises:
            EnvironmentFault: If ``set_phase`` raises.
        """
        self._tell()
        self._has_stepped = False
        self._stepper.start(seed)

    def step(self, actions: Mapping[str, list[Any]]) -> bool:
        """Step as `Stepper.step` does."""
        if not self._has_stepped:
            # An episode that was reset by an assignment may begin in the next one.
            self._tell()
            self._has_stepped = True
        return self._stepper.step(actions)

    def close(self) -> None:
        """Release everything that the environment holds."""
        self._stepper.close()

    def _tell(self) -> None:
        phase = self._phases.of_env[self._b]
        # By identity: each assignment brings its own.
        if phase is None or phase is self._told:
            return
        try:
            # A dictionary of its own: a user's code may change it.
            self._set_phase(phase.name, phase.agent_steps, dict(phase.players))
        except BaseException as error:
            pass_interrupt(error)
            # A user's environment may raise anything.
            raise EnvironmentFault(raised("set_phase", error)) from error
        self._told = phase
