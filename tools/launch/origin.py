"""Origins of a new run in other runs, as its user names them.

Tests: `tests/tools/launch/test_origin.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origins of a run in other runs: players' weights, a policy's schedule.

    Attributes:
        init_from: Players whose weights policies start from, as PLAYER or POPULATION=PLAYER.
        with_hyperparameters: Whether policies start from these players' hyperparameters, too.
        replay: Policy whose hyperparameter schedule is followed.
    """

    init_from: tuple[str, ...] = ()
    with_hyperparameters: bool = False
    replay: str | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether nothing comes from other runs."""
        return self == Origin()

    @property
    def said(self) -> str | None:
        """Players of ``--init-from``, as run.yaml names them; None: there are none."""
        return ", ".join(self.init_from) or None

    def check(self) -> None:
        """Refuse options that do not go together.

        Raises:
            ConfigError: Names them.
        """
        from arena.errors import ConfigError

        if not self.with_hyperparameters:
            return
        if not self.init_from:
            raise ConfigError(
                "--with-hyperparameters needs --init-from: the player that the values come from"
            )
        if self.replay is not None:
            raise ConfigError(
                "--with-hyperparameters and --schedule-of exclude each other: a schedule begins "
                f"with hyperparameters of its own, got --schedule-of {self.replay}"
            )


def players_by_population(
    init_from: Sequence[str], populations: Sequence[str]
) -> Mapping[str | None, str]:
    """Return players by the population that they are named for; None: for all others.

    Args:
        init_from: PLAYER or POPULATION=PLAYER, each population at most once.
        populations: Populations of the run.

    Raises:
        ConfigError: If two players are for the same population, or there is no such population.
    """
    from arena.errors import ConfigError
    from populations.config.resolution import POPULATION_NAME

    found: dict[str | None, str] = {}
    for text in init_from:
        name, is_named, player = text.partition("=")
        population: str | None = name
        # A path or a bot's arguments may have an equals sign, too, but no name of a population.
        if not is_named or not POPULATION_NAME.fullmatch(name):
            population, player = None, text
        elif name not in populations:
            raise ConfigError(
                f"--init-from {text}: a population must be one of {', '.join(populations)}, got "
                f"{name!r} (a path may begin with ./)"
            )
        if population in found:
            what = "all populations" if population is None else f"population {population}"
            raise ConfigError(
                f"--init-from names one player for {what}, got {found[population]} and {player}"
            )
        found[population] = player
    return found
