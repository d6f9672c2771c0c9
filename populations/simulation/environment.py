"""Environment of simulated learners: agents without observations, which needs no inspection.

A simulated league knows only which agents meet, so a configuration can be tried without starting
its environment or importing its packages.

Tests: `tests/populations/simulation/test_league.py`.
"""

from __future__ import annotations

from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.errors import ConfigError
from arena.resolve import code_directory
from arena.types import is_bot
from populations.config.resolve import resolve_config
from populations.config.run_config import RunConfig
from populations.config.run_file import RunFile
from populations.config.sections import PopulationConfig

NUM_LEARNERS = 4
"""Default number of learners; it is constant, so that results do not depend on the machine."""

INTERVALS = 10
"""Number of PBT intervals after which a run without a limit in agent steps ends."""


def simulated_config(config: RunConfig, *, num_policies: int | None = None) -> RunConfig:
    """Return a configuration of the same league whose environment is replaced by a simple game.

    A single population has both seats of a game for two. Several populations have one seat each and
    all play against all, in cooperation, too. ``stop.duration_s`` and ``stop.success_rate`` are
    left out; without a limit in agent steps, a policy trains for ``INTERVALS`` intervals of PBT.

    Args:
        config: Configuration as loaded.
        num_policies: Size of every population. None: as configured.

    Raises:
        ConfigError: If the configuration contradicts itself, or another run's player has agents,
            for which no skill is known.
    """
    populations = dict(config.populations) or {"player": PopulationConfig()}
    for name, population in populations.items():
        if population.player is not None and not is_bot(population.player):
            raise ConfigError(
                f"populations.{name}.player must be a bot where learners are simulated (weights of "
                f"other runs have no planted skill), got {population.player!r}"
            )
    updates: dict[str, object] = {} if num_policies is None else {"size": num_policies}
    agents = _agents(populations)
    simulated = {
        name: population.model_copy(update={**updates, "agents": agents[name]})
        for name, population in populations.items()
    }
    # Cooperation becomes a competition, too, because ratings and PBT are tested equally well by it.
    environment = config.environment.model_copy(
        update={"sides": None, "outcome": "return", "kwargs": {}}
    )
    # Simulated seconds say nothing about a real machine, so a limit of duration is meaningless.
    stop = config.stop.model_copy(update={"duration_s": None, "success_rate": None})
    if stop.agent_steps_per_policy is None and stop.agent_steps is None:
        pbt = config.pbt
        limit = pbt.warm_up_agent_steps + INTERVALS * pbt.ready_agent_steps
        stop = stop.model_copy(update={"agent_steps_per_policy": limit})
    changed = config.model_copy(
        update={"populations": simulated, "environment": environment, "stop": stop}
    )
    return resolve_config(
        changed,
        simulated_spec(changed),
        launch_directory=code_directory(),
        num_cores=NUM_LEARNERS,
    )


def simulated_spec(config: RunConfig) -> EnvironmentSpec:
    """Return the spec of an environment with the agents that the populations name."""
    agents = tuple(
        agent for population in config.populations.values() for agent in population.agents or ()
    )
    # A specification must have spaces, but simulated learners never read them.
    box = {"kind": "Box", "shape": [1], "dtype": "float32", "low": None, "high": None}
    discrete = {"kind": "Discrete", "n": 2, "start": 0}
    agent_spec = AgentSpec(observation=box, action=discrete, mask=None)
    return EnvironmentSpec(
        id=config.environment.id,
        kwargs={},
        api="aec",
        agents=agents,
        agent_specs=dict.fromkeys(agents, agent_spec),
    )


def simulated_run(config: RunConfig) -> RunFile:
    """Return the run file of a simulated run; nothing is written."""
    return RunFile(
        run="simulated",
        name="simulated",
        created="2000-01-01T00:00:00+00:00",
        launched_in="",
        launch_directory=code_directory(),
        init_from=None,
        versions={},
        config=config,
        spec=simulated_spec(config),
    )


def _agents(populations: dict[str, PopulationConfig]) -> dict[str, tuple[str, ...]]:
    if len(populations) == 1:
        (name,) = populations
        return {name: (f"{name}_0", f"{name}_1")}
    return {name: (f"{name}_0",) for name in populations}
