"""Resolution of a configuration: values that depend on environment, machine and rules.

Tests: `tests/populations/config/test_resolution.py`, `tests/populations/config/test_sizing.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from arena.environment_spec import EnvironmentSpec
from arena.envs.probe.pace import Pace
from arena.errors import ConfigError
from arena.matches.seating import check_partition
from arena.rules import nearest
from populations.config.population_settings import resolve_population
from populations.config.resolution import (
    check_critics,
    check_encoder,
    check_equal_spaces,
    check_rival_envs,
    check_rivals,
    check_teammates,
    check_teams,
    check_turns,
    expand_agents,
    group_agents,
    resolve_outcome,
    resolve_sides,
)
from populations.config.role_settings import check_roles
from populations.config.run_config import RunConfig
from populations.config.sections import PopulationConfig
from populations.config.sizing import check_env_workers, choose_learner_cores, resolve_sizes
from populations.faults import Faults
from populations.matchmaking.kinds import KINDS
from populations.matchmaking.make import make_matchmaker
from populations.matchmaking.settings import MatchmakingConfig
from populations.thinning.make import make_thinning


def resolve_config(
    config: RunConfig,
    spec: EnvironmentSpec,
    *,
    launch_directory: str = "",
    num_cores: int | None = None,
    pace: Pace | None = None,
) -> RunConfig:
    """Fill in what depends on the environment; resolving twice changes nothing.

    Args:
        config: Configuration as loaded.
        spec: Facts about the environment.
        launch_directory: Directory that is searched first for user code.
        num_cores: Upper bound of the defaults of ``learners`` and ``learner_cores``; None uses the
            cores that this process may use.
        pace: Measurements of random play, to choose sizes or a margin. If None, the environment was
            not played, and sizes are those that suit most environments.

    Raises:
        ConfigError: If configuration and environment do not fit.
    """
    # Each part has its own `gathered`, so that a fault in one does not hide faults in the others.
    environment, faults = config.environment, Faults()
    sides: dict[str, list[str]] = {}
    outcome = environment.outcome
    with faults.gathered():
        sides = resolve_sides(environment.sides, agents=spec.agents)
        outcome = resolve_outcome(outcome, sides=sides, pace=pace)
    matchmaking = config.matchmaking
    with faults.gathered():
        matchmaking = _resolve_matchmaking(config, launch_directory=launch_directory)
    with faults.gathered():
        # Make the rule only to report its faults now, as `_resolve_matchmaking` does.
        make_thinning(config.ghosts.thinning, config.ghosts, launch_directory=launch_directory)
    populations = _resolve_populations(config, spec, faults, launch_directory=launch_directory)
    # The checks below require valid agents, sides and populations.
    faults.raise_any()
    resolved = config.model_copy(
        update={
            "environment": environment.model_copy(update={"sides": sides, "outcome": outcome}),
            "matchmaking": matchmaking,
            "populations": populations,
        }
    )
    _check_together(resolved, spec)
    cores = usable_cores() if num_cores is None else num_cores
    # The default is bounded by the number of policies, so it needs the resolved populations.
    learners = _resolve_learners(resolved, num_cores=cores)
    resolved = resolved.model_copy(update={"learners": learners})
    # Sizes come last, as they depend on learners, agents and hyperparameters.
    resolved = resolve_sizes(resolved, spec, pace=pace)
    check_rival_envs(resolved)
    check_env_workers(resolved, spec, pace=pace)
    if config.learners is not None:
        # A user who gives the number of learners decides how many cores the run has, so learners
        # get no further ones.
        cores = 1
    return resolved.model_copy(
        update={"learner_cores": choose_learner_cores(resolved, spec, num_cores=cores, pace=pace)}
    )


def _resolve_populations(
    config: RunConfig, spec: EnvironmentSpec, faults: Faults, *, launch_directory: str
) -> dict[str, PopulationConfig]:
    """Return the populations without a fault, and add the faults of the others to ``faults``."""
    # If agents have a fault, the populations are still checked as written.
    assigned = config.populations
    with faults.gathered():
        assigned = assign_agents(config.populations, spec)
    populations = {}
    for name, population in assigned.items():
        # A scripted population does not learn, so its learning settings stay unset.
        if population.player is not None:
            populations[name] = population
            continue
        with faults.gathered():
            populations[name] = resolve_population(
                name,
                population,
                reward_weights=config.environment.reward_weights,
                pbt=config.pbt,
                launch_directory=launch_directory,
            )
    return populations


def _check_together(config: RunConfig, spec: EnvironmentSpec) -> None:
    """Check rules between populations, sides, roles and matchmaking."""
    faults = Faults()
    with faults.gathered():
        check_critics(config, spec)
    with faults.gathered():
        check_roles(config.roles, config.populations, num_sides=len(config.sides))
    for check in (check_teams, check_teammates, check_rivals, check_turns):
        with faults.gathered():
            check(config)
    faults.raise_any()


def assign_agents(
    populations: dict[str, PopulationConfig], spec: EnvironmentSpec
) -> dict[str, PopulationConfig]:
    """Return populations with their agents; without any population, the environment's default ones.

    Raises:
        ConfigError: Names each population whose agents or network do not fit.
    """
    defaults = group_agents(spec)
    if not populations:
        return {name: PopulationConfig(agents=agents) for name, agents in defaults.items()}
    resolved, faults = {}, Faults()
    for name, population in populations.items():
        with faults.gathered():
            agents = _agents_of(name, population, defaults=defaults, spec=spec)
            check_equal_spaces(name, agents=agents, spec=spec)
            # As just checked, all agents of a population have the spaces of the first one.
            check_encoder(name, network=population.network, facts=spec.agent_specs[agents[0]])
            resolved[name] = population.model_copy(update={"agents": agents})
    faults.raise_any()
    groups = {name: population.agents or () for name, population in resolved.items()}
    check_partition(groups, agents=spec.agents, key="populations")
    return resolved


def _agents_of(
    name: str,
    population: PopulationConfig,
    *,
    defaults: Mapping[str, tuple[str, ...]],
    spec: EnvironmentSpec,
) -> tuple[str, ...]:
    """Return the agents of one population, or raise if it has none."""
    key = f"populations.{name}"
    if population.agents is None:
        if name not in defaults:
            raise ConfigError(
                f"{key}: must say its agents, or be named as a default population: "
                f"{', '.join(defaults)}{nearest(name, defaults)}"
            )
        return defaults[name]
    if not population.agents:
        raise ConfigError(f"{key}: must have at least one agent, got none")
    return expand_agents(population.agents, agents=spec.agents, key=f"{key}.agents")


def _resolve_learners(config: RunConfig, *, num_cores: int) -> int | dict[str, int]:
    learners, populations = config.learners, config.populations
    if isinstance(learners, dict):
        for name in learners:
            if name not in populations:
                raise ConfigError(
                    f"learners.{name}: there is no population {name!r}{nearest(name, populations)}"
                )
        idle = [name for name in learners if name not in config.learning]
        if idle:
            raise ConfigError(f"learners.{idle[0]}: nobody learns there, a player has its agents")
        missing = [name for name in config.learning if name not in learners]
        if missing:
            raise ConfigError(
                f"learners must name every population that learns, {missing[0]!r} is missing"
            )
        return learners
    if learners is not None:
        return learners
    # With this launcher the only learner is a thread of the controller's process.
    if config.launcher == "inline":
        return 1
    sizes = [population.num_policies for population in populations.values()]
    # Learners need no cores of their own while they wait for their workers to step.
    cores = num_cores // max(1, config.environment.num_env_workers)
    # More learners than policies would be idle. Rivals that learn train in pairs, so these need
    # only half as many.
    most = max(sizes) if config.matchmaking.rivals == "learning" else sum(sizes)
    return max(1, min(cores, most))


def _resolve_matchmaking(config: RunConfig, *, launch_directory: str) -> MatchmakingConfig:
    """Check a user's own rule, and set ``latest_ratio``, whose default depends on the rule."""
    section = config.matchmaking
    # Make the rule and drop it, so that a user's class that fails is reported now and not during
    # the run.
    make_matchmaker(section, window=config.ghosts.window, launch_directory=launch_directory)
    # A resolved configuration has this key set, so resolving twice changes nothing.
    if "latest_ratio" in section.model_fields_set:
        return section
    kind = KINDS.get(section.kind)
    usual = kind.usual.get("latest_ratio") if kind is not None else None
    # The default is reduced if `living_ratio`, which the user wrote, leaves less.
    latest_ratio = min(section.latest_ratio if usual is None else usual, 1.0 - section.living_ratio)
    return section.model_copy(update={"latest_ratio": latest_ratio})


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    # Not every system can report the affinity of a process.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
