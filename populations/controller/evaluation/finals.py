"""Final matches after training: until every rating is sure enough, then for the championship.

Each policy's last checkpoint plays until its rating is as sure as ``FINAL_DEVIATION``, or it has
played enough. Then those who may be the best play each other: the champion is confirmed by matches
against its rivals, not by what others lost to it, and its distance from the anchor by matches
against that. Where matches take long, all this ends when it has taken its share of the training's
time.
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
"""Matches after which a policy plays no more, however unsure its rating is."""

MAX_CONTENDERS = 4
CONTENDER_PROBABILITY = 0.05
"""Least probability of being better than the best, for a contender."""

TOURNAMENT_MATCHES = 128
"""Matches of each pair of contenders."""

ANCHOR_MATCHES = 384
"""Matches of the champion with the anchor. Its distance from 0 was added up along ghosts of
ghosts; so many matches show whether the sum holds, also where ratings promise one loss in 400."""

FINAL_SHARE = 0.5
FINAL_S = 60.0
"""Learner seconds for finals, beside evaluation's own share: this part of those that training took,
or so many if that is more. They pass on the clock, also while a learner waits for a fit."""

Pair = tuple[PlayerStrength, PlayerStrength]
BoolArray = npt.NDArray[np.bool_]


def is_decided(state: ControllerState) -> bool:
    """Return whether there is nothing left to be played after training, or no time.

    An epoch that only evaluates goes on until its time is over.
    """
    if is_time_over(state.indexes.pending_matches, state.measured):
        return True
    if state.phase.evaluation_only is not None:
        return False
    # Nothing is drawn: this is asked often, and a draw would take a decision number each time.
    known = evaluation_pool(state.settings, state.indexes, state.blame.ledger, None)
    return not _unsettled(state.league, known).any() and not _missing(
        state.settings, state.fits, known
    )


def is_time_over(pending_matches: PendingMatches, measured: Measured) -> bool:
    """Return whether no learner can end one more match in the time that was named.

    Never in deterministic mode, where seconds decide nothing.
    """
    countdown, learners = measured.phase.countdown, measured.phase.crew.learners.values()
    if countdown is None:
        return False
    # The next learner is waited for, because nobody knows how long a match takes without one.
    return countdown.left_s <= 0.0 or (
        bool(learners)
        and not any(matches_in_time(measured, pending_matches, learner) for learner in learners)
    )


def longest_s(*, training_s: float, num_learners: int) -> float:
    """Return seconds for which finals last at most, after so many learner seconds of training."""
    return max(FINAL_SHARE * training_s, FINAL_S) / num_learners


def final_countdown(config: RunConfig, tables: Tables, crew: Crew) -> Countdown | None:
    """Return the time for finals, as training ends; None in deterministic mode."""
    if config.deterministic:
        return None
    run, share = tables.run, config.evaluation.share
    num_learners = max(len(crew.learners), len(crew.slots), 1)
    most_s = longest_s(training_s=run.training_s, num_learners=num_learners)
    # left = s / (1 - s) T - E, for training T and evaluation E; below 0 after earlier finals. What
    # evaluation has left of its share makes finals no longer than was said.
    left_s = run.training_s * share / (1.0 - share) - run.evaluation_s
    return Countdown(duration_s=most_s + min(left_s / num_learners, 0.0))


def more_pairings(state: ControllerState, tx: Transaction, learner: Learner) -> tuple[Pairing, ...]:
    """Draw a learner's next evaluation after training; empty: there is none, or no time for it."""
    one_s = match_s(state.measured, learner)
    most = matches_in_time(state.measured, state.indexes.pending_matches, learner)
    num_matches = int(min(at_most(full_size(state.settings.setup), one_s), most))
    if not num_matches:
        return ()
    found = final_pairings(state, tx, num_matches=num_matches)
    if not found and state.phase.evaluation_only is not None:
        # Nothing is open that finals ask for: as in training, what tells most.
        found = draw_pairings(state, tx, num_matches=num_matches)
    return _cut(found, int(min(sum(pairing.num_matches for pairing in found), most)))


