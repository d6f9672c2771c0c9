"""Against whom a policy trains in one assignment: the seatings of its blocks of environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from msgspec import structs

from arena.errors import ConfigError
from arena.matches.seating import seatings_for, seats_in_turn
from arena.matches.teammates import Lineup, mixed_seatings
from arena.types import (
    Entrant,
    Player,
    PlayerId,
    PolicyId,
    Seating,
    Tally,
    WeightsRef,
    policy_of_trainee,
    population_of,
    trainee_entrant,
)
from arena.wire.messages import Train
from populations.candidates import Candidate, Candidates
from populations.controller.opponents.statistics import OpponentStatistics
from populations.controller.state.state import ControllerState
from populations.controller.state.teams import maker_of, team_of
from populations.controller.state.transaction import Transaction
from populations.core import PRIOR_MATCHES, Matchmaker, OpponentRequest, Opponents
from populations.matchmaking.external_players import ExternalPlayersMatchmaker
from populations.matchmaking.make import ghost_memory
from populations.records.rows import Json, PolicyRow


def draw_seatings(
    state: ControllerState, tx: Transaction, policy: PolicyRow, *, rival: PolicyRow | None = None
) -> tuple[Seating, ...]:
    """Draw opponents from every population that has a seat, and seat them and the trainee.

    The trainee has each of its seats equally often. In cooperation it and its mates have all
    agents.

    Args:
        state: State of the controller.
        tx: Transaction that takes the rows.
        policy: Policy that trains.
        rival: Policy of the other population that learns beside it, and plays live where it is
            drawn. None: all opponents are frozen.
    """
    trainee = Player(player=PlayerId(policy.policy))
    seats = state.setup.seats
    if state.setup.agent_seats:
        return _draw_mixed(state, tx, policy, trainee)
    if state.is_cooperation:
        mates = {
            row.population: Player(player=PlayerId(row.policy)) for row in team_of(state, policy)
        }
        return seatings_for(
            trainee, seats=seats, population=policy.population, opponents={}, mates=mates
        )
    live = None if rival is None else PlayerId(rival.policy)
    opponents: dict[str, tuple[Player, ...]] = {}
    num_mirrors = 0
    turns = _turns(state, tx, policy)
    for population in dict.fromkeys(seat.population for seat in seats):
        own_seats = sum(seat.population == population for seat in seats)
        is_own = population == policy.population
        # The trainee has the only seat of its population.
        if is_own and own_seats == 1:
            continue
        request = make_request(state, policy, population, rival=rival)
        mirrors, drawn = _draw_players(state, request, population, rng=state.draw(tx))
        opponents[population] = tuple(
            structs.replace(player, weights=None) if player.player == live else player
            for player in drawn
        )
        if is_own:
            # As many blocks as an opponent from the pool has: one for each of the trainee's seats.
            num_mirrors = mirrors * (len(turns[0]) if turns else own_seats)
    return seatings_for(
        trainee,
        seats=seats,
        population=policy.population,
        opponents=opponents,
        num_mirrors=num_mirrors,
        turns=turns,
    )


def _turns(
    state: ControllerState, tx: Transaction, policy: PolicyRow
) -> tuple[tuple[int, ...], ...]:
    """Draw the seats that the trainee has with each opponent, where it cannot have all of them."""
    seats, num_opponents = state.setup.seats, state.config.matchmaking.opponents
    draw = partial(
        seats_in_turn,
        seats,
        population=policy.population,
        # Each seating needs an environment.
        num_seatings=state.setup.num_envs,
        num_opponents=num_opponents,
    )
    # Nothing is drawn where it has all of them.
    return draw(start=int(state.draw(tx).integers(len(seats)))) if draw(start=0) else ()


def _draw_mixed(
    state: ControllerState, tx: Transaction, policy: PolicyRow, trainee: Player
) -> tuple[Seating, ...]:
    """Draw rivals as where teammates are the same, and partners apart, one for each other agent."""
    seats, num_lineups = state.setup.seats, state.config.matchmaking.opponents
    beside: list[tuple[Player, ...]] = [()] * num_lineups
    against: list[dict[str, tuple[Player, ...]]] = [{} for _ in range(num_lineups)]
    rng = state.draw(tx)
    # Each place on a side equally often in the long run, also with fewer opponents than places.
    first_turn = int(rng.integers(max(len(seat.agents) for seat in seats)))
    for population in dict.fromkeys(seat.population for seat in seats):
        num_sides = sum(seat.population == population for seat in seats)
        request = make_request(state, policy, population)
        if population == policy.population:
            beside = _draw_partners(state, request, policy, population, rng=rng)
            # In cooperation, or with its population's only side, there is no rival of its own.
            if state.is_cooperation or num_sides == 1:
                continue
        num_mirrors, drawn = _draw_players(state, request, population, rng=rng)
        rivals = [trainee] * num_mirrors + list(drawn)
        external = {player.player for player in state.external_players.get(population, ())}
        partners: list[tuple[Player, ...]] = [()] * len(rivals)
        if any(rival.player not in external for rival in rivals):
            partners = _draw_partners(state, request, policy, population, rng=rng)
        for others, rival, mates in zip(against, rivals, partners, strict=True):
            # A bot or an imported champion has its whole side.
            others[population] = (rival,) if rival.player in external else (rival, *mates)
    lineups = [Lineup(beside=b, against=a) for b, a in zip(beside, against, strict=True)]
    return mixed_seatings(
        trainee,
        seats=seats,
        population=policy.population,
        lineups=lineups,
        first_turn=first_turn,
        turns=_turns(state, tx, policy),
    )


def _draw_partners(
    state: ControllerState,
    request: OpponentRequest,
    policy: PolicyRow,
    population: str,
    *,
    rng: np.random.Generator,
) -> list[tuple[Player, ...]]:
    """Draw partners for each opponent of a request, as many as the population's largest side needs.

    The matchmaker draws them as it draws opponents. Where it draws the trainee, its latest
    checkpoint is the partner.
    """
    num_lineups = request.num_opponents
    sizes = [len(seat.agents) for seat in state.setup.seats if seat.population == population]
    number = max(sizes) - 1
    if number == 0:
        return [()] * num_lineups
    asked = replace(request, num_opponents=num_lineups * number)
    # Without bots and imported champions: partners are of the league.
    drawn = _checked(state, state.matchmaker, asked, population, rng=rng)
    assert policy.checkpoint is not None, "a policy trains from a checkpoint"
    itself = Player(
        player=PlayerId(policy.policy),
        weights=state.tables.checkpoints[policy.checkpoint].weights,
    )
    players = [itself] * drawn.num_mirrors + [
        Player(player=candidate.player, weights=_weights(state, candidate, {}))
        for candidate in drawn.players
    ]
    # The matchmaker's order is by kind: without another one, mirrors would have mirrors beside.
    order = rng.permutation(len(players)).tolist()
    return [
        tuple(players[order[lineup * number + place]] for place in range(number))
        for lineup in range(num_lineups)
    ]


def make_request(
    state: ControllerState, policy: PolicyRow, population: str, *, rival: PolicyRow | None = None
) -> OpponentRequest:
    """Make the request to the matchmaker: opponents of one population for a policy.

    A rival that learns beside it is the only latest one.
    """
    pool = state.opponent_pools.pool(population, state.tables)
    latest = pool.latest(without=policy.policy)
    num_opponents = state.config.matchmaking.opponents
    if rival is not None:
        _, latest = pool.named([PlayerId(rival.policy)])
        # Each has so many, and each seating needs an environment.
        num_opponents = min(num_opponents, state.setup.num_envs // 2)
    facts = OpponentStatistics(state, pool, policy, population)
    return OpponentRequest(
        trainee=policy.policy,
        role=policy.role,
        entrant=trainee_entrant(policy.policy, generation=policy.generation),
        agent_steps=policy.agent_steps,
        num_opponents=num_opponents,
        is_own_population=population == policy.population,
        ghosts=pool.ghosts.candidates,
        latest=latest,
        record=facts.record,
        predicted=facts.predicted,
        ratings=facts.ratings,
        trainee_rating=facts.trainee_rating(),
        scores=facts.scores,
    )


def knowledge(state: ControllerState, message: Train) -> dict[str, Json]:
    """Return how often a trainee is thought to beat each opponent, and how much is prediction.

    By player: ``win_rates``, draws half; and in ``predicted`` the share of each win rate that is
    what ratings promise, the rest being results: 1 for an opponent that it never met. Bots and
    players of other runs are left out.
    """
    win_rates: dict[str, Json] = {}
    predicted: dict[str, Json] = {}
    for trainee in message.trainees:
        policy = state.tables.policies[trainee.policy]
        itself = Player(player=PlayerId(trainee.policy))
        # Of several trainees each has opponents of its own.
        frozen = dict.fromkeys(
            player.player
            for seating in message.opponents
            if itself in seating.players
            for player in seating.players
            if player.weights is not None
        )
        for population in dict.fromkeys(population_of(player) for player in frozen):
            # A player of another run, whose results are no payoffs of this one.
            if population not in state.setup.populations:
                continue
            request = make_request(state, policy, population)
            for candidates in state.opponent_pools.pool(population, state.tables).named(frozen):
                points, lost = request.posterior(candidates)
                all_points = zip(candidates.players, points, points + lost, strict=True)
                for player, won, matches in all_points:
                    # Beta(a, b): mean a / (a + b), and of a + b PRIOR_MATCHES are the prediction's.
                    win_rates[player] = round(float(won / matches), 3)
                    predicted[player] = round(float(PRIOR_MATCHES / matches), 3)
    return {"win_rates": win_rates, "predicted": predicted}


def _draw_players(
    state: ControllerState, request: OpponentRequest, population: str, *, rng: np.random.Generator
) -> tuple[int, tuple[Player, ...]]:
    """Draw opponents of a population: how often the trainee plays itself, and all others."""
    matchmaker = state.matchmaker
    # Others are only rated.
    external = [one for one in state.external_players.get(population, ()) if one.share]
    if external:
        # Around the rule: the configured shares are kept whatever it draws.
        matchmaker = ExternalPlayersMatchmaker(inner=matchmaker, external=external)
    drawn = _checked(state, matchmaker, request, population, rng=rng)
    known = {player.player: player.weights for player in external}
    players = tuple(
        Player(player=candidate.player, weights=_weights(state, candidate, known))
        for candidate in drawn.players
    )
    return drawn.num_mirrors, players


def _checked(
    state: ControllerState,
    matchmaker: Matchmaker,
    request: OpponentRequest,
    population: str,
    *,
    rng: np.random.Generator,
) -> Opponents:
    """Ask a matchmaker for others than those whose weights fail; a user's may answer anything.

    Raises:
        ConfigError: If what it answers are not the opponents that it was asked for.
    """
    drawn = matchmaker.draw(_without_shunned(state, request), rng=rng)
    number = drawn.num_mirrors + len(drawn.players)
    if number != request.num_opponents or drawn.num_mirrors < 0:
        raise ConfigError(
            f"matchmaking.kind: {state.config.matchmaking.kind} must draw "
            f"{request.num_opponents} opponents, got {number}"
        )
    if drawn.num_mirrors and not request.is_own_population:
        raise ConfigError(
            f"matchmaking.kind: {state.config.matchmaking.kind} lets {request.trainee} play "
            f"itself for population {population}, which is not its own"
        )
    return drawn


def _without_shunned(state: ControllerState, request: OpponentRequest) -> OpponentRequest:
    """Leave out players whose weights fail, where others are left."""
    shunned = state.ledger.shunned() - {request.entrant}
    if not shunned:
        return request
    policies = [policy_of_trainee(name)[0] for name in shunned]

    def kept(candidates: Candidates) -> Candidates:
        is_kept = np.ones(len(candidates), dtype=np.bool_)
        for policy in policies:
            # A policy's ghosts of other generations may be as good as any.
            for place in np.flatnonzero(candidates.of_policy(policy)):
                is_kept[place] = maker_of(state, candidates.entrants[place]) not in shunned
        return candidates.take(np.flatnonzero(is_kept))

    ghosts, latest = kept(request.ghosts), kept(request.latest)
    # With nobody else there is no match.
    return replace(request, ghosts=ghosts, latest=latest) if len(ghosts) + len(latest) else request


def _weights(
    state: ControllerState,
    candidate: Candidate,
    external: Mapping[PlayerId, WeightsRef | None],
) -> WeightsRef | None:
    """Return the weights of a candidate; None for bots."""
    if candidate.player in external:
        return external[candidate.player]
    ghost = state.tables.ghosts.get(candidate.player)
    if ghost is not None:
        return ghost.weights
    row = state.tables.policies.get(PolicyId(candidate.player))
    if row is None or row.checkpoint is None:
        raise ConfigError(
            f"matchmaking.kind: {state.config.matchmaking.kind} must draw from the request's "
            f"ghosts and latest, got {candidate.player!r}"
        )
    return state.tables.checkpoints[row.checkpoint].weights


def drop_external_player(state: ControllerState, tx: Transaction, key: str, *, reason: str) -> None:
    """Take a corrupt imported player out: the matchmaker draws others in its place."""
    for population, external in state.external_players.items():
        kept = tuple(o for o in external if o.weights is None or o.weights.key != key)
        if len(kept) < len(external):
            state.external_players = {**state.external_players, population: kept}
            tx.add_event("outsider_corrupt", key, population=population, reason=reason)


def quality_of_new(state: ControllerState, population: str) -> float:
    """Return the number with which a new ghost enters, where the rule keeps one for each."""
    memory = ghost_memory(state.matchmaker)
    if memory is None:
        return 0.0
    pool = state.opponent_pools.pool(population, state.tables)
    return memory.number_of_new(pool.ghosts.candidates.qualities)


def update_qualities(
    state: ControllerState, tx: Transaction, message: Train, tallies: Sequence[Tally]
) -> None:
    """Tell a rule that keeps a number for each ghost which of them a trainee has beaten."""
    memory = ghost_memory(state.matchmaker)
    if memory is None:
        return
    for player, num_wins in _beaten_ghosts(state, message, tallies).items():
        row = state.tables.ghosts[player]
        pool = state.opponent_pools.pool(row.population, state.tables)
        position = pool.ghost_positions.get(player)
        # Found corrupt since the assignment was given out.
        if row.corrupt or position is None:
            continue
        # Read anew for each ghost: the row that was put last has changed them.
        qualities = pool.ghosts.candidates.qualities
        quality = memory.number_after(qualities, position, num_wins=num_wins)
        tx.put(replace(row, quality=quality))


def _beaten_ghosts(
    state: ControllerState, message: Train, tallies: Sequence[Tally]
) -> dict[PlayerId, int]:
    """Return how often a trainee has won against each ghost of the assignment."""
    ghosts: dict[Entrant, PlayerId] = {
        Entrant(player.weights.digest): player.player
        # Episodes that go on were seated by an earlier assignment.
        for seating in (*message.opponents, *message.carried)
        for player in seating.players
        if player.weights is not None and player.player in state.tables.ghosts
    }
    trainees = {trainee_entrant(t.policy, generation=t.generation) for t in message.trainees}
    beaten: dict[PlayerId, int] = {}
    for tally in tallies:
        for pair in tally.pairs:
            first, second = tally.entrants[pair.first], tally.entrants[pair.second]
            for own, other, num_wins in ((first, second, pair.wins), (second, first, pair.losses)):
                if own in trainees and other in ghosts and num_wins:
                    player = ghosts[other]
                    beaten[player] = beaten.get(player, 0) + num_wins
    return beaten
