"""Final matches after training: until every rating is sure enough, then for the championship.

Each policy's last checkpoint plays until its rating's deviation is at most ``FINAL_DEVIATION``, or
it has played ``FINAL_MATCHES``. Then the players that may be the best play each other, so that
direct matches against its rivals confirm the champion, and the champion plays the anchor (random
play), which confirms its rating's distance from 0. The time for all this is a part of the
training's time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, combinations, pairwise, product, repeat

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from arena.matches.comparisons import rival_populations
from arena.types import RANDOM_BOT
from arena.wire.messages import Pairing
from populations.config.run_config import RunConfig
from populations.controller.evaluation.pairings import (
    MIN_MATCHES_PER_SEATING,
    EvaluationPool,
    draw_pairings,
    evaluation_pool,
    open_evaluations,
    pairings_about,
    seatings_of,
    validation_pairings,
)
from populations.controller.evaluation.share import at_most, full_size, match_s, matches_in_time
from populations.controller.indexes.player_strengths import PendingMatches, PlayerStrength
from populations.controller.monitoring.champions import leading_entrant
from populations.controller.state.epoch import Countdown, Measured, Settings
from populations.controller.state.fits import Fits
from populations.controller.state.leases import Crew, Learner
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.league.ratings import Ratings
from populations.matchmaking.external_players import external_player_id
from populations.ratings.model import probability_positive
from populations.records.tables import Tables

FINAL_DEVIATION = 32.0
"""Deviation from the mean of the population, in Elo, at which a rating is sure enough."""

FINAL_MATCHES = 384
"""Matches after which a policy's rating counts as settled, however large its deviation is."""

MAX_CONTENDERS = 4
CONTENDER_PROBABILITY = 0.05
"""Least probability of a contender to be better than the player with the best lower bound."""

TOURNAMENT_MATCHES = 128
"""Matches of each pair of contenders."""

ANCHOR_MATCHES = 384
"""Matches of the champion with the anchor. The champion's rating is a sum of differences along a
chain of ghosts; these matches check the sum, even if it predicts one loss in 400."""

FINAL_SHARE = 0.5
FINAL_S = 60.0
"""Learner seconds for finals, beside evaluation's own share: this part of those that training took,
or ``FINAL_S`` if that is more. The time passes also while a learner waits for a fit."""

Pair = tuple[PlayerStrength, PlayerStrength]
BoolArray = npt.NDArray[np.bool_]


def is_decided(state: ControllerState) -> bool:
    """Return whether no final match is left to play, or no time for one.

    An epoch that only evaluates goes on until its time is over.
    """
    if is_time_over(state.indexes.pending_matches, state.measured):
        return True
    if state.phase.evaluation_only is not None:
        return False
    # No ghosts are drawn here, because each draw takes a decision number and this runs often.
    known = evaluation_pool(state.settings, state.indexes, state.blame.ledger, None)
    return not _unsettled(state.league, known).any() and not _missing(
        state.settings, state.fits, known
    )


def is_time_over(pending_matches: PendingMatches, measured: Measured) -> bool:
    """Return whether no learner can end one more match before the time limit.

    In deterministic mode it is always False, because seconds decide nothing there.
    """
    countdown, learners = measured.phase.countdown, measured.phase.crew.learners.values()
    if countdown is None:
        return False
    # Without a learner wait for the next one, because the duration of its matches is not known.
    return countdown.left_s <= 0.0 or (
        bool(learners)
        and not any(matches_in_time(measured, pending_matches, learner) for learner in learners)
    )


def longest_s(*, training_s: float, num_learners: int) -> float:
    """Return the bound on the finals' seconds after ``training_s`` learner seconds of training."""
    return max(FINAL_SHARE * training_s, FINAL_S) / num_learners


