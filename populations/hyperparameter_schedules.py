"""Hyperparameters whose values follow a policy's agent steps.

A hyperparameter is a number or a schedule: ``{linear: [a, b], over_agent_steps: N}``,
``{cosine: [a, b], over_agent_steps: N}`` or ``{steps: {0: a, N: b}}``. The value in use is

    schedule(agent steps) x factor

(with ``complement`` it is 1 - x to which this applies), within the bounds of the search space. PBT
moves the factor, which begins at 1; with a factor of 1 the value is the schedule's own, which may
be outside of the bounds as a start value may. A value is computed where agent steps change, so it
holds for a whole assignment.

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
"""Factors that PBT moves, by the names of scheduled hyperparameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A value that goes from ``first`` to ``last`` and stays there.

    Attributes:
        kind: ``linear`` or ``cosine``.
        first: Value at 0 agent steps.
        last: Value from ``over_agent_steps`` on.
        over_agent_steps: Agent steps from the one to the other.
    """

    kind: str
    first: float
    last: float
    over_agent_steps: int

    def at(self, agent_steps: int) -> float:
        """Return the value after so many agent steps."""
        progress = min(agent_steps / self.over_agent_steps, 1.0)
        if self.kind == "cosine":
            # p <- (1 - cos(pi p)) / 2
            progress = (1.0 - math.cos(math.pi * progress)) / 2.0
        # a (1 - p) + b p: exact at both ends
        return self.first * (1.0 - progress) + self.last * progress

    def next_mark(self, agent_steps: int) -> int | None:
        """Return None: it changes all the time, and assignments are its steps."""
        del agent_steps
        return None

    @property
    def values(self) -> tuple[float, ...]:
        """Values between which it stays."""
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
    """A value that changes at marks.

    Attributes:
        marks: Agent steps from which each value holds, rising from 0, with the values.
    """

    marks: tuple[tuple[int, float], ...]

    def at(self, agent_steps: int) -> float:
        """Return the value after so many agent steps."""
        return next(value for mark, value in reversed(self.marks) if mark <= agent_steps)

    def next_mark(self, agent_steps: int) -> int | None:
        """Return the next mark ahead; None after the last one."""
        return next((mark for mark, _ in self.marks if mark > agent_steps), None)

    @property
    def values(self) -> tuple[float, ...]:
        """Values that it takes."""
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
    """Return agent steps; None if it is no whole number of at least 0."""
    # Keys of a document are text.
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
        coerce: Function from a hyperparameter and a value to the value as the algorithm has it;
            raises a ConfigError for one that it refuses.
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
        # A factor moves along a scale; choices have none.
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
        ranges: Ranges of those that PBT may change.
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
        """Return a factor for each schedule that there is now, 1 where there was none."""
        return {**self.first_factors, **{n: f for n, f in factors.items() if n in self.schedules}}

    def values(
        self, hyperparameters: Hyperparameters, *, factors: Factors, agent_steps: int
    ) -> dict[str, Value]:
        """Return all hyperparameters, scheduled ones as they are after so many agent steps."""
        return {
            **hyperparameters,
            **{
                name: self._value(name, factor=factors[name], agent_steps=agent_steps)
                for name in self.schedules
                # Rows of before a hyperparameter had a schedule have no factor.
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
        """Return hyperparameters in use and factors after an exploration of values in use.

        Args:
            new: Values that were explored.
            old: Values that they came from; one that stays keeps its factor.
            factors: Factors of those.
            agent_steps: Policy's agent steps.
        """
        moved = dict(factors)
        for name in self.schedules:
            if name not in new or name not in moved or new[name] == old.get(name):
                continue
            turned = self._turn(name, self.schedules[name].at(agent_steps))
            # f = x / schedule; where the schedule is at 0, no factor leads away from it.
            if turned != 0.0:
                moved[name] = self._turn(name, number_of(new[name])) / turned
        return self.values(new, factors=moved, agent_steps=agent_steps), moved

    def next_mark(self, agent_steps: int) -> int | None:
        """Return agent steps at which a value changes next at once; None: no such mark is ahead."""
        marks = (schedule.next_mark(agent_steps) for schedule in self.schedules.values())
        return min((mark for mark in marks if mark is not None), default=None)

    def _value(self, name: str, *, factor: float, agent_steps: int) -> float:
        scheduled = self.schedules[name].at(agent_steps)
        if factor == 1.0:
            return scheduled
        # x = s f, or 1 - x = (1 - s) f with complement
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
        ConfigError: If a schedule is none.
    """
    values: dict[str, Value] = {}
    for name, value in hyperparameters.items():
        if isinstance(value, Mapping):
            values[name] = parse_schedules({name: value})[name].at(0)
        elif isinstance(value, int | float):
            values[name] = value
    return values
