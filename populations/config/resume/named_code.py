"""Code that a configuration names: ``package.module:Name``, by the key that names it.

Tests: `tests/populations/config/resume/test_named_code.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from arena.bot_ids import parse_bot
from arena.types import is_bot
from populations.config.run_config import RunConfig
from populations.pbt.settings import PbtConfig


def named_code(config: RunConfig) -> dict[str, str]:
    """Return all references of a configuration but the environment's own, by their dotted keys."""
    # Only a reference to code has a colon; names of kinds have none.
    return {key: name for key, name in _names(config) if ":" in name}


def _names(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Yield each key that may name code, with its value."""
    if isinstance(config.environment.outcome, str):
        yield "environment.outcome", config.environment.outcome
    yield "matchmaking.kind", config.matchmaking.kind
    yield "ghosts.thinning", config.ghosts.thinning
    yield from _bots("evaluation.bots", *config.evaluation.bots)
    yield from _bots("matchmaking.bots", *config.matchmaking.bots)
    yield from _rules("pbt", config.pbt)
    for name, population in config.populations.items():
        key = f"populations.{name}"
        if population.player is not None:
            yield from _bots(f"{key}.player", population.player)
        yield f"{key}.algorithm", population.algorithm
        yield f"{key}.network.encoder", population.network.encoder
        if population.normalizer_warm_up is not None:
            yield from _bots(
                f"{key}.normalizer_warm_up.player", population.normalizer_warm_up.player
            )
        if population.pbt is not None:
            yield from _rules(f"{key}.pbt", population.pbt)
    for index, sink in enumerate(config.metrics.sinks):
        yield f"metrics.sinks[{index}]", sink
    for kind, hooks in config.hooks.by_kind.items():
        for index, hook in enumerate(hooks):
            # The others are commands.
            if isinstance(hook, str):
                yield f"hooks.{kind}[{index}]", hook


def _bots(key: str, *players: str) -> Iterator[tuple[str, str]]:
    for index, player in enumerate(players):
        # An export of another run is weights, and `bot:random` is Arena's own.
        bot = parse_bot(player) if is_bot(player) else None
        if bot is not None:
            yield f"{key}[{index}]" if len(players) > 1 else key, bot.reference


def _rules(key: str, section: PbtConfig) -> Iterator[tuple[str, str]]:
    yield f"{key}.exploit", section.exploit
    yield f"{key}.explore", section.explore
