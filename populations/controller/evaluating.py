"""Who plays in an evaluation: newcomers themselves first, then the pairs that tell most.

Frozen weights only. `populations.league.scheduling` says which pairs; here they are seated, each
player in every seat equally often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from arena.matches.seating import pair_seatings, team_seating
from arena.types import RANDOM_BOT, Entrant, Player, PlayerId, PolicyId, Seating
from arena.wire.messages import Evaluate, Pairing
from populations.controller.field import KnownField, entrant_of, known_field
from populations.controller.known import Known
from populations.controller.state import ControllerState
from populations.controller.teams import frozen_team, is_whole, team_of
from populations.controller.transaction import Transaction
from populations.league.scheduling import choose_pairs, importance
from populations.types import PolicyRow

FloatArray = npt.NDArray[np.float64]

MIN_MATCHES = 128
"""Of an assignment; more where a learner has more environments, which then play one match each."""

MAX_EVALUATION_S = 60.0
"""Of an assignment, in learner seconds: fewer matches where they take long."""

MATCHES_PER_SEATING = 8
MIN_MATCHES_PER_SEATING = 4
MAX_PAIRS = 32

VALIDATION_MATCHES = 4
MAX_NEWCOMERS = 32
"""Of one assignment."""

ANCHOR_MATCHES = 384
"""Between the zeros of all scales, until it is known what the game gives each side."""


def draw_pairings(state: ControllerState, tx: Transaction) -> tuple[Pairing, ...]:
    """What an evaluation during training plays; empty if there is nothing to be played."""
    newcomers = validation_pairings(state)
    if newcomers:
        return newcomers
    rng = state.draw(tx)
    known = known_field(state, rng)
    weights = importance(known.field, fraction=state.config.pbt.fraction)
    return pairings_about(state, known, weights=weights)


def pairings_about(
    state: ControllerState, known: KnownField, *, weights: FloatArray
) -> tuple[Pairing, ...]:
    """Seat the pairs that shrink the weighted variances most, and a bot with a player near to it.

    Args:
        state: With the evaluations that are open: their matches count as played.
        known: The players.
        weights: How much each rating matters. float64 [N].
    """
    weights = np.where([player.kind == "bot" for player in known.players], 0.0, weights)
    in_all = at_most(state, max(MIN_MATCHES, state.setup.num_envs))
    seats_per_pair = _num_seatings(state)
    num_pairs = min(max(in_all // (MATCHES_PER_SEATING * seats_per_pair), 1), MAX_PAIRS)
    chosen = choose_pairs(
        known.field,
        weights=weights,
        may_play=np.ones(len(known.players), dtype=bool),
        num_pairs=num_pairs,
        matches_per_pair=MATCHES_PER_SEATING * seats_per_pair,
        played=_open_pairs(state, known),
    )
    # A pair that was chosen more than once plays more.
    shares = Counter(
        seating
        for first, second in (*chosen, *_anchoring(state, known, chosen))
        for seating in seatings_of(state, known.players[first], known.players[second])
    )
    shares.update(_anchors(state))
    if not shares:
        return ()
    num_matches = max(in_all // shares.total(), MIN_MATCHES_PER_SEATING)
    return tuple(
        Pairing(seating=seating, num_matches=num_matches * share)
        for seating, share in shares.items()
    )


def at_most(state: ControllerState, num_matches: int) -> int:
    """As many matches of some as an assignment has time for; 1 at least."""
    if state.match_s is None:
        return num_matches
    return max(min(num_matches, int(MAX_EVALUATION_S / max(state.match_s, 1e-9))), 1)


def _num_seatings(state: ControllerState) -> int:
    """Seatings in which two players of a pair have every seat equally often."""
    if len(state.setup.populations) > 1:
        return 1
    home, away = Player(player=PlayerId("bot:home")), Player(player=PlayerId("bot:away"))
    return len(pair_seatings(home, away, seats=state.setup.seats))


def seatings_of(state: ControllerState, first: Known, second: Known) -> tuple[Seating, ...]:
    """Two players in every seat equally often; of other populations, random play fills the rest."""
    seats = state.setup.seats
    if state.is_cooperation:
        return (team_seating(first.team, second.team, seats=seats),)
    if len(state.setup.populations) == 1:
        return pair_seatings(first.player, second.player, seats=seats)
    players = {first.population: first.player, second.population: second.player}
    rest = Player(player=RANDOM_BOT)
    return (Seating(players=tuple(players.get(seat.population, rest) for seat in seats)),)


def _open_pairs(state: ControllerState, known: KnownField) -> list[tuple[int, int, int]]:
    """Pairs of evaluations that are not finished, with their matches."""
    position = {
        (player.population, player.entrant): index for index, player in enumerate(known.players)
    }
    found = []
    for message in open_evaluations(state):
        for pairing in message.pairings:
            seated = dict.fromkeys(
                (seat.population, entrant_of(player))
                for seat, player in zip(state.setup.seats, pairing.seating.players, strict=True)
            )
            indices = [position[key] for key in seated if key in position]
            if len(indices) == 2:
                found.append((indices[0], indices[1], pairing.num_matches))
    return found


def open_evaluations(state: ControllerState) -> Iterator[Evaluate]:
    """Evaluations that were decided and are not finished."""
    for row in state.tables.assignments.values():
        if isinstance(row.message, Evaluate):
            yield row.message


def _anchoring(
    state: ControllerState, known: KnownField, chosen: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """One pair for each bot, so that the scale keeps its zero.

    By turns the bot meets the player whose strength is nearest to its own, who tells most about the
    distance, and the one whom this evaluation is about most, so that everybody meets it at times.
    """
    ratings, population = known.field.ratings, known.field.population
    is_alone = len(state.ranked_populations) == 1
    for index, player in enumerate(known.players):
        if player.kind != "bot":
            continue
        rivals = [
            other
            for other, rival in enumerate(known.players)
            if rival.kind != "bot" and (is_alone or population[other] != population[index])
        ]
        if not rivals:
            continue
        first = chosen[0][0] if chosen else rivals[0]
        if state.tables.run.next_assignment % 2 == 0 or first not in rivals:
            first = min(rivals, key=lambda rival: abs(ratings[rival] - ratings[index]))
        yield first, index


def _anchors(state: ControllerState) -> list[Seating]:
    """The zeros of all scales among themselves, until it is known what the game gives each side.

    Without such matches the advantage of a side could not be told from the strength of those who
    play for it.
    """
    if len(state.ranked_populations) == 1:
        return []
    # Results have the lower seat first.
    bots = [(seat.population, Entrant(RANDOM_BOT)) for seat in state.setup.seats]
    keys = (
        (bots[low], bots[high], (low, high))
        for low, high in combinations(range(len(bots)), 2)
        if (bots[low], bots[high]) in set(pairwise(bots))
    )
    played = sum(
        counts.matches for key in keys if (counts := state.league.results.get(key)) is not None
    )
    if played >= ANCHOR_MATCHES:
        return []
    return [Seating(players=tuple(Player(player=RANDOM_BOT) for _ in state.setup.seats))]


def newcomers(state: ControllerState) -> list[PolicyRow]:
    """Active policies of whose generation no checkpoint has played itself yet; who lead teams."""
    validating = set(validated_by(state, open_evaluations(state)))
    return [
        row
        for row in state.tables.policies.values()
        if row.validated_generation != row.generation
        and row.population in state.ranked_populations
        and row.policy not in validating
        and is_whole(state, row)
    ]


def validation_pairings(state: ControllerState) -> tuple[Pairing, ...]:
    """Newcomers against themselves: what breaks here is their own fault.

    After a failed evaluation one at a time, so that it is known whose.
    """
    limit = MAX_NEWCOMERS if state.failed_evaluations == 0 else 1
    limit = min(limit, -(-at_most(state, MAX_NEWCOMERS * VALIDATION_MATCHES) // VALIDATION_MATCHES))
    return tuple(
        Pairing(seating=_alone(state, row), num_matches=VALIDATION_MATCHES)
        for row in newcomers(state)[:limit]
    )


def _alone(state: ControllerState, row: PolicyRow) -> Seating:
    """A policy and its mates in all seats of their populations, random play in the others."""
    team, rest = frozen_team(state, row), Player(player=RANDOM_BOT)
    return Seating(players=tuple(team.get(seat.population, rest) for seat in state.setup.seats))


def validated_by(state: ControllerState, messages: Iterator[Evaluate]) -> Iterator[PolicyId]:
    """Policies that play against themselves in some evaluations."""
    for message in messages:
        for pairing in message.pairings:
            policy = validated_policy(state, pairing)
            if policy is not None:
                yield policy


def validated_policy(state: ControllerState, pairing: Pairing) -> PolicyId | None:
    """The policy that a pairing validates, of a team the leader.

    It and its mates are alone, but for random play in other populations.
    """
    players = pairing.seating.players
    named = next((player.player for player in players if player.weights is not None), None)
    row = state.tables.policies.get(PolicyId(named or ""))
    if row is None:
        return None
    team: dict[str, str] = {mate.population: mate.policy for mate in team_of(state, row)}
    is_alone = all(
        player.player == team[seat.population]
        if seat.population in team
        else player.weights is None
        for seat, player in zip(state.setup.seats, players, strict=True)
    )
    return team_of(state, row)[0].policy if is_alone else None
