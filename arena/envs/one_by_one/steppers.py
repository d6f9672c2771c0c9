"""Construction of the environments that are stepped one by one, and of their rows.

Tests: `tests/arena/envs/test_batched.py`, `tests/arena/envs/batched/test_backends.py`,
`tests/arena/envs/test_phase.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from arena.config import EnvironmentConfig
from arena.environment_spec import EnvironmentSpec
from arena.envs.describe import MASK_SEED, agent_spec, agents_of
from arena.envs.one_by_one.envs import Faults, OneByOne
from arena.envs.openspiel.game import OpenSpielGame, is_openspiel, load_game, openspiel_facts
from arena.envs.openspiel.stepper import OpenSpielStepper
from arena.envs.outcome import make_outcome, needs_infos
from arena.envs.pettingzoo.aec import AecStepper
from arena.envs.pettingzoo.buffers import Buffers
from arena.envs.pettingzoo.cycle_to_parallel import strip_checking_wrappers
from arena.envs.pettingzoo.episode import EpisodeRow, Stepper
from arena.envs.pettingzoo.parallel import ParallelStepper
from arena.envs.pettingzoo.pending_decisions import Allocate
from arena.envs.pettingzoo.states import no_state
from arena.envs.registry import make_of_spec
from arena.errors import ConfigError


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


def make_rows(request: EnvsRequest, *, allocate: Allocate = np.zeros, first: int = 0) -> Buffers:
    """Allocate the rows of B environments, with states if a value network reads them.

    Args:
        request: The environments.
        allocate: Function that allocates what a turn shows.
        first: Index of the first environment in the batch that these are a share of.

    Raises:
        ConfigError: If a value network reads the state of an environment that has none.
    """
    environment, spec = request.environment, request.spec
    if request.reads_state and spec.state is None:
        raise no_state(spec.id, why="or it was not looked at when it was inspected")
    return Buffers(
        spec,
        populations=request.populations,
        num_envs=request.num_envs,
        num_sides=len(request.sides),
        continuous_actions=environment.continuous_actions,
        components=tuple(environment.reward_weights),
        state=spec.state if request.reads_state else None,
        allocate=allocate,
        first=first,
    )


def make_one_by_one(
    request: EnvsRequest,
    buffers: Buffers,
    *,
    faults: Faults,
    on_step: Callable[[], object] | None,
) -> OneByOne:
    """Make B environments that step in this process.

    Args:
        request: The environments.
        buffers: Buffers that they fill.
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
    # One game serves all rows: a game is immutable, unlike its states.
    game = checked_game(spec) if is_openspiel(spec.id) else None
    # The wrapper is needed as soon as one agent has no mask, because then the game judges illegal
    # moves.
    has_masks = all(agent.mask is not None for agent in spec.agent_specs.values())

    # This is also called after environment b broke, so that a new row has no old returns and
    # infos.
    def make(b: int) -> tuple[Stepper, object]:
        row = EpisodeRow(buffers, b=b, score=score, keeps_infos=keeps_infos)
        if game is not None:
            return OpenSpielStepper(game, row=row), None
        env = make_of_spec(spec, launch_directory=request.launch_directory)
        # The first environment stands for all, which have the same factory and arguments.
        if b == 0:
            check_spec(env, spec=spec, possible_agents=environment.possible_agents)
        bare = strip_checking_wrappers(env, has_masks=has_masks, components=row.components)
        # The state is read with the wrappers, because `Cycle`, which replaces a conversion, has no
        # state().
        return make_stepper(bare, row, api=spec.api), env

    return OneByOne(
        spec.id,
        buffers=buffers,
        num_envs=request.num_envs,
        make=make,
        faults=faults,
        on_step=on_step,
    )


def make_stepper(env: Any, row: EpisodeRow, *, api: str) -> Stepper:  # noqa: ANN401
    """Make the stepper of a PettingZoo environment of either form."""
    return AecStepper(env, row=row) if api == "aec" else ParallelStepper(env, row=row)


def checked_game(spec: EnvironmentSpec) -> OpenSpielGame:
    """Load a game of OpenSpiel.

    Raises:
        ConfigError: If the game cannot be made or differs from the spec.
    """
    # The digest covers API, agents and spaces at once; versions may differ.
    if openspiel_facts(spec.id, kwargs=spec.kwargs).digest != spec.digest:
        raise ConfigError(f"environment.id {spec.id} is not what it was when it was inspected")
    return load_game(spec.id, spec.kwargs)


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
        # An environment that creates agents has their spaces only during an episode. The stepper
        # resets before it plays, so this episode leaves no trace.
        env.reset(seed=MASK_SEED)
    if agents != spec.agents:
        raise ConfigError(
            f"environment.id {spec.id} must have the agents {spec.agents} that it had when it was "
            f"inspected, got {agents}"
        )
    for agent, known in spec.agent_specs.items():
        found = agent_spec(env, agent)
        # Masks are not compared, because those in infos are found only after a reset.
        if (found.observation, found.action) != (known.observation, known.action):
            raise ConfigError(
                f"environment.id {spec.id} must have the spaces of agent {agent!r} that it had "
                f"when it was inspected, {known}, got {found}"
            )
