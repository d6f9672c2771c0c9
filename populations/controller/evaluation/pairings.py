"""Pairings of an evaluation: newcomers against themselves first, then the most informative pairs.

All players have frozen weights. `populations.league.scheduling` chooses the pairs; these functions
seat them, each player in every seat equally often.

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
"""Importance that is added for a policy about which PBT cannot decide without more matches. It
equals what a completely open decision adds (`importance`)."""

VALIDATION_MATCHES = 4
MAX_NEWCOMERS = 32
"""Limit of newcomers in one assignment."""

ANCHOR_MATCHES = 384
"""Matches of random play in all seats after which the advantage of each side is known."""


def draw_pairings(
    state: ControllerState, tx: Transaction, *, num_matches: int
) -> tuple[Pairing, ...]:
    """Draw the pairings of an evaluation during training; empty if there is nothing to play.

    Matches go first to policies about which PBT cannot decide without them.

    Args:
        state: The controller.
        tx: Transaction that counts the draw.
        num_matches: Approximate number of matches; fewer may be played.
    """
    # Validation comes before the draw, because it needs no decision number.
    validations = validation_pairings(state, num_matches=num_matches)
    if validations:
        return validations
    rng = tx.draw()
    known = evaluation_pool(state.settings, state.indexes, state.blame.ledger, rng)
    # Importance of a player follows from the ``pbt.fraction`` of its own population.
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
    """Count the matches that policies lack for their next decision of PBT.

    Matches that are being played count as played.

    Returns:
        Missing matches by index into ``known.players``; the policy that is due first comes first.
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
    """Return whether a learner's matches are enough for a pair and a bot's pair, or for a newcomer.

    A goal of ``stop.evaluation`` needs one more pair. If these take longer than an evaluation may,
    the number of matches in the longest evaluation is enough.
    """
    one_s = match_s(state.measured, learner)

    def is_enough_for(smallest: int) -> bool:
        return num_matches >= at_most(smallest, one_s)

    # Each pair plays in all seatings.
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
    """Choose and seat the pairs that reduce the weighted variances of ratings most.

    Pairs with bots, with the player of ``stop.evaluation`` and of random play are added.

    Args:
        state: The controller.
        known: The players.
        weights: Importance of each player's rating. float64 [N].
        num_matches: Approximate number of matches.
        rng: Generator for opponents at any distance of ratings.
        missing: Missing matches by index of the player; these come first, in this order.
    """
    setup, may_play = state.settings.setup, _are_validated(state.league, known.players)
    if not (may_play & known.field.is_eligible).any():
        return ()
    # Bots are only opponents: no decision depends on how sure their ratings are.
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
            # ceil(lacking / (num_matches / num_pairs)) is the number of pairs with enough matches.
            for _ in range(-(-lacking * num_pairs // num_matches))
        ],
    )
    chosen += _anchoring(state, known, chosen, may_play=may_play, rng=rng)
    # A pair that was chosen several times gets as many shares of the matches.
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
    """Return which players' generations have played against themselves; bots need not. bool [N]."""
    tables, validated = league.tables, dict[PolicyId, int]()

    def is_validated(player: PlayerStrength) -> bool:
        if player.kind == "bot":
            return True
        name = player.player.player
        row = tables.ghosts.get(name) or tables.policies[PolicyId(name)]
        # If a newcomer breaks its match, the whole evaluation is lost for all of its players. A
        # team is validated as one, and its leader's row has the generation.
        if row.policy not in validated:
            validated[row.policy] = leader_of(league, row.policy).validated_generation
        return validated[row.policy] >= row.generation

    return np.array([is_validated(player) for player in players], dtype=bool)


def _num_seatings(setup: LearnerSetup) -> int:
    """Return the number of seatings that give two players of a pair every seat equally often."""
    if len(setup.populations) > 1:
        return 1
    # The number depends only on the seats, so the two players can be any.
    (name,) = setup.populations
    home, away = ({name: Player(player=PlayerId(bot))} for bot in ("bot:home", "bot:away"))
    return len(pair_seatings(home, away, seats=setup.seats))


