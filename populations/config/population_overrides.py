"""Settings of single populations: PBT, reward weights, a schedule instead of PBT."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import TypeVar

from arena.config import Model
from arena.errors import ConfigError
from arena.learning.hyperparameters import coerce_hyperparameters
from arena.types import Hyperparameters
from populations.choices import number_of
from populations.config.sections import PopulationConfig, ScheduleEntry, check_component_names
from populations.core import SearchSpace
from populations.faults import named
from populations.hyperparameter_schedules import Schedule, checked_schedules
from populations.pbt.settings import PbtConfig

ModelT = TypeVar("ModelT", bound=Model)


def resolve_pbt(population: PopulationConfig, *, pbt: PbtConfig, key: str) -> PbtConfig:
    """Return the settings of PBT for one population: the general ones with its own in their places.

    Args:
        population: Population with the keys that it sets.
        pbt: The section ``pbt``.
        key: Name of the population in errors (``populations.player``).

    Raises:
        ConfigError: If it has a schedule and yet wants to exploit.
    """
    own = population.pbt
    settings = merged(pbt, own) if own is not None else pbt
    if not population.schedule or settings.exploit == "none":
        return settings
    # Written for this population: a contradiction. Inherited from the section: the schedule holds.
    if own is not None and "exploit" in own.model_fields_set:
        raise ConfigError(
            f"{key}.pbt.exploit must be none where there is a schedule, got {settings.exploit!r}"
        )
    # PBT does not decide again what it has decided in another run.
    return settings.model_copy(update={"exploit": "none"})


def merged(general: ModelT, own: ModelT) -> ModelT:
    """Return the general settings, with those that were set in ``own`` in their places."""
    changes: dict[str, object] = {}
    # Only keys that were written count: defaults of the population's section say nothing.
    for name in own.model_fields_set:
        value, below = getattr(own, name), getattr(general, name)
        are_sections = isinstance(value, Model) and isinstance(below, Model)
        changes[name] = merged(below, value) if are_sections else value
    return general.model_copy(update=changes)


def check_reward_weights(
    population: PopulationConfig, *, reward_weights: Collection[str], key: str
) -> None:
    """Refuse weights of components that the environment's section does not have.

    Args:
        population: Population as written.
        reward_weights: The components of ``environment.reward_weights``.
        key: Name of the population in errors (``populations.player``).

    Raises:
        ConfigError: Names the weight, and the nearest known component.
    """
    named: list[tuple[str, Iterable[str]]] = [
        ("hyperparameters", population.hyperparameters),
        ("search_space", population.search_space),
        *((f"schedule.{i}", entry.hyperparameters) for i, entry in enumerate(population.schedule)),
    ]
    for part, names in named:
        check_component_names(names, reward_weights=reward_weights, key=f"{key}.{part}")


def resolve_scheduled(
    schedules: Mapping[str, Schedule],
    *,
    model: type[Model],
    start: Hyperparameters,
    space: SearchSpace,
    population: PopulationConfig,
    key: str,
) -> dict[str, dict[str, object]]:
    """Return schedules of hyperparameters as ``run.yaml`` has them.

    Args:
        schedules: Schedules by hyperparameter, as parsed.
        model: Model of the algorithm's hyperparameters.
        start: Start values of all hyperparameters.
        space: Search space of the population.
        population: Population with its recorded schedule, which must be empty then.
        key: Name of the population in errors (``populations.player``).

    Raises:
        ConfigError: Names the hyperparameter, the rule and the value.
    """
    if schedules and population.schedule:
        raise ConfigError(
            f"{key}.schedule: must be empty where a hyperparameter has a schedule of its own "
            f"({', '.join(schedules)}), got {len(population.schedule)} entries"
        )

    def coerce(name: str, value: float) -> float:
        with named(key):
            return number_of(coerce_hyperparameters(model, {**start, name: value})[name])

    checked = checked_schedules(schedules, start=start, coerce=coerce, space=space, key=key)
    return {name: schedule.as_written() for name, schedule in checked.items()}


def resolve_schedule(
    population: PopulationConfig,
    *,
    model: type[Model],
    start: Hyperparameters,
    genes: Collection[str] = (),
    key: str,
) -> tuple[ScheduleEntry, ...]:
    """Return a population's schedule with every hyperparameter in each of its entries.

    Args:
        population: Population with the schedule as written.
        model: Model of its algorithm's hyperparameters.
        start: Start values of the hyperparameters.
        genes: Settings of the algorithm that an entry may have.
        key: Name of the population in errors (``populations.player``).

    Raises:
        ConfigError: If its marks do not rise from 0, a value breaks the algorithm's rules, or more
            than one policy would follow it.
    """
    schedule = population.schedule
    if not schedule:
        return ()
    # A schedule is the past of one policy.
    if population.size != 1:
        raise ConfigError(f"{key}.size must be 1 where there is a schedule, got {population.size}")
    marks = [entry.agent_steps for entry in schedule]
    if marks[0] != 0 or any(after <= before for before, after in pairwise(marks)):
        raise ConfigError(f"{key}.schedule: agent_steps must rise from 0, got {marks}")
    entries = []
    for index, entry in enumerate(schedule):
        written = entry.hyperparameters
        settings = {name: value for name, value in written.items() if name in genes}
        numbers = {name: value for name, value in written.items() if name not in genes}
        try:
            # Each entry whole: an entry says only what differs from the start, not from the entry
            # before.
            values = coerce_hyperparameters(model, {**start, **numbers})
        except ConfigError as error:
            raise ConfigError(f"{key}.schedule.{index}.{error}") from error
        entries.append(entry.model_copy(update={"hyperparameters": {**values, **settings}}))
    return tuple(entries)
