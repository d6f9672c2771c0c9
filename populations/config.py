"""The configuration of a run: one YAML document, checked once, frozen from then on.

`load_config` reads what a user wrote, `resolve_config` fills in what depends on the environment.
Defaults are those of ``configs/default.yaml``, which explains each key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from arena.config import EnvironmentConfig, Model
from arena.envs.probe.pace import Pace
from arena.envs.spec import EnvironmentSpec
from arena.errors import BrokenRules, ConfigError
from arena.learning.hyperparameters import (
    coerce_hyperparameters,
    hyperparameter_model,
    make_settings,
    with_reward_weights,
)
from arena.matches.seating import make_seats
from arena.types import Hyperparameters
from arena.wire.address import check_listening
from populations.alert_settings import AlertsConfig
from populations.aliases import overridden
from populations.core import SearchSpace
from populations.documents import nearest, read_document
from populations.faults import Faults, named
from populations.fields import IMPORT_PATH, Count
from populations.matchmaking.make import make_matchmaker
from populations.matchmaking.quality import QUALITY_LATEST_RATIO
from populations.matchmaking.settings import MatchmakingConfig
from populations.own_settings import check_reward_weights, resolve_pbt, resolve_schedule
from populations.pbt.search_space import Choices, parse_search_space, validate_search_space
from populations.preset_files import config_text
from populations.preset_files import preset_names as preset_names
from populations.resolution import (
    POPULATION_NAME,
    check_critics,
    check_encoder,
    check_equal_spaces,
    check_outcome,
    check_partition,
    check_teams,
    expand_agents,
    group_agents,
    resolve_outcome,
    resolve_sides,
)
from populations.role_settings import RolesConfig, check_roles
from populations.sections import (
    AssignmentConfig,
    CheckpointsConfig,
    EvaluationConfig,
    GhostsConfig,
    MetricsConfig,
    PayoffsConfig,
    PbtConfig,
    PopulationConfig,
    StopConfig,
)
from populations.sizing import resolve_sizes
from populations.validation import Draft, Hints, draft_document, validate_document


class RunConfig(Model):
    """Everything about a run that a user can set. Only ``environment.id`` is required."""

    environment: EnvironmentConfig
    """Which environment, and how a match in it is scored."""

    populations: dict[str, PopulationConfig] = Field(default_factory=dict)
    """By name; default: agents with equal spaces form one, named by their common prefix."""

    matchmaking: MatchmakingConfig = MatchmakingConfig()
    """Against whom a policy trains."""

    payoffs: PayoffsConfig = PayoffsConfig()
    """The table of results that matchmaking reads."""

    ghosts: GhostsConfig = GhostsConfig()
    """Frozen copies of policies, kept as opponents."""

    roles: RolesConfig = RolesConfig()
    """When policies leave ghosts and exploiters start again."""

    pbt: PbtConfig = PbtConfig()
    """Population-based training."""

    evaluation: EvaluationConfig = EvaluationConfig()
    """Matches between frozen players."""

    assignment: AssignmentConfig = AssignmentConfig()
    """How much a learner does at a time."""

    checkpoints: CheckpointsConfig = CheckpointsConfig()
    """Which checkpoints stay on disk."""

    launcher: Literal["inline", "local"] = "local"
    """``local``: learner processes on this machine; ``inline``: one in the controller's own."""

    learners: Count | dict[str, Count] | None = None
    """Learner processes, or so many for each population; default: cores, at most policies."""

    endpoint: str | None = None
    """Where the controller listens: null, a Unix socket of this user, or tcp with keys."""

    remote_learners: int = Field(0, ge=0, le=100_000)
    """Keys to make for learners of other machines, one for each that may join."""

    device: str = Field("auto", pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$")
    """``auto``, ``cpu``, ``cuda`` or ``cuda:1``."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of the products in training; ``auto``: bfloat16 where the hardware has it."""

    metrics: MetricsConfig = MetricsConfig()
    alerts: AlertsConfig = AlertsConfig()
    """Where figures about learning go."""

    hooks: tuple[str, ...] = ()
    """Reserved: must be empty in this release."""

    stop: StopConfig = StopConfig()
    """When the run is finished."""

    deterministic: bool = False
    """Same config and seed: same decisions, results and weights, kills and resumes included."""

    seed: int = Field(1, ge=0, lt=2**63)
    """Everything random derives from it."""

    @field_validator("populations")
    @classmethod
    def _valid_names(cls, populations: dict[str, PopulationConfig]) -> dict[str, PopulationConfig]:
        for name in populations:
            if not POPULATION_NAME.fullmatch(name):
                raise ValueError(f"a name must match ^[a-z][a-z0-9_]{{0,31}}$, not {name!r}")
        return populations

    @property
    def reads_state(self) -> bool:
        """Whether a value network reads the environment's ``state()``."""
        return any(value.network.critic == "state" for value in self.populations.values())

    @field_validator("endpoint")
    @classmethod
    def _valid_endpoint(cls, endpoint: str | None) -> str | None:
        return None if endpoint is None else check_listening(endpoint)

    @field_validator("hooks")
    @classmethod
    def _no_hooks(cls, hooks: tuple[str, ...]) -> tuple[str, ...]:
        if hooks:
            raise ValueError("must be empty: this release has no hooks yet")
        return hooks

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = list(self._broken_rules())
        if faults:
            raise BrokenRules(*faults)
        return self

    def _broken_rules(self) -> Iterator[str]:
        """Rules between keys that do not hold."""
        if self.deterministic and self.stop.duration_s is not None:
            yield (
                "stop.duration_s must be null where deterministic is true (a clock decides "
                f"nothing there), got {self.stop.duration_s!r}"
            )
        if self.assignment.episodes is not None and not self.deterministic:
            yield (
                "assignment.episodes must be null where deterministic is false (episodes go on "
                f"from one assignment to the next there), got {self.assignment.episodes!r}"
            )
        if self.launcher == "inline" and self.learners not in (None, 1):
            yield f"learners must be 1 where launcher is inline, got {self.learners!r}"
        if self.launcher == "inline" and self.endpoint is not None:
            yield f"endpoint must be null where launcher is inline, got {self.endpoint!r}"
        if self.remote_learners and self.endpoint is None:
            yield (
                f"remote_learners is {self.remote_learners}, but endpoint is null: learners of "
                "other machines need a tcp address to connect to"
            )
        outcome = self.environment.outcome
        if isinstance(outcome, str) and outcome != "return" and not IMPORT_PATH.fullmatch(outcome):
            yield f"environment.outcome must be {HINTS['environment.outcome']}, got {outcome!r}"


HINTS: Hints = {
    "environment.outcome": (
        "return, {threshold: NUMBER, side: SIDE}, {info: KEY}, {margin: NUMBER above 0 or auto} or "
        "package.module:function"
    ),
    "environment.num_envs": "auto or a number from 1 to 65536",
    "learners": "null, a count, or a count for each population",
    "device": "auto, cpu, cuda or cuda:N, N the number of a GPU (cuda:1)",
}


def ignore_notice(notice: str) -> None:
    """Tell nobody."""


def load_config(
    source: str | Path,
    overrides: Sequence[str] = (),
    *,
    notify: Callable[[str], None] = ignore_notice,
) -> RunConfig:
    """Read a configuration.

    Args:
        source: A preset's name (``connect_four``) or the path of a YAML file.
        overrides: ``KEY=VALUE``, KEY a dotted path, VALUE read as YAML; of a repeated KEY the last
            counts.
        notify: Takes a sentence for each name that was read as another one.

    Raises:
        ConfigError: If it cannot be read, or has an unknown key or a value that breaks a rule.
    """
    return draft_config(source, overrides, notify=notify).require()


def draft_config(
    source: str | Path, overrides: Sequence[str] = (), *, notify: Callable[[str], None]
) -> Draft[RunConfig]:
    """Read a configuration as `load_config` does, and go on without what breaks a rule.

    Raises:
        ConfigError: If it cannot be read at all.
    """
    document = read_document(config_text(source), name=str(source))
    document = overridden(document, overrides, notify=notify)
    return draft_document(RunConfig, document, hints=HINTS)


def validate_config(document: object) -> RunConfig:
    """Check plain data against the configuration's rules.

    Raises:
        ConfigError: Names the key, the rule and the value.
    """
    return validate_document(RunConfig, document, hints=HINTS)


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
        config: As loaded.
        spec: The environment's facts.
        launch_directory: Where user code is looked for first.
        num_cores: Bounds the default of ``learners``; None: those this process may use.
        pace: What random play of the environment has shown, where sizes or a margin are left to
            Arena; None: nobody has played it, and sizes are what suits most environments.

    Raises:
        ConfigError: If configuration and environment do not fit.
    """
    environment, faults = config.environment, Faults()
    sides: dict[str, list[str]] = {}
    outcome = environment.outcome
    with faults.gathered():
        sides = resolve_sides(environment.sides, agents=spec.agents)
        check_outcome(outcome, sides=sides)
        outcome = resolve_outcome(outcome, pace=pace)
    matchmaking = config.matchmaking
    with faults.gathered():
        matchmaking = _resolve_matchmaking(config, launch_directory=launch_directory)
    assigned = config.populations
    with faults.gathered():
        assigned = _assign_agents(config.populations, spec)
    populations = {}
    for name, population in assigned.items():
        with faults.gathered():
            populations[name] = _resolve_population(
                name,
                population,
                reward_weights=environment.reward_weights,
                launch_directory=launch_directory,
            )
    # What follows takes agents, sides and policies for what they are.
    faults.raise_any()
    agents = {name: population.agents or () for name, population in populations.items()}
    networks = {name: population.network for name, population in populations.items()}
    sizes = {name: population.size for name, population in populations.items()}
    for check in (
        lambda: check_critics(networks, populations=agents, sides=sides, spec=spec),
        lambda: check_roles(config.roles, populations, num_sides=len(sides)),
        lambda: check_teams(sizes, config.learners, num_sides=len(sides)),
        lambda: make_seats(
            agents=spec.agents,
            sides={side: tuple(agents) for side, agents in sides.items()},
            populations=agents,
        ),
    ):
        with faults.gathered():
            check()
    faults.raise_any()
    resolved = config.model_copy(
        update={
            "environment": environment.model_copy(update={"sides": sides, "outcome": outcome}),
            "matchmaking": matchmaking,
            "populations": populations,
        }
    )
    resolved = resolved.model_copy(
        update={
            "populations": {
                name: population.model_copy(
                    update={
                        "pbt": resolve_pbt(population, pbt=config.pbt, key=f"populations.{name}")
                    }
                )
                for name, population in populations.items()
            },
            "learners": _resolve_learners(resolved, num_cores=num_cores),
        }
    )
    return resolve_sizes(resolved, spec, pace=pace)


def _assign_agents(
    populations: dict[str, PopulationConfig], spec: EnvironmentSpec
) -> dict[str, PopulationConfig]:
    defaults = group_agents(spec)
    if not populations:
        return {name: PopulationConfig(agents=agents) for name, agents in defaults.items()}
    resolved, faults = {}, Faults()
    for name, population in populations.items():
        with faults.gathered():
            agents = _agents_of(name, population, defaults=defaults, spec=spec)
            check_equal_spaces(name, agents=agents, spec=spec)
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
    """The agents of one population, at least one."""
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


def _resolve_population(
    name: str,
    population: PopulationConfig,
    *,
    reward_weights: Mapping[str, float],
    launch_directory: str,
) -> PopulationConfig:
    key = f"populations.{name}"
    model = with_reward_weights(
        hyperparameter_model(population.algorithm, launch_directory=launch_directory),
        reward_weights,
    )
    space = population.search_space
    if "search_space" not in population.model_fields_set:
        space = {key: value for key, value in space.items() if key in model.model_fields}
    start, settings, schedule, faults = dict[str, float | int](), {}, population.schedule, Faults()
    with faults.gathered(), named(key):
        settings = make_settings(
            population.algorithm, population.algorithm_settings, launch_directory=launch_directory
        ).model_dump(mode="json")
    with faults.gathered():
        check_reward_weights(population, reward_weights=reward_weights, key=key)
        with named(key):
            start = coerce_hyperparameters(model, population.hyperparameters)
        schedule = resolve_schedule(population, model=model, start=start, key=key)
        key_of_space = f"{key}.search_space"
        validate_search_space(space, names=model.model_fields, start=start, key=key_of_space)
        _check_bounds(model, space, start=start, key=key_of_space)
    faults.raise_any()
    return population.model_copy(
        update={
            "algorithm_settings": settings,
            "hyperparameters": start,
            "search_space": space,
            "schedule": schedule,
        }
    )


def _check_bounds(
    model: type[Model], space: SearchSpace, *, start: Hyperparameters, key: str
) -> None:
    """Check that PBT can draw nothing that the algorithm would refuse."""
    for name, dimension in parse_search_space(space, start=start, key=key).items():
        values = (
            dimension.choices if isinstance(dimension, Choices) else (dimension.low, dimension.high)
        )
        for value in values:
            try:
                coerce_hyperparameters(model, {**start, name: value})
            except ConfigError as error:
                raise ConfigError(f"{key}.{name} allows {value!r}, but {error}") from error


def _resolve_learners(config: RunConfig, *, num_cores: int | None) -> int | dict[str, int]:
    learners = config.learners
    if isinstance(learners, dict):
        for name in learners:
            if name not in config.populations:
                raise ConfigError(
                    f"learners.{name}: there is no population {name!r}"
                    f"{nearest(name, config.populations)}"
                )
        missing = [name for name in config.populations if name not in learners]
        if missing:
            raise ConfigError(f"learners must name every population, {missing[0]!r} is missing")
        return learners
    if learners is not None:
        return learners
    if config.launcher == "inline":
        return 1
    cores = _usable_cores() if num_cores is None else num_cores
    return max(1, min(cores, sum(p.size for p in config.populations.values())))


def _resolve_matchmaking(config: RunConfig, *, launch_directory: str) -> MatchmakingConfig:
    """Check a user's own kind, and say the share of the latest where the user has not."""
    section = config.matchmaking
    make_matchmaker(section, window=config.ghosts.window, launch_directory=launch_directory)
    if "latest_ratio" in section.model_fields_set:
        return section
    usual = QUALITY_LATEST_RATIO if section.kind == "quality" else section.latest_ratio
    latest_ratio = min(usual, 1.0 - section.living_ratio)
    return section.model_copy(update={"latest_ratio": latest_ratio})


def _usable_cores() -> int:
    # Not every system can say which cores a process may use.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
