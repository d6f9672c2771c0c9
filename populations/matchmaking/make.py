"""From the configuration's words to a matchmaker."""

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
    """Make the matchmaker of a run; `external_players` have their share before it is asked.

    ``latest_ratio`` and ``living_ratio`` are shares of the same opponents.

    Args:
        config: The section ``matchmaking``.
        window: Number of the newest ghosts that ``window`` draws from.
        launch_directory: Directory that is searched first for ``package`` of a user's own.

    Raises:
        ConfigError: If a user's own cannot be imported, made or used.
    """
    inner = _without_living(config, window=window, launch_directory=launch_directory)
    if config.living_ratio == 0.0:
        return inner
    return LivingMatchmaker(inner=inner, living_ratio=config.living_ratio)


def _without_living(config: MatchmakingConfig, *, window: int, launch_directory: str) -> Matchmaker:
    """Make the matchmaker of those opponents that are not the other living members."""
    if config.kind not in KINDS:
        return _users_own(config.kind, options=config.options, launch_directory=launch_directory)
    rule = KINDS[config.kind].from_sections(config, ghosts=WindowRule(window=window))
    # `latest` and `alphastar` draw by themselves: they have no share of the latest to set aside.
    if not isinstance(rule, Rule):
        return rule
    # The inner matchmaker sees only the opponents that are not living members, so its share grows.
    # Where the living have all, it is asked only where none lives: then the latest have all.
    rest = 1.0 - config.living_ratio
    latest_ratio = min(config.latest_ratio / rest, 1.0) if rest > 0.0 else 1.0
    return RuleMatchmaker(rule=rule, latest_ratio=latest_ratio)


def ghost_memory(matchmaker: Matchmaker) -> GhostMemory | None:
    """Return the rule of a matchmaker if it keeps a number about each ghost."""
    # Wrappers have no memory; the rule inside may.
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
    # An error of the user's class is told with the arguments it was called with.
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
    """A user's own matchmaker, which may raise and answer anything.

    Attributes:
        reference: Name that the user gave.
        matchmaker: Object that the user's class made.
    """

    reference: str
    matchmaker: Matchmaker

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Ask the user's matchmaker.

        Raises:
            ConfigError: If it raises, or answers with anything but opponents.
        """
        with users_code(f"matchmaking.kind: {self.reference} in draw"):
            drawn: object = self.matchmaker.draw(request, rng=rng)
        # The answer is checked at each draw: one of another type would fail far from here.
        if not isinstance(drawn, Opponents):
            raise ConfigError(
                f"matchmaking.kind: {self.reference} in draw must return Opponents, got {drawn!r}"
            )
        return drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class LivingMatchmaker:
    """Matchmaker that sets a share of living members aside and leaves the rest to another.

    Source: population-based training in Sample Factory (Petrenko et al., 2020), whose policies play
    the current versions of one another.

    Attributes:
        inner: Matchmaker of all other opponents.
        living_ratio: Share of opponents, in [0, 1], that are the latest checkpoints of the other
            active policies, all alike. ``inner`` has it too where there is none, and where the
            opponents are of another population.
    """

    inner: Matchmaker
    living_ratio: float

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """Draw living members, each as often as any other, and the rest by the inner rule."""
        # A population of one, or another population, has no other living members to offer.
        if not request.is_own_population or not len(request.latest):
            return self.inner.draw(request, rng=rng)
        num_living = draw_count(self.living_ratio, of=request.num_opponents, rng=rng)
        # A permutation repeated as often as needed: members differ by at most one opponent.
        drawn = np.resize(rng.permutation(len(request.latest)), num_living)
        living = tuple(request.latest[int(index)] for index in drawn)
        # The inner matchmaker refuses to draw none.
        if num_living == request.num_opponents:
            return Opponents(num_mirrors=0, players=living)
        rest = replace(request, num_opponents=request.num_opponents - num_living)
        opponents = self.inner.draw(rest, rng=rng)
        return replace(opponents, players=(*opponents.players, *living))
