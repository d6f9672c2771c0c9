"""Settings of one population: its learning, its search space, and its PBT or recorded schedule."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from arena.config import Model
from arena.errors import ConfigError
from arena.learning.hyperparameters import (
    REWARD_WEIGHT,
    changeable_settings,
    coerce_hyperparameters,
    hyperparameter_model,
    make_settings,
    with_reward_weights,
)
from arena.rules import nearest
from arena.types import Hyperparameters, Value
from populations.choices import Categories, number_of
from populations.config.sections import PopulationConfig, ScheduleEntry
from populations.core import SearchSpace
from populations.faults import Faults, named
from populations.hyperparameter_schedules import (
    Schedule,
    checked_schedules,
    parse_schedules,
    start_values,
)
from populations.pbt.kinds import ORDERED_ONLY
from populations.pbt.settings import PbtConfig
from populations.search_space import Dimension, validate_search_space

ModelT = TypeVar("ModelT", bound=Model)

MAX_UNORDERED = 2
"""Number of unordered choices that a rule for ordered values can use, as the ends of a scale."""


def resolve_population(
    name: str,
    population: PopulationConfig,
    *,
    reward_weights: Mapping[str, float],
    pbt: PbtConfig,
    launch_directory: str,
) -> PopulationConfig:
    """Check a population's settings of learning, and fill in what the user left out.

    Args:
        name: Name of the population.
        population: Population as written.
        reward_weights: The key ``environment.reward_weights``.
        pbt: The section ``pbt``.
        launch_directory: Directory that is searched first for user code.

    Raises:
        ConfigError: Names each key at fault.
    """
    key = f"populations.{name}"
    model = with_reward_weights(
        hyperparameter_model(population.algorithm, launch_directory=launch_directory),
        reward_weights,
    )
    space = population.search_space
    # The default space has PPO's hyperparameters, which another algorithm may not have.
    if "search_space" not in population.model_fields_set:
        space = {key: value for key, value in space.items() if key in model.model_fields}
    # A value with a fault stays empty; it is never returned, as raise_any raises below.
    settings, schedule, faults = {}, population.schedule, Faults()
    written = dict[str, object]()
    with faults.gathered(), named(key):
        settings = make_settings(
            population.algorithm, population.algorithm_settings, launch_directory=launch_directory
        ).model_dump(mode="json")
    with faults.gathered():
        # run.yaml has the complete settings of each population, so merge the general ones here.
        pbt = _resolve_pbt(population, pbt=pbt, key=key)
    with faults.gathered():
        # Check weights first, so that an unknown component is reported as such.
        _check_reward_weights(population, reward_weights=reward_weights, key=key)
        schedules = parse_schedules(population.hyperparameters, key=f"{key}.hyperparameters")
        with named(key):
            start = coerce_hyperparameters(model, start_values(population.hyperparameters))
        learning = _Learning(
            key=key,
            population=population,
            model=model,
            start=start,
            settings=settings,
            space=space,
            launch_directory=launch_directory,
        )
        learning.check_booleans()
        written |= {**start, **learning.scheduled(schedules)}
        learning.check_space(explore=pbt.explore)
        schedule = learning.schedule()
    faults.raise_any()
    return population.model_copy(
        update={
            "algorithm_settings": settings,
            "hyperparameters": written,
            "search_space": space,
            "schedule": schedule,
            "pbt": pbt,
        }
    )


def merged(general: ModelT, own: ModelT) -> ModelT:
    """Return the general settings with the keys that are set in ``own`` replaced."""
    changes: dict[str, object] = {}
    # Only keys that the user wrote count; defaults of the population's section must not replace
    # general settings.
    for name in own.model_fields_set:
        value, below = getattr(own, name), getattr(general, name)
        are_sections = isinstance(value, Model) and isinstance(below, Model)
        changes[name] = merged(below, value) if are_sections else value
    return general.model_copy(update=changes)


def _resolve_pbt(population: PopulationConfig, *, pbt: PbtConfig, key: str) -> PbtConfig:
    """Return the settings of PBT for one population, the general ones with its own keys replaced.

    Raises:
        ConfigError: If the population has a recorded schedule and its own rule to exploit.
    """
    own = population.pbt
    settings = merged(pbt, own) if own is not None else pbt
    if not population.schedule or settings.exploit == "none":
        return settings
    # A rule that was written for this population contradicts its schedule. A rule that is inherited
    # from the general section gives way to the schedule.
    if own is not None and "exploit" in own.model_fields_set:
        raise ConfigError(
            f"{key}.pbt.exploit must be none where there is a schedule, got {settings.exploit!r}"
        )
    # A schedule replays what PBT decided in another run, so PBT must not decide here.
    return settings.model_copy(update={"exploit": "none"})


def _check_reward_weights(
    population: PopulationConfig, *, reward_weights: Collection[str], key: str
) -> None:
    """Refuse weights of components that ``environment.reward_weights`` does not have.

    Raises:
        ConfigError: Names the weight, and the nearest known component.
    """
    written: list[tuple[str, Iterable[str]]] = [
        ("hyperparameters", population.hyperparameters),
        ("search_space", population.search_space),
        *((f"schedule.{i}", entry.hyperparameters) for i, entry in enumerate(population.schedule)),
    ]
    has = f"it has: {', '.join(reward_weights)}" if reward_weights else "it is empty"
    for part, names in written:
        for name in names:
            component = name.removeprefix(REWARD_WEIGHT)
            # A name without the prefix is another hyperparameter, which is checked elsewhere.
            if name != component and component not in reward_weights:
                raise ConfigError(
                    f"{key}.{part}.{name}: environment.reward_weights has no component "
                    f"{component!r}{nearest(component, reward_weights)}; {has}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learning:
    """Rules, values and bounds of a population's learning, to check them against each other.

    Attributes:
        key: Name of the population in errors (``populations.player``).
        population: Population as written.
        model: Type of the algorithm's hyperparameters.
        start: Start values of the hyperparameters, checked and complete.
        settings: Settings of the algorithm, checked and complete; empty if they are at fault.
        space: Search space.
        launch_directory: Directory that is searched first for a user's algorithm.
    """

    key: str
    population: PopulationConfig
    model: type[Model]
    start: Hyperparameters
    settings: Mapping[str, object]
    space: SearchSpace
    launch_directory: str

    def check_booleans(self) -> None:
        """Refuse true and false if the algorithm requires a number.

        Raises:
            ConfigError: Names the hyperparameter and its value.
        """
        for name, value in self.population.hyperparameters.items():
            if isinstance(value, bool) and not self._is_boolean(name):
                raise ConfigError(
                    f"{self.key}.hyperparameters.{name}: must be a number, got {value!r}"
                )

    def scheduled(self, schedules: Mapping[str, Schedule]) -> dict[str, dict[str, object]]:
        """Return schedules of hyperparameters as ``run.yaml`` has them.

        Args:
            schedules: Schedules by hyperparameter, as parsed.

        Raises:
            ConfigError: If a schedule breaks a rule (the message names the hyperparameter, the rule
                and the value), or there is a recorded schedule, too.
        """
        if schedules and self.population.schedule:
            raise ConfigError(
                f"{self.key}.schedule: must be empty where a hyperparameter has a schedule of its "
                f"own ({', '.join(schedules)}), got {len(self.population.schedule)} entries"
            )

        def coerce(name: str, value: float) -> float:
            with named(self.key):
                return number_of(self._coerced({name: value})[name])

        checked = checked_schedules(
            schedules, start=self.start, coerce=coerce, space=self.space, key=self.key
        )
        return {name: schedule.as_written() for name, schedule in checked.items()}

    def check_space(self, *, explore: str) -> None:
        """Check each entry of the search space against the algorithm's rules.

        Args:
            explore: Rule of exploring.

        Raises:
            ConfigError: Names the entry, the rule and the value.
        """
        changeable = self._changeable_settings()
        # A setting is integral if its value is, as with hyperparameters.
        numbers = {
            name: value
            for name, value in self.settings.items()
            if name in changeable and isinstance(value, int | float)
        }
        dimensions = validate_search_space(
            self.space,
            names=(*self.model.model_fields, *changeable),
            start={**numbers, **self.start},
            key=f"{self.key}.search_space",
        )
        if explore in ORDERED_ONLY:
            for name, dimension in dimensions.items():
                self._check_order(name, dimension, explore=explore)
        for name, dimension in dimensions.items():
            if name not in changeable:
                self._check_kind(name, dimension)
                self._check_bounds(name, dimension)
            elif self.settings:
                self._check_setting(name, dimension)

    def schedule(self) -> tuple[ScheduleEntry, ...]:
        """Return the recorded schedule with every hyperparameter in each of its entries.

        Raises:
            ConfigError: If its marks do not rise from 0, a value breaks the algorithm's rules, or
                more than one policy would follow it.
        """
        key, schedule, size = self.key, self.population.schedule, self.population.size
        if not schedule:
            return ()
        # A schedule is recorded from one policy, so only one can follow it.
        if size != 1:
            raise ConfigError(f"{key}.size must be 1 where there is a schedule, got {size}")
        marks = [entry.agent_steps for entry in schedule]
        if marks[0] != 0 or any(after <= before for before, after in pairwise(marks)):
            raise ConfigError(f"{key}.schedule: agent_steps must rise from 0, got {marks}")
        changeable, entries = self._changeable_settings(), []
        for index, entry in enumerate(schedule):
            written = entry.hyperparameters
            settings = {name: value for name, value in written.items() if name in changeable}
            numbers = {name: value for name, value in written.items() if name not in changeable}
            try:
                # Complete each entry by the start values, not by the entry before it, as an entry
                # has the differences from the start.
                values = self._coerced(numbers)
            except ConfigError as error:
                raise ConfigError(f"{key}.schedule.{index}.{error}") from error
            entries.append(entry.model_copy(update={"hyperparameters": {**values, **settings}}))
        return tuple(entries)

    def _changeable_settings(self) -> tuple[str, ...]:
        """Return the settings of the algorithm that PBT may change."""
        known = changeable_settings(
            self.population.algorithm, launch_directory=self.launch_directory
        )
        return tuple(name for name in known if name not in self.model.model_fields)

    def _coerced(self, values: Hyperparameters) -> dict[str, Value]:
        """Return the start values with some values replaced, all checked."""
        return coerce_hyperparameters(self.model, {**self.start, **values})

    def _is_boolean(self, name: str) -> bool:
        return self.model.model_fields[name].annotation is bool

    def _check_order(self, name: str, dimension: Dimension, *, explore: str) -> None:
        """Refuse unordered choices if the rule of exploring needs an order."""
        if isinstance(dimension, Categories) and len(dimension.choices) > MAX_UNORDERED:
            raise ConfigError(
                f"{self.key}.search_space.{name}: pbt.explore {explore} takes at most "
                f"{MAX_UNORDERED} choices without an order (perturb, resample, tpe, cma_es and "
                f"random take more), got {list(dimension.choices)!r}"
            )

    def _check_kind(self, name: str, dimension: Dimension) -> None:
        """Refuse a range or choices whose type is not that of the hyperparameter."""
        path, entry = f"{self.key}.search_space.{name}", dict(self.space[name])
        is_boolean, is_categorical = self._is_boolean(name), isinstance(dimension, Categories)
        if is_boolean and not (is_categorical and isinstance(dimension.extremes[0], bool)):
            raise ConfigError(f"{path}: must be {{choices: [false, true]}}, got {entry!r}")
        if is_categorical and not is_boolean:
            raise ConfigError(
                f"{path}: must be {{low, high}} or choices of numbers, as the hyperparameter is a "
                f"number, got {entry!r}"
            )

    def _check_bounds(self, name: str, dimension: Dimension) -> None:
        """Check that the algorithm accepts every value that PBT can draw."""
        for value in dimension.extremes:
            try:
                self._coerced({name: value})
            except ConfigError as error:
                raise ConfigError(
                    f"{self.key}.search_space.{name} allows {value!r}, but {error}"
                ) from error

    def _check_setting(self, name: str, dimension: Dimension) -> None:
        """Check that the algorithm accepts every value of a setting that PBT can draw."""
        values = [dimension.fit(value) for value in dimension.extremes]
        for value in values:
            # Prefix the error with the search space, as the setting itself is valid.
            with named(f"{self.key}.search_space.{name} allows {value!r}, but {self.key}"):
                make_settings(
                    self.population.algorithm,
                    {**self.settings, name: value},
                    launch_directory=self.launch_directory,
                )
        start = self.settings[name]
        is_allowed = isinstance(start, int | float) and not isinstance(start, bool)
        if isinstance(dimension, Categories):
            is_allowed = start in dimension.choices
        if start is not None and not is_allowed:
            raise ConfigError(
                f"{self.key}.algorithm_settings.{name}: must be one of the choices of its search "
                f"space, {values!r}, got {start!r}"
            )
