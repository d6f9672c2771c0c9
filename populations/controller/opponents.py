"""Against whom a policy trains in one assignment: the seatings of its blocks of environments."""

from __future__ import annotations

from arena.matches.seating import seatings_for
from arena.types import Entrant, Player, PlayerId, Seating, WeightsRef, trainee_entrant
from populations.controller.state import ControllerState
from populations.controller.transaction import Transaction
from populations.core import Candidate, OpponentRequest
from populations.types import PolicyRow


def draw_seatings(
    state: ControllerState, tx: Transaction, policy: PolicyRow
) -> tuple[Seating, ...]:
    """Draw opponents from every population that has a seat, and seat them and the trainee.

    The trainee has each of its seats equally often. In cooperation it has all agents.
    """
    trainee = Player(player=PlayerId(policy.policy))
    seats = state.setup.seats
    if state.is_cooperation:
        return seatings_for(trainee, seats=seats, population=policy.population, opponents={})
    opponents: dict[str, tuple[Player, ...]] = {}
    num_mirrors = 0
    for population in dict.fromkeys(seat.population for seat in seats):
        own_seats = sum(seat.population == population for seat in seats)
        is_own = population == policy.population
        if is_own and own_seats == 1:
            continue
        weights = _frozen_weights(state, population)
        request = OpponentRequest(
            trainee=policy.policy,
            entrant=trainee_entrant(policy.policy, generation=policy.generation),
            num_opponents=state.config.matchmaking.opponents,
            ghosts=_ghosts(state, population),
            latest=() if is_own else _latest(state, population),
            win_rate=state.league.payoff.win_rate,
        )
        drawn = state.matchmaker.draw(request, rng=state.draw(tx))
        opponents[population] = tuple(
            Player(player=candidate.player, weights=weights[candidate.player])
            for candidate in drawn.players
        )
        if is_own:
            # As many blocks as an opponent from the pool has: one for each of the trainee's seats.
            num_mirrors = drawn.num_mirrors * own_seats
    return seatings_for(
        trainee,
        seats=seats,
        population=policy.population,
        opponents=opponents,
        num_mirrors=num_mirrors,
    )


def _ghosts(state: ControllerState, population: str) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            player=ghost.player,
            policy=ghost.policy,
            entrant=Entrant(ghost.weights_digest),
            agent_steps=ghost.agent_steps,
        )
        for ghost in state.tables.ghosts.values()
        if ghost.population == population and not ghost.corrupt
    )


def _latest(state: ControllerState, population: str) -> tuple[Candidate, ...]:
    """The current checkpoints of another population's active policies."""
    rows = state.tables.policies.values()
    checkpoints = state.tables.checkpoints
    return tuple(
        Candidate(
            player=PlayerId(row.policy),
            policy=row.policy,
            entrant=Entrant(checkpoints[row.checkpoint].weights_digest),
            agent_steps=row.agent_steps,
        )
        for row in rows
        if row.population == population and row.checkpoint is not None and row.state == "active"
    )


def _frozen_weights(state: ControllerState, population: str) -> dict[PlayerId, WeightsRef]:
    """Where the weights of a population's frozen players are."""
    weights = {
        ghost.player: ghost.weights
        for ghost in state.tables.ghosts.values()
        if ghost.population == population
    }
    for row in state.tables.policies.values():
        if row.population == population and row.checkpoint is not None:
            weights[PlayerId(row.policy)] = state.tables.checkpoints[row.checkpoint].weights
    return weights