def final_countdown(config: RunConfig, tables: Tables, crew: Crew) -> Countdown | None:
    """Return the time limit of finals when training ends; None in deterministic mode."""
    if config.deterministic:
        return None
    run, share = tables.run, config.evaluation.share
    num_learners = max(len(crew.learners), len(crew.slots), 1)
    most_s = longest_s(training_s=run.training_s, num_learners=num_learners)
    # left = s / (1 - s) T - E is the rest of evaluation's share s, for seconds T of training and E
    # of evaluation. Below 0, after earlier finals, it shortens the time; above 0 it is ignored.
    left_s = run.training_s * share / (1.0 - share) - run.evaluation_s
    return Countdown(duration_s=most_s + min(left_s / num_learners, 0.0))


def more_pairings(state: ControllerState, tx: Transaction, learner: Learner) -> tuple[Pairing, ...]:
    """Draw a learner's next evaluation after training; empty: no match is left, or no time."""
    one_s = match_s(state.measured, learner)
    most = matches_in_time(state.measured, state.indexes.pending_matches, learner)
    num_matches = int(min(at_most(full_size(state.settings.setup), one_s), most))
    if not num_matches:
        return ()
    found = final_pairings(state, tx, num_matches=num_matches)
    if not found and state.phase.evaluation_only is not None:
        # The finals need no more matches, so play the most informative ones, as in training.
        found = draw_pairings(state, tx, num_matches=num_matches)
    return _cut(found, int(min(sum(pairing.num_matches for pairing in found), most)))


