"""Collected faults of a configuration, to report all of them at once.

Tests: `tests/tools/launch/test_preflight.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arena.errors import ConfigError, ConfigFaults, faults_of


class Faults:
    """Collection of faults, so that checks can continue after each one."""

    def __init__(self) -> None:
        self._errors: list[ConfigError] = []

    @property
    def is_empty(self) -> bool:
        """Return whether no fault was found."""
        return not self._errors

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Collect the fault that the body of the ``with`` raises, if any."""
        try:
            yield
        # Any other exception is a defect of Arena, not a user's mistake, and ends the check.
        except ConfigError as error:
            self._errors.append(error)

    def raise_any(self) -> None:
        """Raise the collected faults: a single fault as it was, several as one error.

        Raises:
            ConfigError: If there is a fault.
        """
        # The type and cause of the original error say more than a collection of one fault.
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            # Flatten the errors, as each of them may contain several faults.
            raise ConfigFaults(text for error in self._errors for text in faults_of(error))


@contextmanager
def named(key: str) -> Iterator[None]:
    """Prefix faults that the body of the ``with`` raises with the key that contains them."""
    try:
        yield
    except ConfigError as error:
        raise ConfigFaults(f"{key}.{text}" for text in faults_of(error)) from error
