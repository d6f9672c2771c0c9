"""Requests to the matchmaker, and what it may ask about candidates.

Those are results, ratings and expected scores. Vectorized: what Python looks at one by one is whom
the trainee has met, and the few players of a meta-game, never all candidates. Shapes: N candidates.

Tests: `tests/populations/controller/test_opponents.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import permutations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from arena.types import Entrant, PlayerId, PolicyId, Tally
from arena.wire.messages import Train
from populations.candidates import Candidates, FloatArray, IntArray
from populations.controller.indexes.opponent_pool import OpponentColumns, OpponentPools, Pool
from populations.controller.state.epoch import Settings
from populations.controller.state.fits import Fits
from populations.controller.state.state import ControllerState, Indexes
from populations.controller.state.transaction import Transaction
from populations.core import Matchmaker, OpponentRequest
from populations.league.league import League
from populations.league.lineage import first_of_line, line_of
from populations.league.scores import Outcome, filled_scores_among, rating_by_results
from populations.matchmaking.make import ghost_memory
from populations.matchmaking.rating_proximate import expected_scores
from populations.records.rows import PolicyRow
from populations.records.tables import Tables


class OpponentStatistics(Struct, dict=True):
    """Figures for one decision, about one trainee and the candidates of one population.

    Attributes:
        fits: Fits of ratings, whose league has the results.
        pool: The population's players.
        policy: The trainee.
        population: That of the candidates.
        ghosts_every: Agent steps from one ghost of a policy to the next.
    """

    fits: Fits
    pool: Pool
    policy: PolicyRow
    population: str
    ghosts_every: int

    @property
    def _league(self) -> League:
        return self.fits.league

    @property
    def _tables(self) -> Tables:
        return self.fits.league.tables

    def record(self, candidates: Candidates) -> tuple[FloatArray, FloatArray]:
        """Return the trainee's wins and losses against candidates, draws half. float64 [N]."""
        if candidates.codes is self.pool.policies.codes:
            by_code, codes = self._results_against_latest(candidates), candidates.policy_codes
        else:
            by_code, codes = self._results_against_ghosts, candidates.entrant_codes
        return taken(by_code[0], codes), taken(by_code[1], codes)

    @cached_property
    def _results_against_ghosts(self) -> FloatArray:
        """Return wins and losses by entrant code. float64 [2, codes]."""
        codes, results = self._met.among_ghosts()
        found = np.zeros((2, len(self.pool.ghosts.codes.entrants)))
        found[:, codes] = results
        return found

    def _results_against_latest(self, candidates: Candidates) -> FloatArray:
        """Return wins and losses by policy code. float64 [2, codes].

        Against any checkpoint that a policy made since about its last ghost, and since its weights
        were last replaced.
        """
        # The latest checkpoint alone is too new to have been met.
        num_codes = len(candidates.codes.policies)
        # One entry more: the code -1 of an unknown policy reads it, and is masked below.
        first = np.zeros(num_codes + 1, dtype=np.int64)
        oldest = np.zeros(num_codes + 1, dtype=np.int64)
        for code, policy in zip(candidates.policy_codes, candidates.policies, strict=True):
            row = self._tables.policies[policy]
            first[code] = first_of_line(self._tables.generations, row.trainee)
            oldest[code] = self._oldest(row)
        met = self._met
        codes = met.policy_codes
        counts = (codes >= 0) & (met.agent_steps >= oldest[codes])
        counts &= met.generations >= first[codes]
        # Opponents are sorted: a resumed run has met them in another order, and its sums are the
        # same to the bit.
        places = np.flatnonzero(counts)
        keys = (met.generations, met.agent_steps, codes)
        places = places[np.lexsort([key[places] for key in keys])]
        return np.array(
            [
                np.bincount(codes[places], weights=results[places], minlength=num_codes)
                for results in met.results
            ],
            # The type is named because NumPy counts in integers where there is nothing to count.
            dtype=np.float64,
        )

    @cached_property
    def _met(self) -> OpponentColumns:
        """Return all whom the trainee has met since its weights were last replaced."""
        line = line_of(self._tables.generations, self._league.payoff, self.policy.trainee)
        met = self.pool.met.get(self.policy.policy)
        # The trainee begins anew when its weights have been replaced.
        if met is None or not met.follows(line):
            met = self.pool.met[self.policy.policy] = OpponentColumns()
        met.update(
            line,
            self._league.payoff,
            ghosts=self.pool.ghosts.codes.entrants,
            policies=self.pool.policies.codes.policies,
            origins=self._league.checkpoints,
            oldest=self._oldest_by_code,
        )
        return met

    def _oldest_by_code(self) -> IntArray:
        """Return agent steps that a latest checkpoint has at least, by policy code. int64 [N]."""
        policies = self._tables.policies
        rows = (policies[PolicyId(policy)] for policy in self.pool.policies.codes.policies)
        return np.array([self._oldest(row) for row in rows], dtype=np.int64)

    def _oldest(self, policy: PolicyRow) -> int:
        """Return agent steps from which on a checkpoint is about as old as the newest ghost."""
        return policy.agent_steps - self.ghosts_every

    def predicted(self, candidates: Candidates) -> FloatArray:
        """Return the trainee's score by ratings, 1/2 where nothing is known. float64 [N]."""
        if candidates.codes is self.pool.policies.codes:
            opponents = self.ratings(candidates)
        else:
            opponents = taken(self._ghost_ratings[1], candidates.entrant_codes)
        return expected_scores(self._rating_here, opponents)

    @cached_property
    def _rating_here(self) -> float:
        """Return Elo of the trainee on the candidates' scale, NaN if unrated."""
        rating = self.trainee_rating
        if self.policy.population == self.population:
            return rating
        # Another population has another scale: what the game gives to a side is in neither, but in
        # the trainee's results.
        codes, results = self._met.among_ghosts()
        opponents = self._ghost_ratings[0][codes]
        is_rated = np.isfinite(opponents)
        wins, losses = results[:, is_rated]
        return rating_by_results(rating, opponents[is_rated], wins=wins, losses=losses)

    def ratings(self, candidates: Candidates) -> FloatArray:
        """Return Elo, of a policy that of its newest rated weights, NaN if unrated. float64 [N]."""
        if candidates.codes is self.pool.policies.codes:
            policies = self._tables.policies
            rows = [policies[policy] for policy in candidates.policies]
            return np.array([self._newest_rating(row) for row in rows], dtype=np.float64)
        return taken(self._ghost_ratings[0], candidates.entrant_codes)

    @cached_property
    def _ghost_ratings(self) -> tuple[FloatArray, FloatArray]:
        """Return Elo of ghosts by entrant code, as rated and as expected; NaN if unknown."""
        row = self._tables.ratings.get(self.population)
        return self.pool.ghost_ratings(row, origins=self._league.checkpoints)

    @cached_property
    def trainee_rating(self) -> float:
        """Return Elo of the trainee's newest weights that are rated; NaN if none are."""
        return self._newest_rating(self.policy)

    def _newest_rating(self, policy: PolicyRow) -> float:
        # Weights evaluated since the last fit have no rating yet, but those they were trained from
        # do.
        rating = self.fits.line_rating(policy)
        return float("nan") if rating is None else rating

    def scores(self, candidates: Candidates) -> FloatArray:
        """Return expected score of each against each: results, filled by what ratings predict.

        Over all evaluation matches of a pair in any seats; `populations.league.scores` has the
        formula. float64 [N, N].
        """
        row = self._tables.ratings.get(self.population)
        key = (
            self._league.tables.last_evaluation_sequence,
            row.num_tallies if row is not None else 0,
            candidates.entrant_codes.tobytes(),
        )
        known = self.pool.scores.get(key)
        if known is None:
            known = filled_scores_among(self.ratings(candidates), self._outcomes(candidates))
            # One entry: with a new evaluation or fit the older scores are outdated.
            self.pool.scores.clear()
            self.pool.scores[key] = known
        return known

    def _outcomes(self, candidates: Candidates) -> Iterator[Outcome]:
        """Return evaluation matches among candidates, in any seats."""
        rated = [(self.population, Entrant(entrant)) for entrant in candidates.entrants]
        # Both orders of a pair are looked up, since either may have had the lower seat.
        for (i, first), (j, second) in permutations(enumerate(rated), 2):
            for counts in self._league.results_of(first, second):
                yield i, j, counts.points, counts.matches


