"""Ghosts and exports that policies leave: when they are due, and what follows from a ghost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from arena.checkpoints.manifest import ghost_key
from arena.config import LearnerSetup
from arena.types import ghost_id
from populations.config.run_config import RunConfig
from populations.controller.evolution.resets import try_reset
from populations.controller.opponents import make_request, quality_of_new
from populations.controller.state.epoch import Settings
from populations.controller.state.events import LinkGhosts
from populations.controller.state.state import ControllerState, Indexes
from populations.controller.state.transaction import Transaction
from populations.core import FloatArray
from populations.matchmaking.alphastar import AlphastarMatchmaker
from populations.records.rows import CheckpointRow, GhostRow, Json, PolicyRow
from populations.roles import MAIN, MAIN_EXPLOITER, has_exploiters, next_mark
from populations.rule_kinds import read_settings

JEFFREYS = 0.5
"""Prior Beta(1/2, 1/2) of a win rate: this number is added to wins and to losses."""

EXPORT_DUE = "export_due"
"""Kind of the event that an export is due; its subject is the policy."""


def snapshot(state: ControllerState, tx: Transaction, team: Sequence[PolicyRow]) -> None:
    """Freeze ghosts of a team if they are due: at step 0, then at intervals or by role.

    Exploiters may be reset after it.

    Args:
        state: The controller.
        tx: Transaction that takes the rows.
        team: Policies that learned together, with their new checkpoints. If a ghost is due for one
            of them, each leaves one, because they are seated and rated only together.
    """
    reasons = (_why(state.settings, state.indexes, policy) for policy in team)
    why = next((reason for reason in reasons if reason is not None), None)
    for policy in team if why is not None else ():
        assert policy.checkpoint is not None, "it has just published one"
        _freeze(state, tx, policy, state.tables.checkpoints[policy.checkpoint], why=why or {})


def _freeze(
    state: ControllerState,
    tx: Transaction,
    policy: PolicyRow,
    checkpoint: CheckpointRow,
    *,
    why: Mapping[str, Json],
) -> None:
    settings, pools = state.settings, state.indexes.opponent_pools
    player = ghost_id(policy.policy, agent_steps=policy.agent_steps)
    ghost = GhostRow(
        player=player,
        policy=policy.policy,
        population=policy.population,
        agent_steps=policy.agent_steps,
        generation=policy.generation,
        weights_digest=checkpoint.weights_digest,
        key=ghost_key(policy.policy, agent_steps=policy.agent_steps, digest=checkpoint.digest),
        checkpoint=checkpoint.key,
        role=policy.role,
        quality=quality_of_new(settings.matchmaker, pools, policy.population),
    )
    tx.put(ghost)
    tx.put(replace(state.tables.policies[policy.policy], ghost_at=policy.agent_steps))
    tx.add_event(
        "ghost_created",
        player,
        policy=policy.policy,
        role=policy.role,
        agent_steps=policy.agent_steps,
        weights=checkpoint.weights_digest,
        every_agent_steps=settings.config.ghosts.every_agent_steps,
        **why,
    )
    # The row is committed before the directory is made, so that a resume can make it after a crash.
    tx.commands.append(LinkGhosts(ghosts=(ghost,)))
    # The ghost of a policy's first checkpoint is no reason for a reset: it has not trained yet.
    if policy.ghost_at >= 0:
        try_reset(state, tx, policy.policy)


def steps_to_next(config: RunConfig, policy: PolicyRow) -> int:
    """Return the agent steps until a policy's next ghost may be due; below 1 if it is due."""
    every = config.ghosts.every_agent_steps
    if policy.ghost_at < 0 or not has_exploiters(config.populations[policy.population].roles):
        return policy.ghost_at + every - policy.agent_steps
    return next_mark(policy.agent_steps - policy.ghost_at, phase=every)


def _why(settings: Settings, indexes: Indexes, policy: PolicyRow) -> dict[str, Json] | None:
    """Return why a ghost is due, with the numbers for its event; None if it is not due."""
    if policy.ghost_at < 0:
        return {"reason": "its first checkpoint"}
    config, agent_steps = settings.config, policy.agent_steps - policy.ghost_at
    if agent_steps < config.ghosts.every_agent_steps:
        return None
    if not has_exploiters(config.populations[policy.population].roles):
        return {"reason": f"{agent_steps:,} agent steps since the last one"}
    win_rates = _win_rates(settings, indexes, policy)
    reason = config.roles.why_ghost(
        policy.role,
        agent_steps=agent_steps,
        win_rates=win_rates,
        phase=config.ghosts.every_agent_steps,
        constants=read_settings(AlphastarMatchmaker, config.matchmaking).constants,
    )
    if reason is None:
        return None
    return {
        "reason": reason,
        "smallest_win_rate": float(win_rates.min()) if len(win_rates) else None,
        "num_met": len(win_rates),
        "win_rate": config.roles.win_rate,
    }


def _win_rates(settings: Settings, indexes: Indexes, policy: PolicyRow) -> FloatArray:
    """Return a policy's win rates in training against its targets. float64 [N].

    Targets of a main exploiter are the latest main agents, those of other roles all ghosts. Only
    targets with ``roles.min_matches`` matches count, by results without predictions.
    """
    # The list begins with an empty array, because an empty list cannot be concatenated.
    found: list[FloatArray] = [np.zeros(0)]
    for population in _opposing(settings.setup, policy):
        request = make_request(settings, indexes, policy, population)
        rivals = request.ghosts
        if policy.role == MAIN_EXPLOITER:
            rivals = request.latest.take(np.flatnonzero(request.latest.of_role(MAIN)))
        wins, losses = request.record(rivals)
        # Old matches fade, so these sums may be fractions.
        is_met = wins + losses >= settings.config.roles.min_matches
        # (w + 1/2) / (w + l + 1) is the mean of the posterior with Jeffreys' prior.
        found.append(((wins + JEFFREYS) / (wins + losses + 2.0 * JEFFREYS))[is_met])
    return np.concatenate(found)


def _opposing(setup: LearnerSetup, policy: PolicyRow) -> Iterator[str]:
    """Yield the populations in which a policy has opponents."""
    seats = setup.seats
    own_sides = {seat.side for seat in seats if seat.population == policy.population}
    for population in dict.fromkeys(seat.population for seat in seats):
        sides = {seat.side for seat in seats if seat.population == population}
        if len(own_sides | sides) > 1:
            yield population


def mark_export(config: RunConfig, tx: Transaction, policy: PolicyRow, *, before: int) -> None:
    """Record an event that a policy's new checkpoint is to be exported, if it has passed a mark.

    Args:
        config: Configuration of the run.
        tx: Transaction that takes the event.
        policy: Policy with its new checkpoint.
        before: Agent steps of its previous checkpoint.
    """
    every = config.checkpoints.export_every_agent_steps
    if every and policy.agent_steps // every > before // every:
        tx.add_event(
            EXPORT_DUE,
            policy.policy,
            # The name includes the agent steps, because the policy may have trained on by the time
            # of the export.
            player=f"{policy.policy}@{policy.agent_steps}",
            agent_steps=policy.agent_steps,
            # The directory's name has as many digits as those of checkpoints and ghosts.
            to=f"{policy.policy}/{policy.agent_steps:012d}",
            export_every_agent_steps=every,
        )