def _cut(pairings: tuple[Pairing, ...], num_matches: int) -> tuple[Pairing, ...]:
    """Reduce an evaluation to ``num_matches`` matches, in the same proportions of pairings."""
    ends = [0, *accumulate(pairing.num_matches for pairing in pairings)]
    # Cumulative ends are scaled: matches a to b of N become floor(a n / N) to floor(b n / N) of n.
    ends = [end * num_matches // max(ends[-1], 1) for end in ends]
    return tuple(
        replace(pairing, num_matches=end - begin)
        for pairing, (begin, end) in zip(pairings, pairwise(ends), strict=True)
        if end > begin
    )


def final_pairings(
    state: ControllerState, tx: Transaction, *, num_matches: int
) -> tuple[Pairing, ...]:
    """Draw the next evaluation of the finals; empty if all matches are played, or being played.

    Args:
        state: The controller.
        tx: Transaction that takes the event of a tournament.
        num_matches: Approximate number of matches.
    """
    # Newcomers come first, because weights that make a match fail would fail the evaluation of all
    # players in it.
    validations = validation_pairings(state, num_matches=num_matches)
    if validations:
        return validations
    # Wait for a fit of the last matches, which may have settled ratings that seem open.
    if state.fits.running or state.fits.are_stale():
        return ()
    known = evaluation_pool(state.settings, state.indexes, state.blame.ledger, None)
    unsettled = _unsettled(state.league, known)
    if unsettled.any():
        weights = unsettled.astype(np.float64)
        return pairings_about(
            state, known, weights=weights, num_matches=num_matches, rng=tx.draw()
        ) or validation_pairings(state, num_matches=num_matches, waiting=True)
    missing = _missing(state.settings, state.fits, known)
    # Open evaluations may be of these same pairs, and their results are still missing.
    if not missing or any(open_evaluations(state.tables)):
        return ()
    # The anchor is no contender, so its matches are left out of the tournament's event.
    rivals = [
        (pair, num_matches) for pair, num_matches in missing if pair[1].player.player != RANDOM_BOT
    ]
    if rivals:
        players = [one for pair, _ in rivals for one in pair if one.kind != "bot"]
        tx.add_event(
            "tournament_assigned",
            contenders=list(dict.fromkeys(one.player.player for one in players)),
            matches=sum(num_matches for _, num_matches in rivals),
            matches_per_pair=TOURNAMENT_MATCHES,
        )
    pairings: list[Pairing] = []
    # Pairs for which this evaluation has no time are still missing, so the next one plays them.
    one_s = match_s(state.measured)
    left = at_most(sum(num_matches for _, num_matches in missing), one_s)
    for (first, second), to_play in missing:
        if left > 0:
            seatings = seatings_of(state.settings.setup, state.tables, first, second)
            # All seatings have equally many matches, so each player has every seat equally often.
            each = max(min(to_play, left) // len(seatings), MIN_MATCHES_PER_SEATING)
            pairings += [Pairing(seating=seating, num_matches=each) for seating in seatings]
            left -= to_play
    return tuple(pairings)


def _unsettled(league: League, known: EvaluationPool) -> BoolArray:
    """Return which policies' ratings are neither precise enough nor of enough matches. bool [N]."""
    deviations = known.deviations()
    return np.array(
        [
            player.kind == "policy"
            and deviation > FINAL_DEVIATION
            and league.record(player.population, player.entrant).matches < FINAL_MATCHES
            for player, deviation in zip(known.players, deviations, strict=True)
        ],
        dtype=bool,
    )


def _missing(settings: Settings, fits: Fits, known: EvaluationPool) -> list[tuple[Pair, int]]:
    """Return pairs of contenders, and of champion and anchor, that have played too few matches.

    Returns:
        Each pair with the number of missing matches; pairs of contenders come first.
    """
    # An external player that plays for a whole population is a contender of that population.
    only = {
        name: one.player and external_player_id(one.player)
        for name, one in settings.config.populations.items()
    }
    own = defaultdict[str, list[PlayerStrength]](list)
    for player in known.players:
        if player.kind != "bot" or player.player.player == only[player.population]:
            own[player.population].append(player)
    ranked = settings.setup.ranked_populations
    contenders = {name: _contenders(fits.ratings(name), own[name]) for name in ranked}
    everybody = [player for found in contenders.values() for player in found]
    anchors = [player for player in known.players if player.player.player == RANDOM_BOT]
    seats = settings.setup.seats
    # Players of populations on one side never play each other, so no matches of them are required.
    rivals = rival_populations(seats)
    # The title's holder plays the bots; among equals it need not have the best bound.
    titled = {(name, leading_entrant(fits, name)) for name in contenders}
    best = [player for player in known.players if (player.population, player.entrant) in titled]
    wanted: Iterator[tuple[Pair, int]] = chain(
        zip(combinations(everybody, 2), repeat(TOURNAMENT_MATCHES)),
        zip(product(best, anchors), repeat(ANCHOR_MATCHES)),
    )
    missing = []
    for (first, second), num_matches in wanted:
        if frozenset((first.population, second.population)) not in rivals:
            continue
        # Without randomness every match of a seating is the same game, so one is enough.
        plays_random = RANDOM_BOT in (first.player.player, second.player.player)
        if settings.setup.repeats_games and not plays_random:
            num_matches = 1
        met = _num_met(fits.league, first, second)
        if met < num_matches:
            missing.append(((first, second), num_matches - met))
    return missing


def _contenders(ratings: Ratings, players: Sequence[PlayerStrength]) -> list[PlayerStrength]:
    """Return the rated players that may be the best, in order of their lower bounds."""
    rated = [
        (low, index)
        for index, player in enumerate(players)
        if (low := ratings.low(player.entrant)) is not None
    ]
    # Equal bounds keep the order of the players, so that a resumed run has the same order.
    ranked = [players[index] for _, index in sorted(rated, key=lambda entry: (-entry[0], entry[1]))]
    found = []
    for player in ranked:
        difference = ratings.difference(player.entrant, ranked[0].entrant)
        assert difference is not None, "both are rated"
        # The probability is that of being better than the player with the best lower bound.
        if player is ranked[0] or probability_positive(*difference) >= CONTENDER_PROBABILITY:
            found.append(player)
    return found[:MAX_CONTENDERS]


def _num_met(league: League, first: PlayerStrength, second: PlayerStrength) -> int:
    """Count evaluation matches between two players, in all seats, rounded to an integer."""
    one, two = (first.population, first.entrant), (second.population, second.entrant)
    # With more than two sides each pair of seats counts 1/(n - 1) of a match, so the sum may be a
    # fraction.
    return round(league.num_met(one, two) + league.num_met(two, one))
