"""Figures that an environment reports about an episode, such as distances, counts or success.

An environment may put a mapping from names to numbers into ``infos[agent]["metrics"]``. It is read
once for each agent, at the end of the agent's episode, as a summary of the whole episode. Nothing
depends on these figures: a value that is no finite number is left out with a note in the log, and
the episode still counts.
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
"""Key of a figure that many environments report beside it; under ``metrics`` it is stronger."""

MAX_NAMES = 32
"""Most names in one batch of environments: each name is four curves of every policy."""

LARGEST = float(np.finfo(np.float32).max)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Report:
    """Figures of one agent at the end of an episode.

    Attributes:
        environment: Index in the batch.
        agent: Agent's column in ``Turn.reward``.
        figures: Finite numbers by name.
        num_ignored: Number of figures that were left out.
    """

    environment: int
    agent: int
    figures: Mapping[str, float]
    num_ignored: int


def reported_figures(info: Mapping[str, object]) -> object:
    """Return what an agent's last info reports about its episode; None: nothing.

    ``infos[agent]["success"]`` is the figure ``success``, as if it were among the metrics.
    """
    reported = info.get(KEY)
    success = info.get(SUCCESS)
    # Other values are left alone: the key may mean something else in an environment.
    if _number(success) is None:
        return reported
    if reported is None:
        return {SUCCESS: success}
    return {SUCCESS: success, **reported} if isinstance(reported, Mapping) else reported


@dataclass(slots=True)
class EpisodeFigures:
    """Collector of the figures of a batch of environments.

    Attributes:
        reports: Reports since the last call of ``clear``; always the same list.
    """

    reports: list[Report] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _noted: set[str] = field(default_factory=set)

    def take(self, environment: int, agent: int, reported: object) -> None:
        """Add the usable figures of an agent's report."""
        if not isinstance(reported, Mapping):
            # The whole report counts as one ignored figure.
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
        # A report without any usable figure is kept, too: the number of those left out is shown.
        self.reports.append(Report(environment, agent, figures, len(reported) - len(figures)))

    def void(self, environment: int) -> None:
        """Discard the reports of an environment whose episode is void."""
        # The list is changed in place, because every `Turn` of the batch holds it.
        self.reports[:] = [one for one in self.reports if one.environment != environment]

    def limit(self) -> None:
        """Leave out figures whose names are too many, once the reports of a call are complete."""
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
        # The first names stay, so that a curve never stops in favour of a later one.
        if name in self._names:
            return True
        if len(self._names) < MAX_NAMES:
            self._names.add(name)
            return True
        self._note("number", f"may have {MAX_NAMES} names, {name!r} is one more")
        return False

    def _note(self, about: str, text: str) -> None:
        """Log a fault once."""
        # The figures of a broken environment come by the thousand.
        # Bounded, since the names are the environment's and it may invent new ones for ever.
        if about not in self._noted and len(self._noted) < MAX_NAMES:
            self._noted.add(about)
            logger.warning("a figure is left out: infos[agent][%r] %s", KEY, text)


def _number(value: object) -> float | None:
    """Return a finite number that float32 can hold, or None; True is 1."""
    # Text and arrays are refused here, as float() accepts some of both.
    if not isinstance(value, bool | int | float | np.number | np.bool_):
        return None
    try:
        number = float(value)
    # An int may be too large for a float.
    except (OverflowError, TypeError, ValueError):
        return None
    # A comparison with NaN is False.
    return number if -LARGEST <= number <= LARGEST else None
