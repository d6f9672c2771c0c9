"""Thinning of a full pool of ghosts: which ghosts are removed, and how.

Needed ghosts stay: those that a user has pinned or that are not linked yet, those in open
assignments or episodes in flight, the champion's weights, and those that exploiters restart from.
Another ghost is first marked for removal; its directory is removed after the commit, and then its
row. So a crash at any moment leaves a complete ghost or none.

Tests: `tests/populations/controller/test_ghost_thinning.py`.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from msgspec.structs import replace

from arena.types import Digest
from arena.users_code import guarded
from populations.controller.indexes.teams import GhostsByOrigin, ghosts_by_origin
from populations.controller.monitoring import alerts
from populations.controller.monitoring.champions import leading_entrant
from populations.controller.state.events import RemoveCheckpoints
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.core import ThinningRequest
from populations.hooks.findings import Finding
from populations.league.league import League
from populations.records.rows import GhostRow, Json
from populations.records.tables import Tables
from populations.roles import MAIN
from populations.thinning.make import make_thinning, places_of

INSTEAD = "spread"
"""Rule that chooses if a user's own rule fails."""


def thin(state: ControllerState, tx: Transaction) -> bool:
    """Mark ghosts of pools that are too large for removal; return whether any were marked."""
    keep, thinned_to = state.settings.config.ghosts.keep, state.settings.config.ghosts.thinned_to
    # The total is checked first, because most often no pool is too large.
    if keep is None or thinned_to is None or len(state.tables.ghosts) <= keep:
        return False
    thinned: list[GhostRow] = []
    # In cooperation only the leaders' population is ranked, and its ghosts' teammates go with them.
    for population in state.settings.setup.ranked_populations:
        present = [
            ghost
            for ghost in state.tables.ghosts.values()
            if ghost.population == population and ghost.is_present
        ]
        if len(present) > keep:
            num_to_go = len(present) - thinned_to
            thinned += _thinned(state, tx, population, present, num_to_go=num_to_go)
    for ghost in thinned:
        tx.put(replace(ghost, doomed=True))
    if thinned:
        tx.commands.append(RemoveCheckpoints(keys=tuple(ghost.key for ghost in thinned)))
    return bool(thinned)


def forget(tables: Tables, tx: Transaction, keys: Collection[str]) -> None:
    """Delete the rows of ghosts that were marked for removal and whose directories are removed."""
    gone = set(keys)
    for ghost in [one for one in tables.ghosts.values() if one.doomed and one.key in gone]:
        tx.delete(ghost)


def _thinned(
    state: ControllerState,
    tx: Transaction,
    population: str,
    present: list[GhostRow],
    *,
    num_to_go: int,
) -> list[GhostRow]:
    """Choose ghosts of a population for removal, with their teammates', and record the event."""
    config, ratings = state.settings.config.ghosts, state.fits.ratings(population)
    mates = ghosts_by_origin(state.league)
    teams = [_team(state.league, ghost, mates) for ghost in present]
    # Weights of champions must stay, because they hold the titles.
    leading = {Digest(leading_entrant(state.fits, name) or "") for name in state.tables.ratings}

    def is_needed(ghost: GhostRow) -> bool:
        return (
            not ghost.linked
            or ghost.weights_digest in leading
            or ghost.pinned
            or state.indexes.retention.needs(ghost.key)
            # Exploiters may restart from their first ghost, or from one that the configuration
            # names.
            or (ghost.role != MAIN and ghost.agent_steps == 0)
            or ghost.player == state.settings.config.roles.reset
        )

    numbers = {policy: number for number, policy in enumerate(state.tables.policies)}
    lows = [ratings.low(ghost.weights_digest) for ghost in present]
    request = ThinningRequest(
        # A ghost's policy may have no row any more; it has the number -1.
        policies=np.array([numbers.get(ghost.policy, -1) for ghost in present]),
        agent_steps=np.array([ghost.agent_steps for ghost in present]),
        ratings=np.array([ratings.rating(one.weights_digest) for one in present], dtype=np.float64),
        lows=np.array([-np.inf if low is None else low for low in lows]),
        is_needed=np.array([any(map(is_needed, team)) for team in teams]),
        num_to_go=num_to_go,
    )
    rule, going = _choose(state, tx, population, request)
    if going:
        players: list[Json] = [present[place].player for place in going]
        tx.add_event(
            "ghosts_thinned",
            population,
            rule=rule,
            keep=config.keep,
            before=len(present),
            needed=int(request.is_needed.sum()),
            ghosts=players,
        )
    return [ghost for place in going for ghost in teams[place]]


def _choose(
    state: ControllerState, tx: Transaction, population: str, request: ThinningRequest
) -> tuple[str, tuple[int, ...]]:
    """Choose ghosts by the rule; if it fails, by ``spread``, because the pool must not grow.

    Returns:
        Name of the rule that has chosen, and the chosen positions in the request.
    """
    config = state.settings.config.ghosts

    def instead(problem: str) -> tuple[str, tuple[int, ...], str]:
        tx.add_event("thinning_failed", population, reason=problem, instead=INSTEAD)
        return INSTEAD, make_thinning(INSTEAD, config).choose(request), problem

    rule, going, problem = guarded(
        lambda: (config.thinning, places_of(state.settings.thinning.choose(request), request), ""),
        instead,
        what=f"thinning the ghosts of {population}",
    )
    finding = Finding("thinning_fell_back", population, population, problem)
    alerts.record(state.measured, tx, finding)
    return rule, going


def _team(league: League, ghost: GhostRow, known: GhostsByOrigin) -> tuple[GhostRow, ...]:
    """Return a ghost and the ghosts that its teammates left at the same time."""
    mates = league.teams.get(ghost.policy, ())
    origin = league.tables.checkpoints[ghost.checkpoint].assignment_id
    found = (known.get((mate, origin)) for mate in mates if mate != ghost.policy)
    return (ghost, *(mate for mate in found if mate is not None))
