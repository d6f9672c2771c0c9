"""Metrics that an environment reports about an episode, such as distances, counts or success.

An environment may put a mapping from names to numbers into ``infos[agent]["metrics"]``. It is read
once for each agent, at the end of the agent's episode, as a summary of the whole episode. No result
depends on these metrics: a value that is no finite number is ignored and logged, and the episode
still counts.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

logger = logging.getLogger(__name__)

KEY = "metrics"
"""Key in an agent's info."""

SUCCESS = "success"
"""Key of a metric that many environments put beside ``metrics``; an entry in it has priority."""

MAX_NAMES = 32
"""Most metric names in one batch of environments, because each name is four curves per policy."""

LARGEST = float(np.finfo(np.float32).max)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Report:
    """Metrics of one agent at the end of an episode.

    Attributes:
        environment: Index in the batch.
        agent: Agent's column in ``Turn.reward``.
        figures: Finite numbers by name.
        num_ignored: Number of ignored metrics.
    """

    environment: int
    agent: int
    figures: Mapping[str, float]
    num_ignored: int


def reported_figures(info: Mapping[str, object]) -> object:
    """Return the metrics in an agent's last info; None: there are none.

    ``infos[agent]["success"]`` counts as the metric ``success``.
    """
    reported = info.get(KEY)
    success = info.get(SUCCESS)
    # Any other value is ignored, because the key may mean something else in an environment.
    if _number(success) is None:
        return reported
    if reported is None:
        return {SUCCESS: success}
    return {SUCCESS: success, **reported} if isinstance(reported, Mapping) else reported


@dataclass(slots=True)
class EpisodeFigures:
    """Collector of the metrics of a batch of environments.

    Attributes:
        reports: Reports since the last call of ``clear``; always the same list.
    """

    reports: list[Report] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _noted: set[str] = field(default_factory=set)

    def take(self, environment: int, agent: int, reported: object) -> None:
        """Add the usable metrics of an agent's report."""
        if not isinstance(reported, Mapping):
            # The whole report counts as one ignored metric.
            self._note("", f"must be a mapping from names to numbers, got {reported!r:.80}")
            self.reports.append(Report(environment, agent, {}, 1))
            return
        figures: dict[str, float] = {}
        for name, value in reported.items():
            number = _number(value)
            if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                self._note("name", f"has a name of other than letters, digits, ._-: {name!r:.80}")
            elif number is None:
                self._note(name, f"{name!r} must be a finite number, got {value!r:.80}")
            else:
                figures[name] = number
        # A report without usable metrics is kept, because the number of ignored ones is shown.
        self.reports.append(Report(environment, agent, figures, len(reported) - len(figures)))

    def void(self, environment: int) -> None:
        """Discard the reports of an environment whose episode is void."""
        # The list is changed in place, because every `Turn` of the batch refers to it.
        self.reports[:] = [one for one in self.reports if one.environment != environment]

    def limit(self) -> None:
        """Ignore metrics with more than `MAX_NAMES` names, once the reports of a call are
        complete.
        """
        for at, report in enumerate(self.reports):
            known = {name: value for name, value in report.figures.items() if self._knows(name)}
            num_others = len(report.figures) - len(known)
            if num_others:
                ignored = report.num_ignored + num_others
                self.reports[at] = replace(report, figures=known, num_ignored=ignored)

    def clear(self) -> None:
        """Discard the reports of the last call."""
        self.reports.clear()

    def _knows(self, name: str) -> bool:
        # The first names are kept, so that a curve never stops in favour of a later one.
        if name in self._names:
            return True
        if len(self._names) < MAX_NAMES:
            self._names.add(name)
            return True
        self._note("number", f"may have {MAX_NAMES} names, {name!r} is one more")
        return False

    def _note(self, about: str, text: str) -> None:
        """Log a fault once."""
        # A broken environment reports thousands of faults. The set is bounded, because names come
        # from the environment, which may invent new ones for ever.
        if about not in self._noted and len(self._noted) < MAX_NAMES:
            self._noted.add(about)
            logger.warning("a figure is left out: infos[agent][%r] %s", KEY, text)


def _number(value: object) -> float | None:
    """Return a finite number that float32 can hold, or None; True is 1."""
    # Text and arrays are refused here, because float() accepts some of both.
    if not isinstance(value, bool | int | float | np.number | np.bool_):
        return None
    try:
        number = float(value)
    # An int may be too large for a float.
    except (OverflowError, TypeError, ValueError):
        return None
    # Any comparison with NaN is false.
    return number if -LARGEST <= number <= LARGEST else None
