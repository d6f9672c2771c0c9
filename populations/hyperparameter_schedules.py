"""Hyperparameters whose values change with a policy's agent steps.

A hyperparameter is a number or a schedule: ``{linear: [a, b], over_agent_steps: N}``,
``{cosine: [a, b], over_agent_steps: N}`` or ``{steps: {0: a, N: b}}``. The value in use is

    schedule(agent steps) x factor

(with ``complement`` this holds for 1 - x), within the bounds of the search space. PBT changes the
factor, which begins at 1. With a factor of 1 the value is the schedule's own and may be outside of
the bounds, as start values may. A value is computed when an assignment changes the agent steps,
so it is constant within an assignment.

Tests: `tests/populations/test_search_space.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from arena.errors import ConfigError
from arena.types import MAX_AGENT_STEPS, Hyperparameters, Value
from populations.choices import number_of
from populations.core import SearchSpace
from populations.search_space import Choices, Range, parse_search_space

CURVES = ("linear", "cosine")
FORMS = (
    "{linear: [a, b], over_agent_steps: N}, {cosine: [a, b], over_agent_steps: N} or "
    "{steps: {0: a, N: b}}"
)

Factors = Mapping[str, float]
"""Factors that PBT changes, by the names of scheduled hyperparameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Schedule that moves smoothly from ``first`` to ``last``, and is constant afterwards.

    Attributes:
        kind: ``linear`` or ``cosine``.
        first: Value at 0 agent steps.
        last: Value from ``over_agent_steps`` on.
        over_agent_steps: Agent steps in which it moves from ``first`` to ``last``.
    """

    kind: str
    first: float
    last: float
    over_agent_steps: int

    def at(self, agent_steps: int) -> float:
        """Return the value after so many agent steps."""
        progress = min(agent_steps / self.over_agent_steps, 1.0)
        if self.kind == "cosine":
            # The cosine replaces progress p by (1 - cos(pi p)) / 2.
            progress = (1.0 - math.cos(math.pi * progress)) / 2.0
        # The form a (1 - p) + b p is exact at both ends, unlike a + (b - a) p.
        return self.first * (1.0 - progress) + self.last * progress

    def next_mark(self, agent_steps: int) -> int | None:
        """Return None, as no mark ends an assignment early: the value changes after each one."""
        del agent_steps
        return None

    @property
    def values(self) -> tuple[float, ...]:
        """First and last value, which bound all others."""
        return self.first, self.last

    def with_values(self, values: Sequence[float]) -> Curve:
        """Return the same schedule with other `values`."""
        first, last = values
        return replace(self, first=first, last=last)

    def as_written(self) -> dict[str, object]:
        """Return it as plain data, in the one form that ``run.yaml`` has."""
        return {self.kind: [self.first, self.last], "over_agent_steps": self.over_agent_steps}


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Schedule that is constant between marks.

    Attributes:
        marks: Pairs of agent steps, rising from 0, and the value that holds from there on.
    """

    marks: tuple[tuple[int, float], ...]

    def at(self, agent_steps: int) -> float:
        """Return the value after so many agent steps."""
        return next(value for mark, value in reversed(self.marks) if mark <= agent_steps)

    def next_mark(self, agent_steps: int) -> int | None:
        """Return the next mark above some agent steps; None after the last mark."""
        return next((mark for mark, _ in self.marks if mark > agent_steps), None)

    @property
    def values(self) -> tuple[float, ...]:
        """All values of the schedule, in order."""
        return tuple(value for _, value in self.marks)

    def with_values(self, values: Sequence[float]) -> Steps:
        """Return the same schedule with other `values`."""
        marks = zip(self.marks, values, strict=True)
        return Steps(marks=tuple((mark, value) for (mark, _), value in marks))

    def as_written(self) -> dict[str, object]:
        """Return it as plain data, in the one form that ``run.yaml`` has."""
        return {"steps": {str(mark): value for mark, value in self.marks}}


Schedule = Curve | Steps


