"""Policies from outside: in the place of a copy, now and then, fresh or another run's weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from arena.types import Entrant
from populations.controller.evolution.generations import begin_generation
from populations.controller.evolution.members import is_reference
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.pbt.explore import initial_hyperparameters
from populations.records.rows import Json, PolicyRow

IMMIGRANTS = "immigrants"
FRESH = "fresh"


def immigrant_key(population: str, index: int) -> str:
    """Return directory of an immigrant's weights, relative to the run's.

    Args:
        population: Population that it comes into.
        index: Position in ``pbt.immigration.from``.
    """
    return f"{IMMIGRANTS}/{population}/{index:03d}"


def try_immigrate(
    state: ControllerState,
    tx: Transaction,
    team: Sequence[PolicyRow],
    *,
    data: Mapping[str, Json],
) -> bool:
    """Put immigrants in a team's places with the configured probability; False: they were not.

    Hyperparameters are those that a new member would have. The reference member is never replaced,
    nor is a policy that has reached its limit of agent steps.

    Args:
        state: The controller.
        tx: Takes the rows.
        team: Policies that would copy a donor and its mates; the first one leads.
        data: The numbers of that decision.
    """
    policy, config = team[0], state.settings.config
    immigration = config.pbt_of(policy.population).immigration
    limit = config.stop.agent_steps_per_policy
    is_done = limit is not None and policy.agent_steps >= limit
    if immigration.probability <= 0.0 or is_done or is_reference(config, policy):
        return False
    # Draw after the conditions, so that no decision number is taken without immigration.
    rng = tx.draw()
    if rng.random() >= immigration.probability:
        return False
    for row in team:
        _immigrate(state, tx, row, rng=rng, data=data)
    return True


def _immigrate(
    state: ControllerState,
    tx: Transaction,
    policy: PolicyRow,
    *,
    rng: np.random.Generator,
    data: Mapping[str, Json],
) -> None:
    immigration = state.settings.config.pbt_of(policy.population).immigration
    players = immigration.players
    index = int(rng.integers(len(players))) if players else None
    population = state.settings.config.populations[policy.population]
    # A new member's, by the clock of the policy whose place it takes.
    scheduled = state.settings.scheduled[policy.population]
    first = scheduled.first_factors
    start = scheduled.values(population.start_values, factors=first, agent_steps=policy.agent_steps)
    new, factors = scheduled.explored(
        initial_hyperparameters(start, population.search_space, rng=rng),
        old=start,
        factors=first,
        agent_steps=policy.agent_steps,
    )
    after = begin_generation(
        state.fits,
        tx,
        replace(
            policy,
            # The next assignment makes one of the new weights; until then there is none to play
            # with.
            checkpoint=None,
            # Empty: fresh ones. None would be those that the whole population starts from.
            initial_weights="" if index is None else immigrant_key(policy.population, index),
            parent=None,
            hyperparameters=new,
            factors=factors,
            ready_at=policy.agent_steps,
        ),
        cause="immigrate",
        parent=None if index is None else Entrant(players[index]),
    )
    # The donor that it would have copied is told as ``instead_of``.
    numbers = {name: value for name, value in data.items() if name != "donor"}
    tx.add_decision(
        "immigrated",
        policy.policy,
        **{
            **numbers,
            "instead_of": data.get("donor"),
            "from": FRESH if index is None else players[index],
            "immigration_probability": immigration.probability,
            "generation": after.generation,
            "agent_steps": policy.agent_steps,
            "old": dict(policy.hyperparameters),
            "new": dict(new),
        },
    )
