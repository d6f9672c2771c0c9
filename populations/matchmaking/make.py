"""Construction of a run's matchmaker from the section ``matchmaking``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from arena.errors import ConfigError
from arena.resolve import resolve
from arena.users_code import users_code
from populations.core import Matchmaker, OpponentRequest, Opponents
from populations.matchmaking.drawing import GhostMemory, Rule, RuleMatchmaker, draw_count
from populations.matchmaking.kinds import KINDS
from populations.matchmaking.settings import MatchmakingConfig
from populations.matchmaking.window import WindowRule


def make_matchmaker(config: MatchmakingConfig, *, window: int, launch_directory: str) -> Matchmaker:
    """Make the matchmaker of a run, without players from outside (`external_players`).

    ``latest_ratio`` and ``living_ratio`` are shares of the same opponents.

    Args:
        config: Section ``matchmaking``.
        window: Number of the newest ghosts that ``window`` draws from.
        launch_directory: Directory that is searched first for the package of a user's own class.

    Raises:
        ConfigError: If a user's own class cannot be imported, made or used.
    """
    inner = _without_living(config, window=window, launch_directory=launch_directory)
    if config.living_ratio == 0.0:
        return inner
    return LivingMatchmaker(inner=inner, living_ratio=config.living_ratio)


def _without_living(config: MatchmakingConfig, *, window: int, launch_directory: str) -> Matchmaker:
    """Make the matchmaker of the opponents that `LivingMatchmaker` leaves over."""
    if config.kind not in KINDS:
        return _users_own(config.kind, options=config.options, launch_directory=launch_directory)
    rule = KINDS[config.kind].from_sections(config, ghosts=WindowRule(window=window))
    # `latest` and `alphastar` are complete matchmakers, to which ``latest_ratio`` does not apply.
    if not isinstance(rule, Rule):
        return rule
    # The inner matchmaker draws only the opponents that are no living members, so the share of the
    # latest among them is larger. With a living ratio of 1 it is asked only if no other member is
    # active, and draws only the latest.
    rest = 1.0 - config.living_ratio
    latest_ratio = min(config.latest_ratio / rest, 1.0) if rest > 0.0 else 1.0
    return RuleMatchmaker(rule=rule, latest_ratio=latest_ratio)


def ghost_memory(matchmaker: Matchmaker) -> GhostMemory | None:
    """Return the rule of a matchmaker if it stores a number for each ghost; None otherwise."""
    # A wrapper has no memory itself, but the rule inside may have one.
    if isinstance(matchmaker, LivingMatchmaker):
        return ghost_memory(matchmaker.inner)
    rule = matchmaker.rule if isinstance(matchmaker, RuleMatchmaker) else matchmaker
    return rule if isinstance(rule, GhostMemory) else None


def _users_own(
    reference: str, *, options: Mapping[str, object], launch_directory: str
) -> Matchmaker:
    """Make a user's own matchmaker: ``package.module:Class``, called with the options."""
    try:
        made = resolve(reference, launch_directory=launch_directory)
    except ConfigError as error:
        raise ConfigError(f"matchmaking.kind: {error}") from error
    if not callable(made):
        raise ConfigError(f"matchmaking.kind: {reference} must be a class, got {made!r}")
    called = f"matchmaking.kind: {reference} called with matchmaking.options {dict(options)!r}"
    # An error message of the user's class includes the arguments of the call.
    with users_code(called):
        matchmaker = made(**options)
    if not callable(getattr(matchmaker, "draw", None)):
        raise ConfigError(
            f"matchmaking.kind: {reference} must be a populations.core.Matchmaker, with a method "
            f"draw(request, *, rng), got {matchmaker!r}"
        )
    return UsersMatchmaker(reference=reference, matchmaker=cast(Matchmaker, matchmaker))


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersMatchmaker:
    """Guard around a user's own matchmaker, which may raise any error and return anything.

    Attributes:
        reference: Reference to the user's class, as the configuration has it.
        matchmaker: Instance of the user's class.
    """

    reference: str
    matchmaker: Matchmaker

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw opponents by the user's matchmaker.

        Raises:
            ConfigError: If it raises an error, or returns anything but `Opponents`.
        """
        with users_code(f"matchmaking.kind: {self.reference} in draw"):
            drawn: object = self.matchmaker.draw(request, rng=rng)
        # The type is checked here, because a wrong one would fail far away from its cause.
        if not isinstance(drawn, Opponents):
            raise ConfigError(
                f"matchmaking.kind: {self.reference} in draw must return Opponents, got {drawn!r}"
            )
        return drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class LivingMatchmaker:
    """Matchmaker that draws a share of living members, and the rest by another matchmaker.

    A living member is another active policy of the trainee's population, at its latest checkpoint.
    Source: population-based training in Sample Factory (Petrenko et al., 2020), whose policies play
    the current versions of one another.

    Attributes:
        inner: Matchmaker of all other opponents.
        living_ratio: Share of living members among the opponents, in [0, 1]. It is 0 if there are
            none, or if the opponents are of another population.
    """

    inner: Matchmaker
    living_ratio: float

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw living members, each as often as any other, and the rest by the inner rule."""
        # A population of one policy has no other living members; another population's do not count.
        if not request.is_own_population or not len(request.latest):
            return self.inner.draw(request, rng=rng)
        num_living = draw_count(self.living_ratio, of=request.num_opponents, rng=rng)
        # One permutation is repeated, so that how often members are drawn differs by at most one.
        drawn = np.resize(rng.permutation(len(request.latest)), num_living)
        living = tuple(request.latest[int(index)] for index in drawn)
        # Matchmakers raise an error for 0 opponents, so the inner one is not called.
        if num_living == request.num_opponents:
            return Opponents(num_mirrors=0, players=living)
        rest = replace(request, num_opponents=request.num_opponents - num_living)
        opponents = self.inner.draw(rest, rng=rng)
        return replace(opponents, players=(*opponents.players, *living))
