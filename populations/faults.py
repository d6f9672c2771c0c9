"""Faults of a configuration, gathered so that all of them are named at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from arena.errors import ConfigError, ConfigFaults, faults_of


class Faults:
    """Faults that were found so far; checks go on behind each."""

    def __init__(self) -> None:
        self._errors: list[ConfigError] = []

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self._errors

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Take the fault that is raised inside, if one is."""
        try:
            yield
        except ConfigError as error:
            self._errors.append(error)

    def raise_any(self) -> None:
        """Raise what was found: one fault as it was, several as one error.

        Raises:
            ConfigError: If there is a fault.
        """
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise ConfigFaults(text for error in self._errors for text in faults_of(error))


@contextmanager
def named(key: str) -> Iterator[None]:
    """Begin the faults that are raised inside with the key that they are below."""
    try:
        yield
    except ConfigError as error:
        raise ConfigFaults(f"{key}.{text}" for text in faults_of(error)) from error