def taken(by_code: FloatArray, codes: IntArray) -> FloatArray:
    """Return entries of a table by code; the table itself if the codes are all of it."""
    if len(codes) == len(by_code) and is_counting(codes):
        return by_code
    return by_code.take(codes)


def is_counting(codes: IntArray) -> bool:
    """Return whether the codes are 0, 1, 2, ..., so that nothing has to be looked up by them."""
    return len(codes) == 0 or bool(codes[0] == 0 and (np.diff(codes) == 1).all())


def make_request(
    settings: Settings,
    indexes: Indexes,
    policy: PolicyRow,
    population: str,
    *,
    rival: PolicyRow | None = None,
) -> OpponentRequest:
    """Make the request to the matchmaker: opponents of one population for a policy.

    A rival that learns beside it is the only latest one.
    """
    pool = indexes.opponent_pools.pool(population)
    latest = pool.latest(without=policy.policy)
    if rival is not None:
        _, latest = pool.named([PlayerId(rival.policy)])
    every = settings.config.ghosts.every_agent_steps
    facts = OpponentStatistics(indexes.fits, pool, policy, population, ghosts_every=every)
    return OpponentRequest(
        trainee=policy.policy,
        role=policy.role,
        entrant=policy.trainee,
        agent_steps=policy.agent_steps,
        num_opponents=num_opponents(settings, rival),
        is_own_population=population == policy.population,
        ghosts=pool.ghosts.candidates,
        latest=latest,
        record=facts.record,
        predicted=facts.predicted,
        ratings=facts.ratings,
        trainee_rating=facts.trainee_rating,
        scores=facts.scores,
    )