def parse_schedules(
    hyperparameters: Mapping[str, object], *, key: str = "hyperparameters"
) -> dict[str, Schedule]:
    """Return the schedules among hyperparameters as written.

    Raises:
        ConfigError: Names the hyperparameter, the rule and the value.
    """
    return {
        name: _parse(value, key=f"{key}.{name}")
        for name, value in hyperparameters.items()
        if isinstance(value, Mapping)
    }


def _parse(entry: Mapping[str, object], *, key: str) -> Schedule:
    if set(entry) == {"steps"}:
        return _parse_steps(entry["steps"], key=f"{key}.steps")
    for kind in CURVES:
        if set(entry) == {kind, "over_agent_steps"}:
            first, last = _ends(entry[kind], key=f"{key}.{kind}")
            length = _whole(entry["over_agent_steps"])
            if length is None or length < 1:
                raise ConfigError(
                    f"{key}.over_agent_steps: must be a whole number from 1 to {MAX_AGENT_STEPS}, "
                    f"got {entry['over_agent_steps']!r}"
                )
            return Curve(kind=kind, first=first, last=last, over_agent_steps=length)
    raise ConfigError(f"{key}: must be a value or a schedule, {FORMS}, got {dict(entry)!r}")


def _ends(values: object, *, key: str) -> tuple[float, float]:
    if not isinstance(values, Sequence) or isinstance(values, str) or len(values) != 2:
        raise ConfigError(f"{key}: must be a list of two numbers, got {values!r}")
    return _number(values[0], key=key), _number(values[1], key=key)


def _parse_steps(entry: object, *, key: str) -> Steps:
    if not isinstance(entry, Mapping) or not entry:
        raise ConfigError(f"{key}: must give values by agent steps, {{0: a, N: b}}, got {entry!r}")
    marks = []
    for written, value in entry.items():
        mark = _whole(written)
        if mark is None:
            raise ConfigError(
                f"{key}: agent steps must be whole numbers from 0 to {MAX_AGENT_STEPS}, "
                f"got {written!r}"
            )
        marks.append((mark, _number(value, key=f"{key}.{written}")))
    steps = [mark for mark, _ in marks]
    if steps[0] != 0 or any(after <= before for before, after in pairwise(steps)):
        raise ConfigError(f"{key}: agent steps must rise from 0, got {steps}")
    return Steps(marks=tuple(marks))


def _whole(value: object) -> int | None:
    """Return agent steps; None if the value is no whole number from 0 to ``MAX_AGENT_STEPS``."""
    # The keys of a YAML document are read as text.
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= MAX_AGENT_STEPS or value != int(value):
        return None
    return int(value)


