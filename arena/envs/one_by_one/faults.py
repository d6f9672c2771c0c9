"""Faults of environments, and how many are tolerated.

Tests: `tests/faults/test_environment_faults.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from arena.errors import EnvironmentFault

FREE_FAULTS = 16
EPISODES_PER_FAULT = 10
"""Faults tolerated since a reset: `FREE_FAULTS`, and one more per `EPISODES_PER_FAULT` episodes."""


class Moment(NamedTuple):
    """Moment of a fault.

    Attributes:
        stage: Part of a call, counted from 0: every environment in the order of the batch, then
            those that are resumed, then the decisions of all.
        num_played: Episodes since the reset that these environments have played to their ends.
    """

    stage: int
    num_played: int


class Faults(Protocol):
    """Faults since a reset."""

    def clear(self) -> None:
        """Begin anew."""

    def bear(self, fault: EnvironmentFault, moment: Moment) -> None:
        """Count a fault, after which its environment is made anew.

        Raises:
            EnvironmentFault: If it is not tolerated.
        """


class ToleratedFaults:
    """Faults of which some are tolerated.

    Args:
        on_fault: Callback with each one that is. None: none is.

    Attributes:
        number: Faults since the reset.
    """

    def __init__(self, on_fault: Callable[[EnvironmentFault], None] | None) -> None:
        self._on_fault = on_fault
        self.number = 0

    def clear(self) -> None:
        """Begin anew."""
        self.number = 0

    def bear(self, fault: EnvironmentFault, moment: Moment) -> None:
        """Count a fault.

        Raises:
            EnvironmentFault: If it is one too many.
        """
        if self._on_fault is None:
            raise fault
        self.number += 1
        if self.number > most_faults(moment.num_played):
            raise EnvironmentFault(
                f"{self.number} episodes were void beside {moment.num_played} that were played to "
                f"their ends; the last: {fault}"
            ) from fault
        self._on_fault(fault)

    def most_more(self, num_played: int) -> int:
        """Return how many faults more are tolerated if so many episodes have been played."""
        return 0 if self._on_fault is None else most_faults(num_played) - self.number


def most_faults(num_played: int) -> int:
    """Return how many faults are tolerated beside so many episodes."""
    return FREE_FAULTS + num_played // EPISODES_PER_FAULT
