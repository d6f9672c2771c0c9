"""Lineups: policies that learn in an assignment, and frozen players beside and against them.

All rules about who plays with whom in training are here. A policy alone, a team in cooperation, two
rivals that learn, and mixed teammates are lineups. `Matchmaker.draw` chooses the frozen players.

Tests: `tests/populations/controller/test_lineups.py`,
`tests/populations/controller/test_mixed_teammates.py` and
`tests/populations/controller/test_learning_rivals.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np
from msgspec import Struct

from arena.matches.seating import seats_in_turn
from arena.matches.teammates import training_seatings
from arena.types import (
    Player,
    PlayerId,
    PolicyId,
    Seating,
    WeightsRef,
    policy_of_trainee,
    population_of,
)
from arena.users_code import guarded
from arena.wire.messages import Train
from populations.candidates import Candidate, Candidates
from populations.controller.indexes.teams import Team, frozen_team, maker_of
from populations.controller.monitoring import alerts
from populations.controller.opponents import make_request, num_opponents
from populations.controller.state.epoch import Settings
from populations.controller.state.ledger import Ledger
from populations.controller.state.state import ControllerState, Indexes
from populations.controller.state.transaction import Transaction
from populations.core import PRIOR_MATCHES, Matchmaker, OpponentRequest
from populations.hooks.findings import Finding
from populations.league.league import League
from populations.matchmaking.external_players import ExternalPlayer, ExternalPlayersMatchmaker
from populations.matchmaking.make import make_matchmaker
from populations.records.rows import Json, PolicyRow
from populations.records.tables import Tables

INSTEAD = "uniform"
"""Kind of matchmaker that draws opponents if a user's own one fails."""

Requests = dict[tuple[PolicyId, str], OpponentRequest]
"""Requests to the matchmaker, by trainee and population of its opponents."""


class Lineup(Struct, frozen=True, kw_only=True):
    """Policies that learn in one assignment, and the players of its seats.

    Attributes:
        trainees: Policies that learn, in the order of their populations.
        seatings: Players by seat; those without weights are trainees and bots.
        requests: Requests to the matchmaker that the frozen players were drawn for.
    """

    trainees: Team
    seatings: tuple[Seating, ...] = ()
    requests: Requests


def draw_lineup(state: ControllerState, tx: Transaction, trainees: Team) -> Lineup:
    """Draw the players beside and against the trainees of an assignment, and seat all of them.

    A seating in which two rivals learn counts as an opponent of each, but is listed only once.

    Args:
        state: State of the controller.
        tx: Transaction that gives randomness, and takes the event of a failed matchmaker.
        trainees: A policy alone, with its teammates in cooperation, or with its rival, which plays
            with its live weights in seatings for which it is drawn.
    """
    requests: Requests = {}
    first, *others = trainees
    setup = state.settings.setup
    if setup.is_cooperation and not setup.agent_seats:
        mates = {row.population: (_live(row),) for row in others}
        seatings = training_seatings(
            [((_live(first),), mates)], seats=setup.seats, population=first.population
        )
    elif not others:
        seatings = _seatings(state, tx, first, None, requests)
    else:
        drawn: Counter[Seating] = Counter()
        for policy, rival in (trainees, trainees[::-1]):
            # The union takes the larger number of each seating, enough for the draws of both.
            drawn |= Counter(_seatings(state, tx, policy, rival, requests))
        seatings = tuple(drawn.elements())
    return Lineup(trainees=trainees, seatings=seatings, requests=requests)


def _live(policy: PolicyRow) -> Player:
    return Player(player=PlayerId(policy.policy))


