"""Policies with which a run begins, with their hyperparameters.

Tests: `tests/populations/controller/evolution/test_initial_policies.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from arena.types import Hyperparameters, PolicyId, Value
from populations.config.run_config import RunConfig
from populations.pbt.explore import initial_hyperparameters, spread_hyperparameters
from populations.records.rows import PolicyRow
from populations.roles import deal_roles


def initial_policies(
    config: RunConfig, *, factors: Mapping[str, Mapping[str, float]] | None = None
) -> list[PolicyRow]:
    """Return the members of all populations, diverse from the start.

    Each but the reference member gets one exploration of the start values, or with ``pbt.initial``
    values drawn from its search space, seeded by the run's seed, the population's position and, for
    an exploration, the member's index.

    Args:
        config: Resolved configuration.
        factors: Factors with which schedules begin, by population; missing ones are 1.
    """
    rows = []
    for position, (name, population) in enumerate(config.populations.items()):
        roles = deal_roles(population.roles, size=population.size)
        scheduled = population.scheduled
        first = scheduled.completed((factors or {}).get(name, {}))
        start = scheduled.values(population.start_values, factors=first, agent_steps=0)
        spread: list[dict[str, Value]] = []
        if config.pbt_of(name).initial == "sampled" and not population.schedule:
            spread = spread_hyperparameters(
                start,
                population.search_space,
                num_members=population.num_policies,
                rng=np.random.default_rng(np.random.SeedSequence([config.seed, 3, position])),
            )
        for index in range(population.num_policies):
            seed = np.random.SeedSequence([config.seed, 3, position, index])
            hyperparameters: Hyperparameters = start
            moved = first
            if population.schedule:
                hyperparameters = population.schedule[0].hyperparameters
            elif index > 0:
                # Member 0 has the start values themselves.
                explored = (
                    spread[index - 1]
                    if spread
                    else initial_hyperparameters(
                        start, population.search_space, rng=np.random.default_rng(seed)
                    )
                )
                hyperparameters, moved = scheduled.explored(
                    explored, old=start, factors=first, agent_steps=0
                )
            rows.append(
                PolicyRow(
                    policy=PolicyId(f"{name}/p{index:03d}"),
                    population=name,
                    index=index,
                    role=roles[index],
                    hyperparameters=dict(hyperparameters),
                    factors=moved,
                )
            )
    return rows
