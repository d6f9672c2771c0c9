"""Pairings of an evaluation: newcomers against themselves first, then the pairs that tell most.

Frozen weights only. `populations.league.scheduling` says which pairs; here they are seated, each
player in every seat equally often.

Decisions are made on arrays of the players that evaluation matches are about (`EvaluationPool`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from arena.config import LearnerSetup
from arena.matches.seating import pair_seatings
from arena.types import RANDOM_BOT, Digest, Entrant, Player, PlayerId, PolicyId, Seating
from arena.wire.messages import Evaluate, Pairing
from populations.config.run_config import RunConfig
from populations.controller.evaluation.share import at_most, match_s
from populations.controller.indexes.player_strengths import (
    PendingMatches,
    PlayerStrength,
    player_strength,
)
from populations.controller.indexes.teams import frozen_team, is_whole, leader_of, maker_of, team_of
from populations.controller.state.epoch import Settings
from populations.controller.state.fits import Fits
from populations.controller.state.goals import evaluation_bound, seekers_of_evaluation
from populations.controller.state.leases import Learner
from populations.controller.state.ledger import Ledger
from populations.controller.state.state import ControllerState, Indexes
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.league.ratings import Ratings
from populations.league.scheduling import Field, anywhere, choose_pairs, importance, squared_lengths
from populations.matchmaking.external_players import ExternalPlayer
from populations.pbt.scheduler import next_mark
from populations.records.rows import PolicyRow
from populations.records.tables import Tables

FloatArray = npt.NDArray[np.float64]

MATCHES_PER_SEATING = 8
MIN_MATCHES_PER_SEATING = 4
MAX_PAIRS = 32

AWAITED_IMPORTANCE = 2.0
"""Importance of a policy that PBT cannot decide about without more matches, added to its other
importance: as much as that of a policy about which all is open."""

VALIDATION_MATCHES = 4
MAX_NEWCOMERS = 32
"""Most newcomers of one assignment."""

ANCHOR_MATCHES = 384
"""Matches between the zeros of all scales, after which the advantage of each side is known."""


def draw_pairings(
    state: ControllerState, tx: Transaction, *, num_matches: int
) -> tuple[Pairing, ...]:
    """Draw the pairings of an evaluation during training; empty if there is nothing to play.

    Matches go first to policies that PBT cannot decide about without them.

    Args:
        state: The controller.
        tx: Counts the draw.
        num_matches: About as many as are played, or fewer.
    """
    # Validate before anything is drawn, because validation takes no decision number.
    validations = validation_pairings(state, num_matches=num_matches)
    if validations:
        return validations
    rng = tx.draw()
    known = evaluation_pool(state.settings, state.indexes, state.blame.ledger, rng)
    # Each population has a fraction of its own, which is about its own players.
    config, ranked = state.settings.config, state.settings.setup.ranked_populations
    each = [importance(known.field, fraction=config.pbt_of(name).fraction) for name in ranked]
    weights = np.stack(each)[known.field.population, np.arange(len(known.players))]
    missing = missing_matches(config, state.league, state.indexes.pending_matches, known)
    weights[list(missing)] += AWAITED_IMPORTANCE
    return pairings_about(
        state, known, weights=weights, missing=missing, num_matches=num_matches, rng=rng
    ) or validation_pairings(state, num_matches=num_matches, waiting=True)


def missing_matches(
    config: RunConfig, league: League, pending_matches: PendingMatches, known: EvaluationPool
) -> dict[int, int]:
    """Count the matches that policies lack for their next decision of PBT, by place.

    Matches that are being played count. The policy whose decision is due first comes first.
    """
    asked: Counter[tuple[str, int]] = Counter()
    origins = league.checkpoints
    for (_, entrant), num_matches in pending_matches.open_matches().items():
        made = origins.get(Digest(entrant))
        if made is not None:
            # Matches are counted by generation, as `min_matches` counts them.
            asked[made.policy, made.generation] += num_matches
    found = []
    for index, player in enumerate(known.players):
        if player.kind != "policy":
            continue
        row = league.tables.policies[PolicyId(player.player.player)]
        pbt = config.pbt_of(row.population)
        has = league.matches_in_generation(row) + asked[row.policy, row.generation]
        if pbt.exploit != "none" and has < pbt.min_matches:
            found.append((next_mark(row, pbt), index, pbt.min_matches - has))
    return {index: missing for _, index, missing in sorted(found)}


def is_worth_it(state: ControllerState, learner: Learner, *, num_matches: int) -> bool:
    """Return whether so many matches of a learner are enough for a pair and a bot, or a newcomer.

    A goal of ``stop.evaluation`` has a pair of its own. What takes longer than any evaluation may
    is worth the longest time that one may take.
    """
    one_s = match_s(state.measured, learner)

    def is_enough_for(smallest: int) -> bool:
        return num_matches >= at_most(smallest, one_s)

    # Each pair in all seatings.
    pairs = 2 if state.settings.config.stop.evaluation is None else 3
    setup = state.settings.setup
    smallest = pairs * _num_seatings(setup) * MIN_MATCHES_PER_SEATING
    return is_enough_for(smallest) or (
        is_enough_for(VALIDATION_MATCHES)
        and bool(newcomers(setup, state.league, state.blame.ledger))
    )


def pairings_about(
    state: ControllerState,
    known: EvaluationPool,
    *,
    weights: FloatArray,
    num_matches: int,
    rng: np.random.Generator,
    missing: Mapping[int, int] | None = None,
) -> tuple[Pairing, ...]:
    """Seat the pairs that shrink the weighted variances most, some at any distance, and a bot with
    a player near to it.

    Args:
        state: The controller.
        known: The players.
        weights: How much each rating matters. float64 [N].
        num_matches: About as many as are played.
        rng: Draws the distances.
        missing: Matches that players are to have before all others, the first of them first.
    """
    setup, may_play = state.settings.setup, _are_validated(state.league, known.players)
    if not (may_play & known.field.is_eligible).any():
        return ()
    # Bots are mere opponents: nothing is decided by how well they are known.
    weights = np.where(known.field.is_eligible, weights, 0.0)
    seats_per_pair = _num_seatings(setup)
    num_pairs = min(max(num_matches // (MATCHES_PER_SEATING * seats_per_pair), 1), MAX_PAIRS)
    chosen = choose_pairs(
        known.field,
        weights=weights,
        may_play=may_play,
        num_pairs=num_pairs,
        matches_per_pair=max(num_matches // num_pairs, 1),
        rng=rng,
        first=[
            index
            for index, lacking in (missing or {}).items()
            if may_play[index]
            # ceil(lacking / (num_matches / num_pairs)): pairs that make up for what is missing
            for _ in range(-(-lacking * num_pairs // num_matches))
        ],
    )
    chosen += _anchoring(state, known, chosen, may_play=may_play, rng=rng)
    # A pair that was chosen more than once plays more.
    pairs = Counter((*chosen, *goal_pairs(state, known, may_play=may_play, num_pairs=len(chosen))))
    shares: Counter[Seating] = Counter()
    for (first, second), share in pairs.items():
        for seating in seatings_of(
            setup, state.tables, known.players[first], known.players[second]
        ):
            shares[seating] += share
    shares.update(_anchors(setup, state.league))
    if not shares:
        return ()
    per_share = max(num_matches // shares.total(), MIN_MATCHES_PER_SEATING)
    return tuple(
        Pairing(seating=seating, num_matches=per_share * share) for seating, share in shares.items()
    )


def _are_validated(league: League, players: Sequence[PlayerStrength]) -> npt.NDArray[np.bool_]:
    """Return whether weights of players' generations have played themselves; bots need not.

    bool [N].
    """
    tables, validated = league.tables, dict[PolicyId, int]()

    def is_validated(player: PlayerStrength) -> bool:
        if player.kind == "bot":
            return True
        name = player.player.player
        row = tables.ghosts.get(name) or tables.policies[PolicyId(name)]
        # An evaluation in which a newcomer breaks would be lost for all others. A team plays itself
        # as one, and its leader's row has the generation.
        if row.policy not in validated:
            validated[row.policy] = leader_of(league, row.policy).validated_generation
        return validated[row.policy] >= row.generation

    return np.array([is_validated(player) for player in players], dtype=bool)


def _num_seatings(setup: LearnerSetup) -> int:
    """Return seatings in which two players of a pair have every seat equally often."""
    if len(setup.populations) > 1:
        return 1
    # Any two players: the number follows from the seats.
    (name,) = setup.populations
    home, away = ({name: Player(player=PlayerId(bot))} for bot in ("bot:home", "bot:away"))
    return len(pair_seatings(home, away, seats=setup.seats))


def seatings_of(
    setup: LearnerSetup, tables: Tables, first: PlayerStrength, second: PlayerStrength
) -> tuple[Seating, ...]:
    """Seat two players in every seat equally often; random play has other populations' seats."""
    seats = setup.seats
    if len(setup.ranked_populations) == 1:
        # Other sides have their turn in each evaluation.
        turn = tables.run.next_assignment
        return pair_seatings(first.team, second.team, seats=seats, turn=turn)
    players = {first.population: first.player, second.population: second.player}
    rest = Player(player=RANDOM_BOT)
    return (Seating(players=tuple(players.get(seat.population, rest) for seat in seats)),)


