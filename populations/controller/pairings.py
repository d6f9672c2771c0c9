"""Who plays in an evaluation: the policy whose standing is most out of date, and rivals.

Frozen checkpoints only. Rivals are those whose ratings are known best (bots, standing weights of
other policies, a ghost), so that every match tells something about the newcomer.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from arena.matches.seating import pair_seatings
from arena.types import RANDOM_BOT, Entrant, Player, PlayerId, Seating
from arena.wire.messages import Evaluate, Pairing
from populations.controller.state import ControllerState
from populations.controller.transaction import Transaction
from populations.types import PolicyRow

MIN_MATCHES = 128
"""Of an assignment; more where a learner has more environments, which then play one match each."""

FINAL_MATCHES = 384
MAX_RIVAL_POLICIES = 3


def staleness(state: ControllerState, policy: PolicyRow) -> int:
    """Agent steps since the weights that a policy's standing is about; all of them if unrated."""
    digest = state.league.standing_weights(policy, state.tables)
    if policy.checkpoint is None or digest is None:
        return policy.agent_steps + 1
    current = state.tables.checkpoints[policy.checkpoint]
    standing = state.league.checkpoints[digest]
    return 0 if current.weights_digest == digest else current.agent_steps - standing.agent_steps


def stalest(state: ControllerState) -> PolicyRow | None:
    """The active policy whose standing is most out of date; None if all are up to date."""
    rows = [
        row
        for row in state.tables.policies.values()
        if row.state == "active" and row.checkpoint is not None and staleness(state, row) > 0
    ]
    return max(rows, key=lambda row: (staleness(state, row), -row.index), default=None)


def unfinished(state: ControllerState) -> list[PolicyRow]:
    """Active policies whose last checkpoint has not played its final matches and is not at it."""
    playing = {
        player.weights.digest
        for row in state.tables.assignments.values()
        if isinstance(row.message, Evaluate)
        for player in row.message.pairings[0].seating.players
        if player.weights is not None
    }
    waiting = []
    for row in state.tables.policies.values():
        if row.state != "active" or row.checkpoint is None:
            continue
        digest = state.tables.checkpoints[row.checkpoint].weights_digest
        record = state.league.record(row.population, digest)
        if record.matches < FINAL_MATCHES and digest not in playing:
            waiting.append(row)
    return waiting


def draw_pairings(state: ControllerState, tx: Transaction, focus: PolicyRow) -> tuple[Pairing, ...]:
    """Pair a policy's current checkpoint with rivals, in every seat equally often."""
    rng = state.draw(tx)
    assert focus.checkpoint is not None, "only policies with a checkpoint are evaluated"
    player = Player(
        player=PlayerId(focus.policy), weights=state.tables.checkpoints[focus.checkpoint].weights
    )
    populations = {seat.population for seat in state.setup.seats}
    seatings: list[Seating] = []
    if len(populations) == 1:
        for rival in _rivals(state, rng, focus.population, exclude=focus):
            seatings += pair_seatings(player, rival, seats=state.setup.seats)
    else:
        others = {name: _rivals(state, rng, name, exclude=focus) for name in sorted(populations)}
        for turn in range(max(len(rivals) for rivals in others.values())):
            rivals = {name: found[turn % len(found)] for name, found in others.items()}
            seatings += _seatings_among(state, player, focus.population, rivals)
        seatings += _anchors(state)
    in_all = max(MIN_MATCHES, state.config.environment.num_envs)
    num_matches = max(in_all // len(seatings), 4)
    return tuple(Pairing(seating=seating, num_matches=num_matches) for seating in seatings)


def _seatings_among(
    state: ControllerState, player: Player, population: str, rivals: dict[str, Player]
) -> list[Seating]:
    """The player in each seat of its population, rivals of each seat's population elsewhere."""
    seats = state.setup.seats
    return [
        Seating(
            players=tuple(
                player if index == own else rivals[seat.population]
                for index, seat in enumerate(seats)
            )
        )
        for own, own_seat in enumerate(seats)
        if own_seat.population == population
    ]


def _anchors(state: ControllerState) -> list[Seating]:
    """The zeros of all scales among themselves, until it is known what the game gives each side.

    Without such matches the advantage of a side could not be told from the strength of those who
    play for it.
    """
    entrants = [(seat.population, Entrant(RANDOM_BOT)) for seat in state.setup.seats]
    pairs = list(pairwise(entrants))
    played = sum(
        sum(outcome)
        for (first, second, _), outcome in state.league.results.items()
        if (first, second) in pairs
    )
    if played >= FINAL_MATCHES:
        return []
    return [Seating(players=tuple(Player(player=RANDOM_BOT) for _ in state.setup.seats))]


def _rivals(
    state: ControllerState, rng: np.random.Generator, population: str, *, exclude: PolicyRow
) -> list[Player]:
    """Bots, other policies' standing weights, and the ghost that has played least."""
    tables = state.tables
    rivals = [Player(player=PlayerId(bot)) for bot in state.config.evaluation.bots]
    policies = [
        row
        for row in tables.policies.values()
        if row.population == population
        and row.state == "active"
        and row.checkpoint is not None
        and row.policy != exclude.policy
    ]
    drawn = sorted(rng.permutation(len(policies))[:MAX_RIVAL_POLICIES])
    rivals += [standing_player(state, policies[index]) for index in drawn]
    ghosts = [
        ghost
        for ghost in tables.ghosts.values()
        if ghost.population == population and not ghost.corrupt
    ]
    if ghosts:
        least = min(
            ghosts,
            key=lambda ghost: (
                state.league.record(population, ghost.weights_digest).matches,
                -ghost.agent_steps,
                ghost.player,
            ),
        )
        rivals.append(Player(player=least.player, weights=least.weights))
    assert exclude.checkpoint is not None, "only policies with a checkpoint are evaluated"
    own_digest = tables.checkpoints[exclude.checkpoint].weights_digest
    return [
        rival for rival in rivals if rival.weights is None or rival.weights.digest != own_digest
    ]


def standing_player(state: ControllerState, policy: PolicyRow) -> Player:
    """A policy as the frozen player that its standing is about, else its current checkpoint."""
    assert policy.checkpoint is not None, "only policies with a checkpoint can be frozen"
    row = state.tables.checkpoints[policy.checkpoint]
    digest = state.league.standing_weights(policy, state.tables)
    if digest is not None:
        standing = state.tables.checkpoints[state.league.checkpoints[digest].key]
        row = standing if standing.state == "present" else row
    return Player(player=PlayerId(policy.policy), weights=row.weights)