def seatings_of(
    setup: LearnerSetup, tables: Tables, first: PlayerStrength, second: PlayerStrength
) -> tuple[Seating, ...]:
    """Seat two players in every seat equally often; random play has other populations' seats."""
    seats = setup.seats
    if len(setup.ranked_populations) == 1:
        # With many sides only some are played, and the evaluation's number cycles through them.
        turn = tables.run.next_assignment
        return pair_seatings(first.team, second.team, seats=seats, turn=turn)
    players = {first.population: first.player, second.population: second.player}
    rest = Player(player=RANDOM_BOT)
    return (Seating(players=tuple(players.get(seat.population, rest) for seat in seats)),)


def open_evaluations(tables: Tables) -> Iterator[Evaluate]:
    """Yield the evaluations that are assigned, or wait to be, and are not finished."""
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
    """Yield one pair for each bot, so that the rating scale stays fixed to random play at 0."""
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
        # By turns the bot plays the player of the first chosen pair, so that every player plays it
        # now and then, and a player of any strength, so that its distance from all is measured.
        first = chosen[0][0] if chosen else int(rivals[0])
        if state.tables.run.next_assignment % 2 == 0 or not is_rival[first]:
            first = anywhere(known.field.ratings, rivals, rng)
        yield first, index


def _anchors(setup: LearnerSetup, league: League) -> list[Seating]:
    """Return a seating of random play only; empty once the advantage of each side is known."""
    if len(setup.ranked_populations) == 1:
        return []
    # Results name the entrant of the lower seat first.
    bots = [(seat.population, Entrant(RANDOM_BOT)) for seat in setup.seats]
    played = sum(league.num_met(*pair) for pair in set(pairwise(bots)))
    if played >= ANCHOR_MATCHES:
        return []
    # Without matches of random play against itself, the advantage of a side could not be separated
    # from the strength of its players.
    return [Seating(players=tuple(Player(player=RANDOM_BOT) for _ in setup.seats))]