def open_evaluations(tables: Tables) -> Iterator[Evaluate]:
    """Return evaluations that were decided and are not finished."""
    for row in tables.assignments.values():
        if isinstance(row.message, Evaluate):
            yield row.message


def _anchoring(
    state: ControllerState,
    known: EvaluationPool,
    chosen: Sequence[tuple[int, int]],
    *,
    may_play: npt.NDArray[np.bool_],
    rng: np.random.Generator,
) -> Iterator[tuple[int, int]]:
    """Return one pair for each bot, so that the scale keeps its zero."""
    population = known.field.population
    is_alone = len(state.settings.setup.ranked_populations) == 1
    for index, player in enumerate(known.players):
        if player.kind != "bot":
            continue
        is_rival = may_play & known.field.is_eligible
        if not is_alone:
            is_rival &= population != population[index]
        rivals = np.flatnonzero(is_rival)
        if not rivals.size:
            continue
        # The bot meets by turns the player that this evaluation is about most, so that everybody
        # meets it at times, and one of any strength: its distance is that from all of them.
        first = chosen[0][0] if chosen else int(rivals[0])
        if state.tables.run.next_assignment % 2 == 0 or not is_rival[first]:
            first = anywhere(known.field.ratings, rivals, rng)
        yield first, index


def _anchors(setup: LearnerSetup, league: League) -> list[Seating]:
    """Return pairings of the scales' zeros, until the advantage of each side is known."""
    if len(setup.ranked_populations) == 1:
        return []
    # Results have the lower seat first.
    bots = [(seat.population, Entrant(RANDOM_BOT)) for seat in setup.seats]
    played = sum(league.num_met(*pair) for pair in set(pairwise(bots)))
    if played >= ANCHOR_MATCHES:
        return []
    # Random play meets itself, or the advantage of a side could not be told from the strength of
    # its players.
    return [Seating(players=tuple(Player(player=RANDOM_BOT) for _ in setup.seats))]


