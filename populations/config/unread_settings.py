"""Settings of a new configuration that no chosen rule reads.

Such a key has no effect, so the user who wrote it expects something that will not happen. A
``run.yaml`` has every key, those of rules that were not chosen too, and is not asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from populations.config.population_overrides import merged
from populations.config.sections import GhostsConfig, PopulationConfig
from populations.matchmaking.alphastar import AlphastarMatchmaker
from populations.matchmaking.kinds import KINDS
from populations.matchmaking.settings import MatchmakingConfig
from populations.pbt.exploit import FractionSettings
from populations.pbt.kinds import EXPLOITS, EXPLORES
from populations.pbt.settings import PbtConfig
from populations.roles import has_exploiters
from populations.rule_kinds import Choice, unread_settings
from populations.thinning.kinds import THINNINGS


def find_unread_settings(
    *,
    matchmaking: MatchmakingConfig,
    ghosts: GhostsConfig,
    pbt: PbtConfig,
    populations: Mapping[str, PopulationConfig],
) -> tuple[str, ...]:
    """Return a sentence for each key that is not at its default and that no chosen rule reads.

    Args:
        matchmaking: Section ``matchmaking`` as loaded, before it is resolved, as all of these are.
        ghosts: Section ``ghosts``.
        pbt: Section ``pbt``.
        populations: Populations by name, each of which may have settings of PBT of its own.
    """
    matchmaker = Choice("matchmaking.kind", KINDS, matchmaking.kind, own_reads_section=False)
    has_roles = any(has_exploiters(section.roles) for section in populations.values())
    # Snapshots by role read what ``alphastar`` reads.
    also_read = frozenset(AlphastarMatchmaker.model_fields) if has_roles else frozenset[str]()
    faults = [
        *unread_settings(
            matchmaking, prefix="matchmaking", choices=[matchmaker], also_read=also_read
        ),
        *unread_settings(
            ghosts,
            prefix="ghosts",
            choices=[matchmaker, Choice("ghosts.thinning", THINNINGS, ghosts.thinning)],
        ),
        # Without populations the environment makes them, with the general rules.
        *_unread_of_pbt(pbt, populations or {"": PopulationConfig()}),
    ]
    faults += _unread_of_players(populations)
    # Populations with equal sections have equal sentences.
    return tuple(dict.fromkeys(faults))


def _unread_of_players(populations: Mapping[str, PopulationConfig]) -> Iterator[str]:
    """Yield a sentence for each key about learning of a population in which nobody learns."""
    for name, population in populations.items():
        if population.player is None:
            continue
        for key in sorted(population.model_fields_set - {"agents", "player", "network"}):
            if getattr(population, key) != PopulationConfig.model_fields[key].get_default(
                call_default_factory=True
            ):
                yield (
                    f"populations.{name}.{key} has no effect where populations.{name}.player is "
                    f"{population.player!r}: nobody learns there"
                )


def _unread_of_pbt(pbt: PbtConfig, populations: Mapping[str, PopulationConfig]) -> Iterator[str]:
    # Evaluation looks at the worst and the best, whatever the rule.
    also_read = frozenset(FractionSettings.model_fields)
    chosen = list[Choice]()
    for name, population in populations.items():
        own = population.pbt
        section = pbt if own is None else merged(pbt, own)
        # A general key is read if any population's rules read it.
        chosen += _choices(section)
        if own is None:
            continue
        prefix = f"populations.{name}.pbt"
        # A key as in the general section is that one's: the dump of a configuration has them all.
        shared = {key for key in own.model_fields_set if getattr(own, key) == getattr(pbt, key)}
        choices = _choices(section, prefix=prefix, own=own.model_fields_set)
        yield from unread_settings(
            own, prefix=prefix, choices=choices, also_read=also_read | shared
        )
    yield from unread_settings(pbt, prefix="pbt", choices=chosen, also_read=also_read)


def _choices(section: PbtConfig, *, prefix: str = "pbt", own: Collection[str] = ()) -> list[Choice]:
    """Return the rules that a section names, under the keys that name them.

    Args:
        section: Section with what it inherits.
        prefix: Dotted name of a population's own section.
        own: Keys that the population's own section has.
    """
    return [
        Choice(f"{prefix if key in own else 'pbt'}.{key}", kinds, name)
        for key, kinds, name in (
            ("exploit", EXPLOITS, section.exploit),
            ("explore", EXPLORES, section.explore),
        )
    ]