def _seatings(
    state: ControllerState,
    tx: Transaction,
    policy: PolicyRow,
    rival: PolicyRow | None,
    requests: Requests,
) -> tuple[Seating, ...]:
    """Draw opponents from every population that has a seat, and seat them and one trainee.

    The trainee has each of its seats equally often. With mixed teammates, a partner is drawn for
    each other agent of a side, separately from opponents.

    Args:
        state: State of the controller.
        tx: Transaction that gives randomness, and takes the event of a failed matchmaker.
        policy: Policy that trains.
        rival: Policy that learns beside it, and plays with live weights in seatings for which it is
            drawn. None: all opponents are frozen.
        requests: Mapping to which the requests are added.
    """
    setup, trainee = state.settings.setup, _live(policy)
    is_mixed = bool(setup.agent_seats)
    draw_turns = partial(
        seats_in_turn,
        setup.seats,
        population=policy.population,
        # Each seating needs an environment, which bounds their number.
        num_seatings=setup.num_envs,
        num_opponents=state.settings.config.matchmaking.opponents,
    )
    # Without turns, the trainee has all of its seats with each opponent, so no start is drawn.
    turns = draw_turns(start=0) and draw_turns(start=int(tx.draw().integers(len(setup.seats))))
    first_turn = 0
    own: list[tuple[Player, ...]] = [(trainee,)] * num_opponents(state.settings, rival)
    against: dict[str, list[tuple[Player, ...]]] = {}
    for population in dict.fromkeys(seat.population for seat in setup.seats):
        sizes = [len(seat.agents) for seat in setup.seats if seat.population == population]
        is_own, num_partners = population == policy.population, (max(sizes) - 1) * is_mixed
        # A policy has no opponents of its own population in cooperation, or if that population has
        # a single seat.
        has_rivals = not is_own or (len(sizes) > 1 and not setup.is_cooperation)
        if not has_rivals and not num_partners:
            continue
        rng = tx.draw()
        if is_mixed and not requests:
            # The first place on a side is drawn, so that in the long run the trainee has each place
            # equally often, even with few opponents.
            first_turn = int(rng.integers(max(len(seat.agents) for seat in setup.seats)))
        request = make_request(state.settings, state.indexes, policy, population, rival=rival)
        requests[policy.policy, population] = request
        if is_own and num_partners:
            partners = _draw_partners(state, tx, request, population, num_partners, rng)
            own = [(trainee, *mates) for mates in partners]
        if has_rivals:
            sides = _draw_sides(state, tx, request, population, num_partners, rng)
            # If the rival is drawn, it plays with its live weights.
            if rival is not None:
                live = {PlayerId(rival.policy): _live(rival)}
                sides = [(live.get(one.player, one), *mates) for one, *mates in sides]
            against[population] = sides
    return training_seatings(
        [
            (side, {population: sides[block] for population, sides in against.items()})
            for block, side in enumerate(own)
        ],
        seats=setup.seats,
        population=policy.population,
        is_mixed=is_mixed,
        first_turn=first_turn,
        turns=turns,
    )


def _draw_sides(
    state: ControllerState,
    tx: Transaction,
    request: OpponentRequest,
    population: str,
    num_partners: int,
    rng: np.random.Generator,
) -> list[tuple[Player, ...]]:
    """Draw the other sides of a population: an opponent each, with its partners if it has any.

    External players have their configured shares before the matchmaker's rule applies, and play
    whole sides without partners.
    """
    # External players without a share are only rated, and not drawn for training.
    external = {
        one.player: one for one in state.settings.external_players.get(population, ()) if one.share
    }
    itself = Player(player=PlayerId(request.trainee))
    rivals = _drawn(state, tx, request, population, itself=itself, external=external, rng=rng)
    partners: list[tuple[Player, ...]] = [()] * len(rivals)
    if num_partners and any(rival.player not in external for rival in rivals):
        partners = _draw_partners(state, tx, request, population, num_partners, rng)
    return [
        (rival,) if rival.player in external else (rival, *mates)
        for rival, mates in zip(rivals, partners, strict=True)
    ]


def _draw_partners(
    state: ControllerState,
    tx: Transaction,
    request: OpponentRequest,
    population: str,
    number: int,
    rng: np.random.Generator,
) -> list[tuple[Player, ...]]:
    """Draw ``number`` partners for each opponent of a request.

    The matchmaker draws them like opponents, but without external players. If it draws the trainee
    itself, the partner is its latest checkpoint.
    """
    asked = replace(request, num_opponents=request.num_opponents * number)
    trainee = state.tables.policies[request.trainee]
    itself = frozen_team(state.league, trainee)[trainee.population]
    players = _drawn(state, tx, asked, population, itself=itself, rng=rng)
    # The matchmaker's order is by kind, so it is shuffled: otherwise copies of the trainee would
    # always be partners of each other.
    mixed = [players[place] for place in rng.permutation(len(players)).tolist()]
    return [tuple(mixed[first : first + number]) for first in range(0, len(mixed), number)]


def _drawn(
    state: ControllerState,
    tx: Transaction,
    request: OpponentRequest,
    population: str,
    *,
    itself: Player,
    external: Mapping[PlayerId, ExternalPlayer] = MappingProxyType({}),
    rng: np.random.Generator,
) -> list[Player]:
    """Draw players by the matchmaker, without those whose weights fail; if it fails, by `INSTEAD`.

    Returns:
        The trainee as often as it was drawn, then all other players.
    """
    config = state.settings.config
    asked = _without_shunned(state.league, state.blame.ledger, request)

    def ask(matchmaker: Matchmaker) -> list[Player]:
        if external:
            outsiders = tuple(external.values())
            matchmaker = ExternalPlayersMatchmaker(inner=matchmaker, external=outsiders)
        drawn = matchmaker.draw(asked, rng=rng)
        number = drawn.num_mirrors + len(drawn.players)
        if number != request.num_opponents or drawn.num_mirrors < 0:
            raise ValueError(f"it must draw {request.num_opponents} opponents, got {number}")
        if drawn.num_mirrors and not request.is_own_population:
            raise ValueError(
                f"it lets {request.trainee} play itself for population {population}, which is not "
                "its own"
            )
        others = (_player(state.tables, one, external) for one in drawn.players)
        return [*[itself] * drawn.num_mirrors, *others]

    def instead(problem: str) -> tuple[list[Player], str]:
        tx.add_event("matchmaking_failed", population, reason=problem, instead=INSTEAD)
        section = config.matchmaking.model_copy(update={"kind": INSTEAD})
        other = make_matchmaker(section, window=config.ghosts.window, launch_directory="")
        return ask(other), problem

    players, problem = guarded(
        lambda: (ask(state.settings.matchmaker), ""),
        instead,
        what=f"drawing opponents for {request.trainee}",
    )
    finding = Finding("matchmaking_fell_back", population, population, problem)
    alerts.record(state.measured, tx, finding)
    return players