def newcomers(
    setup: LearnerSetup, league: League, ledger: Ledger, *, waiting: bool = False
) -> list[PolicyRow]:
    """Return newcomers: leaders of teams whose generation has not played against itself yet.

    Args:
        setup: Setup of learners.
        league: Players and results.
        ledger: Failures, and whose fault they are.
        waiting: Whether to include newcomers that failed and now wait for other evaluations, which
            show whether they are to blame.
    """
    validating = set(validated_by(league, open_evaluations(league.tables)))
    found = [
        row
        for row in league.tables.policies.values()
        if row.validated_generation != row.generation
        # In cooperation only the first population is ranked; its policy leads the team.
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
    """Return pairings of newcomers against themselves, whose failure only they can cause.

    Args:
        state: The controller.
        num_matches: Approximate number of matches; at least one newcomer plays.
        waiting: See `newcomers`; used if there is nothing else to play.
    """
    # After a failed evaluation newcomers play one at a time, so that it shows whose fault it is.
    limit = 1 if state.blame.ledger.failed_evaluations else MAX_NEWCOMERS
    limit = min(limit, -(-num_matches // VALIDATION_MATCHES))
    found = newcomers(state.settings.setup, state.league, state.blame.ledger, waiting=waiting)
    return tuple(
        Pairing(seating=_alone(state.league, row), num_matches=VALIDATION_MATCHES)
        for row in found[:limit]
    )


def _alone(league: League, row: PolicyRow) -> Seating:
    """Seat a policy and its teammates in their populations' seats, random play in all others."""
    team, rest = frozen_team(league, row), Player(player=RANDOM_BOT)
    return Seating(players=tuple(team.get(seat.population, rest) for seat in league.seats))


def validated_by(league: League, messages: Iterator[Evaluate]) -> Iterator[PolicyId]:
    """Yield the policies that play against themselves in some evaluations."""
    for message in messages:
        for pairing in message.pairings:
            policy = validated_policy(league, pairing)
            if policy is None:
                # An evaluation has only pairings of newcomers against themselves, or none, so its
                # first pairing decides; to check all would be slow with many open evaluations.
                break
            yield policy


def validated_policy(league: League, pairing: Pairing) -> PolicyId | None:
    """Return the policy (of a team the leader) that a pairing validates; None: it validates none.

    A pairing validates a policy that plays with its teammates only, and random play elsewhere.
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
    """Return the policy (of a team the leader) whose present generation a pairing validates.

    None if the pairing validates no policy, or weights of an earlier generation.
    """
    policy_id = validated_policy(league, pairing)
    if policy_id is None:
        return None
    played = {player.weights.digest for player in pairing.seating.players if player.weights}
    team = team_of(league, league.tables.policies[policy_id])
    # Any weights of the present generation count, because the policy may have trained on since
    # these were seated.
    is_present = len(played) == len(team) and all(
        any(_is_of_generation(league, mate, digest) for digest in played) for mate in team
    )
    return team[0] if is_present else None


def _is_of_generation(league: League, policy: PolicyRow, digest: Digest) -> bool:
    """Return whether weights are a policy's current ones, or of its present generation."""
    # Copied weights belong to the donor's generation in the league, so compare them first.
    if league.weights(policy) == digest:
        return True
    made = league.checkpoints.get(digest)
    return made is not None and made.trainee == policy.trainee


GOAL_PART = 1.0 / 3.0
"""Part of an evaluation's pairs that are for the goal of ``stop.evaluation`` while it is open."""


def goal_pairs(
    state: ControllerState,
    known: EvaluationPool,
    *,
    may_play: npt.NDArray[np.bool_],
    num_pairs: int,
) -> Iterator[tuple[int, int]]:
    """Yield pairs with the player of ``stop.evaluation``, each once per share of matches.

    By turns the rival is the policy with the best bound so far and the one that is rated best: if
    the first stops improving, the other may reach the goal.

    Args:
        state: The controller.
        known: The players.
        may_play: Whether a player may be seated, as its generation is validated. bool [N].
        num_pairs: Number of other pairs in the evaluation.
    """
    config, goals = state.settings.config, state.indexes.goals
    # After training the goal can no longer end it.
    if config.stop.evaluation is None or state.phase.name != "training":
        return
    seekers = seekers_of_evaluation(config, state.tables, goals)
    rows = {
        index: state.tables.policies[policy]
        for index, player in enumerate(known.players)
        if may_play[index] and (policy := PolicyId(player.player.player)) in seekers
    }
    # The number x of goal pairs solves x / (x + n) = GOAL_PART, for n other pairs.
    number = max(round(num_pairs * GOAL_PART / (1.0 - GOAL_PART)), 1)
    is_alone = len(state.settings.setup.ranked_populations) == 1

    def bound(rival: int) -> float:
        found = evaluation_bound(config, state.tables, goals, rows[rival])
        # No finite default is safe: the bound of a mean return can be arbitrarily negative.
        return -math.inf if found is None else found

    # The turn follows the number of the evaluation, so that a single place alternates, too.
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
    """Players of evaluation matches, with arrays in their order on which decisions are made."""

    players: tuple[PlayerStrength, ...]
    field: Field

    def deviations(self) -> FloatArray:
        """Return each rating's deviation from the mean of its population, Elo. float64 [N]."""
        # sqrt(|s_i - mean s|^2 + own_i) leaves out the common uncertainty of all ratings about the
        # anchor, which does not change their order.
        spread = self.field.centred_spread()
        return np.sqrt(squared_lengths(spread) + self.field.own_variance)


def evaluation_pool(
    settings: Settings, indexes: Indexes, ledger: Ledger, rng: np.random.Generator | None
) -> EvaluationPool:
    """Return policies at their last checkpoints, the most relevant ghosts, and the bots.

    Args:
        settings: Settings of the run.
        indexes: Indexes over the rows.
        ledger: Failures, and whose fault they are.
        rng: Generator that draws some of many ghosts; None: only the best ghosts are included.
    """
    league = indexes.league
    found: list[PlayerStrength] = []
    for population in settings.setup.ranked_populations:
        ratings = indexes.fits.ratings(population)
        found += indexes.strengths.policies(population, ratings)
        found += indexes.strengths.ghosts(population, ratings, rng=rng)
        found += _bots(settings.external_players, ratings, population)
    # Equal weights are one player: a donor and its copy share them until the copy trains. The list
    # is reversed so that the first of equals stays: a policy comes before its ghost.
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
    """Return a function from a player's index to its matches with each player, float64 [N]."""
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
    """Return the players' rows of the spread factors. float64 [N, columns].

    One fit makes the factors of all populations, so they have the same columns.
    """
    spreads = {name: fits.ratings(name).spread for name in setup.ranked_populations}
    width = max((spread.shape[1] for spread in spreads.values() if spread is not None), default=1)
    # Rows without a spread stay 0; `player_strength` puts their variance into ``own_variance``.
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
