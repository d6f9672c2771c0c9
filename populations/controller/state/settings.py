"""Settings and rules that a run was started with, for as long as its epoch lasts."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from arena.config import LearnerSetup
from arena.types import Digest, WeightsRef
from populations.config.run_config import RunConfig
from populations.core import Exploit, Explore, Matchmaker, Thinning
from populations.hyperparameter_schedules import ScheduledValues
from populations.matchmaking.external_players import ExternalPlayer


class Settings(Struct, kw_only=True):
    """Settings and rules of a run. They stay as they are, but for players whose weights break.

    Attributes:
        config: The resolved configuration.
        setup: Setup of learners; its digests must match theirs.
        matchmaker: Draws opponents.
        external_players: Players from outside, bots and imported ones, by population.
        exploit: By population, decides who copies whom.
        explore: By population, decides what changes about hyperparameters.
        thinning: Decides which ghosts of a full pool go.
        scheduled: By population, hyperparameters that follow agent steps.
        initial_weights: Another run's weights that policies start from, by population.
        immigrants: Other runs' weights, by key, for immigration and for resets of exploiters.
        store: Digest of the store's id, which learners must see; None: they are not asked.
        versions: Versions of packages that the run records.
    """

    config: RunConfig
    setup: LearnerSetup
    matchmaker: Matchmaker
    external_players: Mapping[str, tuple[ExternalPlayer, ...]]
    exploit: Mapping[str, Exploit]
    explore: Mapping[str, Explore]
    thinning: Thinning
    scheduled: Mapping[str, ScheduledValues]
    initial_weights: Mapping[str, WeightsRef]
    immigrants: Mapping[str, WeightsRef]
    store: Digest | None
    versions: Mapping[str, str]