def _number(value: object, *, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{key}: must be a finite number, got {value!r}")
    return value


def checked_schedules(
    schedules: Mapping[str, Schedule],
    *,
    start: Hyperparameters,
    coerce: Callable[[str, float], float],
    space: SearchSpace,
    key: str,
) -> dict[str, Schedule]:
    """Check schedules against the algorithm's rules and the search space.

    Args:
        schedules: Schedules by hyperparameter, as parsed.
        start: Start values, checked; those of integers are ``int``.
        coerce: Function from a hyperparameter's name and a value to the value as the algorithm
            has it; raises a ConfigError if the algorithm refuses the value.
        space: Search space of the population.
        key: Name of the population in errors (``populations.player``).

    Returns:
        The schedules with values as the algorithm has them.

    Raises:
        ConfigError: Names the hyperparameter, the rule and the value.
    """
    checked = {}
    for name, schedule in schedules.items():
        path = f"{key}.hyperparameters.{name}"
        is_integral = isinstance(start[name], int)
        if is_integral and isinstance(schedule, Curve):
            raise ConfigError(
                f"{path}: an integer must have steps, {{steps: {{0: a, N: b}}}}, "
                f"got {schedule.as_written()!r}"
            )
        for value in schedule.values:
            if is_integral and not isinstance(value, int):
                raise ConfigError(f"{path}: must be whole numbers, got {value!r}")
        entry = space.get(name)
        # A schedule is multiplied by a factor, and choices cannot be multiplied.
        if isinstance(entry, Mapping) and "choices" in entry:
            raise ConfigError(
                f"{key}.search_space.{name}: must be {{low, high}} where the hyperparameter has a "
                f"schedule, got {dict(entry)!r}"
            )
        checked[name] = schedule.with_values([coerce(name, value) for value in schedule.values])
    return checked


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledValues:
    """Schedules of a population's hyperparameters, with the bounds of their values.

    Attributes:
        schedules: Schedules by hyperparameter.
        ranges: Ranges of the scheduled hyperparameters that PBT may change.
    """

    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)

    @classmethod
    def of(
        cls, hyperparameters: Mapping[str, object], search_space: SearchSpace
    ) -> ScheduledValues:
        """Read the hyperparameters of a resolved configuration."""
        schedules = parse_schedules(hyperparameters)
        start = start_values(hyperparameters)
        space = {name: entry for name, entry in search_space.items() if name in schedules}
        dimensions = parse_search_space(space, start=start)
        return cls(
            schedules=schedules,
            ranges={n: d for n, d in dimensions.items() if not isinstance(d, Choices)},
        )

    @property
    def first_factors(self) -> dict[str, float]:
        """Factors of a policy that PBT has not touched."""
        return dict.fromkeys(self.schedules, 1.0)

    def completed(self, factors: Factors) -> dict[str, float]:
        """Return a factor for each present schedule; 1 if ``factors`` does not have it."""
        return {**self.first_factors, **{n: f for n, f in factors.items() if n in self.schedules}}

    def values(
        self, hyperparameters: Hyperparameters, *, factors: Factors, agent_steps: int
    ) -> dict[str, Value]:
        """Return all hyperparameters, with the values of schedules at some agent steps."""
        return {
            **hyperparameters,
            **{
                name: self._value(name, factor=factors[name], agent_steps=agent_steps)
                for name in self.schedules
                # A row that is older than a hyperparameter's schedule has no factor for it.
                if name in factors
            },
        }

    def explored(
        self,
        new: Hyperparameters,
        *,
        old: Hyperparameters,
        factors: Factors,
        agent_steps: int,
    ) -> tuple[dict[str, Value], dict[str, float]]:
        """Return the values in use, and the factors, after an exploration has changed values.

        Args:
            new: Values after the exploration.
            old: Values before it; a hyperparameter with an equal value keeps its factor.
            factors: Factors before it.
            agent_steps: Policy's agent steps.
        """
        moved = dict(factors)
        for name in self.schedules:
            if name not in new or name not in moved or new[name] == old.get(name):
                continue
            turned = self._turn(name, self.schedules[name].at(agent_steps))
            # f = x / schedule, unless the schedule is at 0, which no factor can move.
            if turned != 0.0:
                moved[name] = self._turn(name, number_of(new[name])) / turned
        return self.values(new, factors=moved, agent_steps=agent_steps), moved

    def next_mark(self, agent_steps: int) -> int | None:
        """Return the agent steps of the next mark of any schedule; None if no mark is left."""
        marks = (schedule.next_mark(agent_steps) for schedule in self.schedules.values())
        return min((mark for mark in marks if mark is not None), default=None)

    def _value(self, name: str, *, factor: float, agent_steps: int) -> float:
        scheduled = self.schedules[name].at(agent_steps)
        if factor == 1.0:
            return scheduled
        # x = s f with schedule s and factor f, or 1 - x = (1 - s) f with complement.
        value = self._turn(name, self._turn(name, scheduled) * factor)
        known = self.ranges.get(name)
        if known is not None:
            return known.fit(value)
        return round(value) if isinstance(scheduled, int) else value

    def _turn(self, name: str, value: float) -> float:
        known = self.ranges.get(name)
        return 1.0 - value if known is not None and known.complement else value


def start_values(hyperparameters: Mapping[str, object]) -> dict[str, Value]:
    """Return hyperparameters at 0 agent steps, without those that are null.

    Raises:
        ConfigError: If a mapping is not a valid schedule.
    """
    values: dict[str, Value] = {}
    for name, value in hyperparameters.items():
        if isinstance(value, Mapping):
            values[name] = parse_schedules({name: value})[name].at(0)
        elif isinstance(value, int | float):
            values[name] = value
    return values