def _player(
    tables: Tables, candidate: Candidate, external: Mapping[PlayerId, ExternalPlayer]
) -> Player:
    """Return the player, with its weights, of a drawn candidate.

    Raises:
        ValueError: If the candidate was not in the request.
    """
    known = external.get(candidate.player)
    weights = _weights(tables, candidate) if known is None else known.weights
    if weights is None and known is None:
        raise ValueError(
            f"it must draw from the request's ghosts and latest, got {candidate.player!r}"
        )
    return Player(player=candidate.player, weights=weights)


def _without_shunned(league: League, ledger: Ledger, request: OpponentRequest) -> OpponentRequest:
    """Return a request without players whose weights fail, unless no other players are left."""
    shunned = ledger.shunned() - {request.entrant}
    if not shunned:
        return request
    policies = [policy_of_trainee(name)[0] for name in shunned]

    def kept(candidates: Candidates) -> Candidates:
        is_kept = np.ones(len(candidates), dtype=np.bool_)
        for policy in policies:
            # Only the failing generation is left out; the policy's other ghosts may play.
            for place in np.flatnonzero(candidates.of_policy(policy)):
                is_kept[place] = maker_of(league, candidates.entrants[place]) not in shunned
        return candidates.take(np.flatnonzero(is_kept))

    ghosts, latest = kept(request.ghosts), kept(request.latest)
    # Without any other player the request stays as it is, because there would be no match.
    return replace(request, ghosts=ghosts, latest=latest) if len(ghosts) + len(latest) else request


def _weights(tables: Tables, candidate: Candidate) -> WeightsRef | None:
    """Return the weights of a ghost, or of a policy's latest checkpoint; None: it is neither."""
    ghost = tables.ghosts.get(candidate.player)
    if ghost is not None:
        return ghost.weights
    row = tables.policies.get(PolicyId(candidate.player))
    latest = None if row is None else tables.checkpoints.get(row.checkpoint or "")
    return None if latest is None else latest.weights


def knowledge(
    settings: Settings,
    indexes: Indexes,
    message: Train,
    requests: Mapping[tuple[PolicyId, str], OpponentRequest],
) -> dict[str, Json]:
    """Return trainees' expected win rates against opponents, and how much of them is predicted.

    Both are by opponent: ``win_rates`` counts draws half; ``predicted`` is the share of the win
    rate that ratings predict, while the rest are results. It is 1 for an opponent without matches.
    Bots and players of other runs are left out.

    Args:
        settings: Settings of the run.
        indexes: Indexes over the rows.
        message: Assignment that is given out.
        requests: Requests of the draw. Missing ones are made anew, as for an assignment that is
            given out again.
    """
    win_rates: dict[str, Json] = {}
    predicted: dict[str, Json] = {}
    for trainee in message.trainees:
        policy = indexes.tables.policies[trainee.policy]
        itself = Player(player=PlayerId(trainee.policy))
        # With several trainees, only opponents in seatings with this one count.
        frozen = dict.fromkeys(
            player.player
            for seating in message.opponents
            if itself in seating.players
            for player in seating.players
            if player.weights is not None
        )
        for population in dict.fromkeys(population_of(player) for player in frozen):
            # Players of other runs are left out, because they are no candidates of a population.
            if population not in settings.setup.populations:
                continue
            request = requests.get((policy.policy, population))
            request = request or make_request(settings, indexes, policy, population)
            for candidates in indexes.opponent_pools.pool(population).named(frozen):
                points, lost = request.posterior(candidates)
                all_points = zip(candidates.players, points, points + lost, strict=True)
                for player, won, matches in all_points:
                    # The mean of Beta(a, b) is a / (a + b), and PRIOR_MATCHES of a + b are from the
                    # prediction.
                    win_rates[player] = round(float(won / matches), 3)
                    predicted[player] = round(float(PRIOR_MATCHES / matches), 3)
    return {"win_rates": win_rates, "predicted": predicted}