def newcomers(
    setup: LearnerSetup, league: League, ledger: Ledger, *, waiting: bool = False
) -> list[PolicyRow]:
    """Return leaders whose generation has no checkpoint that has played itself.

    Args:
        setup: Setup of learners.
        league: Players and results.
        ledger: Failures, and whose fault they are.
        waiting: Whether those count that have failed and let other evaluations go first, which
            show if they are to blame.
    """
    validating = set(validated_by(league, open_evaluations(league.tables)))
    found = [
        row
        for row in league.tables.policies.values()
        if row.validated_generation != row.generation
        # The policy of the first population stands for its team in cooperation.
        and row.population in setup.ranked_populations
        and is_whole(league, row)
    ]
    return [
        row
        for row in found
        if row.policy not in validating
        and (waiting or not ledger.waits(row.trainee, is_evaluation=True))
    ]


def validation_pairings(
    state: ControllerState, *, num_matches: int, waiting: bool = False
) -> tuple[Pairing, ...]:
    """Return newcomers against themselves: what breaks here is their own fault.

    Args:
        state: The controller.
        num_matches: About as many as are played; one newcomer plays in any case.
        waiting: As of `newcomers`; for where there is nothing else to play.
    """
    # One newcomer plays at a time after a failed evaluation, so that it is known whose fault it is.
    limit = 1 if state.blame.ledger.failed_evaluations else MAX_NEWCOMERS
    limit = min(limit, -(-num_matches // VALIDATION_MATCHES))
    found = newcomers(state.settings.setup, state.league, state.blame.ledger, waiting=waiting)
    return tuple(
        Pairing(seating=_alone(state.league, row), num_matches=VALIDATION_MATCHES)
        for row in found[:limit]
    )


def _alone(league: League, row: PolicyRow) -> Seating:
    """Seat a policy and its mates in their populations' seats, random play in the others."""
    team, rest = frozen_team(league, row), Player(player=RANDOM_BOT)
    return Seating(players=tuple(team.get(seat.population, rest) for seat in league.seats))


def validated_by(league: League, messages: Iterator[Evaluate]) -> Iterator[PolicyId]:
    """Return policies that play against themselves in some evaluations."""
    for message in messages:
        for pairing in message.pairings:
            policy = validated_policy(league, pairing)
            if policy is None:
                # An evaluation is all newcomers against themselves, or has none of them: with many
                # evaluations open a look at each pairing would take longer than all the rest.
                break
            yield policy


def validated_policy(league: League, pairing: Pairing) -> PolicyId | None:
    """Return the policy that a pairing validates, of a team the leader.

    It and its mates are alone, but for random play in other populations.
    """
    players = pairing.seating.players
    named = next((player.player for player in players if player.weights is not None), None)
    row = league.tables.policies.get(PolicyId(named or ""))
    if row is None:
        return None
    team: dict[str, str] = {mate.population: mate.policy for mate in team_of(league, row)}
    is_alone = all(
        player.player == team[seat.population]
        if seat.population in team
        else player.weights is None
        for seat, player in zip(league.seats, players, strict=True)
    )
    return team_of(league, row)[0].policy if is_alone else None


def validated_generation_of(league: League, pairing: Pairing) -> PolicyRow | None:
    """Return the policy whose present generation a pairing validates, of a team the leader."""
    policy_id = validated_policy(league, pairing)
    if policy_id is None:
        return None
    played = {player.weights.digest for player in pairing.seating.players if player.weights}
    team = team_of(league, league.tables.policies[policy_id])
    # Any weights of the present generation count: with as many learners as policies, each has
    # trained on since they were seated.
    is_present = len(played) == len(team) and all(
        any(_is_of_generation(league, mate, digest) for digest in played) for mate in team
    )
    return team[0] if is_present else None


def _is_of_generation(league: League, policy: PolicyRow, digest: Digest) -> bool:
    """Return whether weights are a policy's current ones, or of its present generation."""
    # Weights that were copied in an exploit are known to the league by the donor's generation.
    if league.weights(policy) == digest:
        return True
    made = league.checkpoints.get(digest)
    return made is not None and made.trainee == policy.trainee


GOAL_PART = 1.0 / 3.0
"""Part of an evaluation's pairs that the goal has, beside its own, while it is open."""


def goal_pairs(
    state: ControllerState,
    known: EvaluationPool,
    *,
    may_play: npt.NDArray[np.bool_],
    num_pairs: int,
) -> Iterator[tuple[int, int]]:
    """Yield pairs with the player of ``stop.evaluation``, one as often as it is to have matches.

    By turns they have the policy with the best bound so far and the one that is rated best: where
    the first gets no better, another may.

    Args:
        state: The controller.
        known: The players.
        may_play: Whether a player's weights exist. bool [N].
        num_pairs: Pairs that the evaluation has besides.
    """
    config, goals = state.settings.config, state.indexes.goals
    # Nothing waits for the goal in finals.
    if config.stop.evaluation is None or state.phase.name != "training":
        return
    seekers = seekers_of_evaluation(config, state.tables, goals)
    rows = {
        index: state.tables.policies[policy]
        for index, player in enumerate(known.players)
        if may_play[index] and (policy := PolicyId(player.player.player)) in seekers
    }
    # x / (x + n) = GOAL_PART, for n others.
    number = max(round(num_pairs * GOAL_PART / (1.0 - GOAL_PART)), 1)
    is_alone = len(state.settings.setup.ranked_populations) == 1

    def bound(rival: int) -> float:
        found = evaluation_bound(config, state.tables, goals, rows[rival])
        # No finite default is safe: the bound of a mean return can be arbitrarily negative.
        return -math.inf if found is None else found

    # A single place is the other one's in the next evaluation.
    turn = state.tables.run.next_assignment
    for index, player in enumerate(known.players):
        if player.player.player != config.stop.player:
            continue
        rivals = [
            rival for rival, row in rows.items() if is_alone or row.population != player.population
        ]
        if rivals:
            nearest = max(rivals, key=bound)
            best = max(rivals, key=lambda rival: known.field.ratings[rival])
            for place in range(turn, turn + number):
                yield (best if place % 2 else nearest), index


class EvaluationPool(Struct, frozen=True, kw_only=True):
    """Players with the arrays that decisions are made on, in one order."""

    players: tuple[PlayerStrength, ...]
    field: Field

    def deviations(self) -> FloatArray:
        """Return each rating's deviation from the mean of its population, Elo. float64 [N]."""
        # sqrt(|s_i - mean s|^2 + own_i): how far all are from the anchor makes no order among them.
        spread = self.field.centred_spread()
        return np.sqrt(squared_lengths(spread) + self.field.own_variance)


def evaluation_pool(
    settings: Settings, indexes: Indexes, ledger: Ledger, rng: np.random.Generator | None
) -> EvaluationPool:
    """Return policies at their last checkpoints, ghosts worth a look, and the bots.

    Args:
        settings: Settings of the run.
        indexes: Indexes over the rows.
        ledger: Failures, and whose fault they are.
        rng: Draws some of many ghosts; None: only the best of them are looked at.
    """
    league = indexes.league
    found: list[PlayerStrength] = []
    for population in settings.setup.ranked_populations:
        ratings = indexes.fits.ratings(population)
        found += indexes.strengths.policies(population, ratings)
        found += indexes.strengths.ghosts(population, ratings, rng=rng)
        found += _bots(settings.external_players, ratings, population)
    # Equal weights are one player, whoever holds them: a donor's are also those of who copied it.
    # Reversed, so that the first of equals stays: a policy comes before its ghost.
    first = {(known.population, known.entrant): known for known in reversed(found)}
    players = [known for known in found if first[known.population, known.entrant] is known]
    if shunned := ledger.shunned():
        players = [one for one in players if maker_of(league, one.entrant) not in shunned]
    names = list(settings.setup.ranked_populations)
    return EvaluationPool(
        players=tuple(players),
        field=Field(
            ratings=np.array([known.rating for known in players]),
            spread=_spread(settings.setup, indexes.fits, players),
            own_variance=np.array([known.own_variance for known in players]),
            is_eligible=np.array([known.kind != "bot" for known in players], dtype=bool),
            is_ranked=np.array([known.kind == "policy" for known in players], dtype=bool),
            population=np.array([names.index(known.population) for known in players]),
            remaining=indexes.pending_matches.remaining(players),
            scatter=max(
                row.pair_deviation**2
                if (row := indexes.fits.ratings(name).row) is not None
                else 0.0
                for name in names
            ),
            met=_meetings(league, players),
        ),
    )


def _meetings(league: League, players: Sequence[PlayerStrength]) -> Callable[[int], FloatArray]:
    """Return a function from a player's place to its matches with each player."""
    places = {(known.population, known.entrant): place for place, known in enumerate(players)}

    def met(player: int) -> FloatArray:
        found = np.zeros(len(players))
        own = (players[player].population, players[player].entrant)
        for (first, second, _), counts in league.results.of_entrant(own):
            place = places.get(second if first == own else first)
            if place is not None:
                found[place] += counts.matches
        return found

    return met


def _spread(setup: LearnerSetup, fits: Fits, players: list[PlayerStrength]) -> FloatArray:
    """Return rows of the populations' factors, which share their columns: one fit made them all."""
    spreads = {name: fits.ratings(name).spread for name in setup.ranked_populations}
    width = max((spread.shape[1] for spread in spreads.values() if spread is not None), default=1)
    # Zeros without a spread: `player_strength` has the variance in ``own_variance`` then.
    rows = np.zeros((len(players), width))
    for place, known in enumerate(players):
        spread = spreads[known.population]
        if known.position is not None and spread is not None and spread.shape[1] == width:
            rows[place] = spread[known.position]
    return rows


def _bots(
    external_players: Mapping[str, tuple[ExternalPlayer, ...]], ratings: Ratings, population: str
) -> Iterator[PlayerStrength]:
    for bot in external_players[population]:
        if bot.is_rated:
            team = {
                name: one.seated
                for name, external in external_players.items()
                for one in external
                if one.player == bot.player
            }
            position = ratings.index(bot.player)
            yield player_strength(ratings, team, population, kind="bot", position=position)