def num_opponents(settings: Settings, rival: PolicyRow | None) -> int:
    """Return the opponents of a policy in one assignment, in which a rival may learn beside it."""
    wanted = settings.config.matchmaking.opponents
    # Each of two has so many, and each seating needs an environment.
    return wanted if rival is None else min(wanted, settings.setup.num_envs // 2)


def drop_external_player(settings: Settings, tx: Transaction, key: str, *, reason: str) -> None:
    """Take a corrupt imported player out: the matchmaker draws others in its place."""
    for population, external in settings.external_players.items():
        kept = tuple(o for o in external if o.weights is None or o.weights.key != key)
        if len(kept) < len(external):
            settings.external_players = {**settings.external_players, population: kept}
            tx.add_event("outsider_corrupt", key, population=population, reason=reason)


def quality_of_new(matchmaker: Matchmaker, opponent_pools: OpponentPools, population: str) -> float:
    """Return the number with which a new ghost enters, where the rule keeps one for each."""
    memory = ghost_memory(matchmaker)
    if memory is None:
        return 0.0
    pool = opponent_pools.pool(population)
    return memory.number_of_new(pool.ghosts.candidates.qualities)


def update_qualities(
    state: ControllerState, tx: Transaction, message: Train, tallies: Sequence[Tally]
) -> None:
    """Tell a rule that keeps a number for each ghost which of them a trainee has beaten."""
    memory = ghost_memory(state.settings.matchmaker)
    if memory is None:
        return
    for player, num_wins in _beaten_ghosts(state.tables, message, tallies).items():
        row = state.tables.ghosts[player]
        pool = state.indexes.opponent_pools.pool(row.population)
        position = pool.ghost_positions.get(player)
        # The ghost was found corrupt since the assignment was given out.
        if row.corrupt or position is None:
            continue
        # Qualities are read anew for each ghost: the row that was put last has changed them.
        qualities = pool.ghosts.candidates.qualities
        quality = memory.number_after(qualities, position, num_wins=num_wins)
        tx.put(replace(row, quality=quality))


def _beaten_ghosts(tables: Tables, message: Train, tallies: Sequence[Tally]) -> dict[PlayerId, int]:
    """Return how often a trainee has won against each ghost of the assignment."""
    ghosts: dict[Entrant, PlayerId] = {
        Entrant(player.weights.digest): player.player
        # Episodes that go on were seated by an earlier assignment.
        for seating in (*message.opponents, *message.carried)
        for player in seating.players
        if player.weights is not None and player.player in tables.ghosts
    }
    trainees = {t.entrant for t in message.trainees}
    beaten: dict[PlayerId, int] = {}
    for tally in tallies:
        for pair in tally.pairs:
            first, second = tally.entrants[pair.first], tally.entrants[pair.second]
            for own, other, num_wins in ((first, second, pair.wins), (second, first, pair.losses)):
                if own in trainees and other in ghosts and num_wins:
                    player = ghosts[other]
                    beaten[player] = beaten.get(player, 0) + num_wins
    return beaten