def _cut(pairings: tuple[Pairing, ...], num_matches: int) -> tuple[Pairing, ...]:
    """Return so many matches of an evaluation, each pairing's as many of them as of all."""
    ends = [0, *accumulate(pairing.num_matches for pairing in pairings)]
    # The n matches from a to b of N become those from floor(a n / N) to floor(b n / N).
    ends = [end * num_matches // max(ends[-1], 1) for end in ends]
    return tuple(
        replace(pairing, num_matches=end - begin)
        for pairing, (begin, end) in zip(pairings, pairwise(ends), strict=True)
        if end > begin
    )


def final_pairings(
    state: ControllerState, tx: Transaction, *, num_matches: int
) -> tuple[Pairing, ...]:
    """Draw the next evaluation of the finals; empty if all is played, or being played.

    Args:
        state: The controller.
        tx: Takes the event of a tournament.
        num_matches: About as many as are played.
    """
    # Newcomers come first: weights that break a match would break it for all others in the
    # evaluation.
    validations = validation_pairings(state, num_matches=num_matches)
    if validations:
        return validations
    # The last matches may have settled what seems open.
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
    # Open ones may be about these very pairs, and are not in the results yet.
    if not missing or any(open_evaluations(state.tables)):
        return ()
    # The anchor is no contender; its matches are no tournament.
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
    # Pairs for which this evaluation has no time are still missing at the next one.
    one_s = match_s(state.measured)
    left = at_most(sum(num_matches for _, num_matches in missing), one_s)
    for (first, second), to_play in missing:
        if left > 0:
            seatings = seatings_of(state.settings.setup, state.tables, first, second)
            # Every seat equally often.
            each = max(min(to_play, left) // len(seatings), MIN_MATCHES_PER_SEATING)
            pairings += [Pairing(seating=seating, num_matches=each) for seating in seatings]
            left -= to_play
    return tuple(pairings)


def _unsettled(league: League, known: EvaluationPool) -> BoolArray:
    """Return which policies' ratings are not sure enough. bool [N]."""
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
    """Return pairs of contenders, and of champion and anchor, that have not met often enough.

    Returns:
        Each with the matches that are missing; those among contenders come first.
    """
    # A player that has all agents of a population is met by the others' contenders.
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
    # Players of populations on one side never meet, so they would be waited for without an end.
    rivals = rival_populations(seats)
    # The leader of each population meets the bots: among equals that need not be the one with the
    # best bound.
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
        # Whoever draws nothing has one game in each seating.
        plays_random = RANDOM_BOT in (first.player.player, second.player.player)
        if settings.setup.repeats_games and not plays_random:
            num_matches = 1
        met = _num_met(fits.league, first, second)
        if met < num_matches:
            missing.append(((first, second), num_matches - met))
    return missing


def _contenders(ratings: Ratings, players: Sequence[PlayerStrength]) -> list[PlayerStrength]:
    """Return the rated players that may be the best, the best lower bound first."""
    rated = [
        (low, index)
        for index, player in enumerate(players)
        if (low := ratings.low(player.entrant)) is not None
    ]
    # Equal bounds in the order of the players, which a resumed run has, too.
    ranked = [players[index] for _, index in sorted(rated, key=lambda entry: (-entry[0], entry[1]))]
    found = []
    for player in ranked:
        difference = ratings.difference(player.entrant, ranked[0].entrant)
        assert difference is not None, "both are rated"
        # P(player is better than the one with the best lower bound)
        if player is ranked[0] or probability_positive(*difference) >= CONTENDER_PROBABILITY:
            found.append(player)
    return found[:MAX_CONTENDERS]


def _num_met(league: League, first: PlayerStrength, second: PlayerStrength) -> int:
    """Count evaluation matches between two players, in all seats, parts of matches too."""
    one, two = (first.population, first.entrant), (second.population, second.entrant)
    # The sum may be no whole number: with more than two sides each pair of seats counts 1/(n - 1)
    # of a match.
    return round(league.num_met(one, two) + league.num_met(two, one))
