"""Requests to the matchmaker, with functions for results, ratings and scores of candidates.

Computations are vectorized over candidates. Python loops run only over the trainee's opponents and
the few players of a meta-game, never over all candidates. Shapes: N candidates.

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
    """Statistics for one decision, about one trainee and the candidates of one population.

    Attributes:
        fits: Fits of ratings, whose league has the results.
        pool: Players of the population.
        policy: The trainee.
        population: Population of the candidates.
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
        """Return the trainee's wins and losses against ghosts, by code. float64 [2, codes]."""
        codes, results = self._met.among_ghosts()
        found = np.zeros((2, len(self.pool.ghosts.codes.entrants)))
        found[:, codes] = results
        return found

    def _results_against_latest(self, candidates: Candidates) -> FloatArray:
        """Return the trainee's wins and losses by policy code of the opponent. float64 [2, codes].

        They are of all checkpoints that a policy has made since its weights were last replaced and
        since about its last ghost, because its latest checkpoint is too new to have been played.
        """
        num_codes = len(candidates.codes.policies)
        # One more entry is read by the code -1 of unknown policies, which are masked below.
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
        # Opponents are sorted, so that a resumed run, which has another order of them, computes the
        # same sums bit by bit.
        places = np.flatnonzero(counts)
        keys = (met.generations, met.agent_steps, codes)
        places = places[np.lexsort([key[places] for key in keys])]
        return np.array(
            [
                np.bincount(codes[places], weights=results[places], minlength=num_codes)
                for results in met.results
            ],
            # The type is given because NumPy counts in integers if there is nothing to count.
            dtype=np.float64,
        )

    @cached_property
    def _met(self) -> OpponentColumns:
        """Return all opponents of the trainee since its weights were last replaced."""
        line = line_of(self._tables.generations, self._league.payoff, self.policy.trainee)
        met = self.pool.met.get(self.policy.policy)
        # If the weights were replaced, the line is another one and its opponents begin anew.
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
        """Return, by policy code, the agent steps from which on checkpoints count as latest ones.

        int64 [codes].
        """
        policies = self._tables.policies
        rows = (policies[PolicyId(policy)] for policy in self.pool.policies.codes.policies)
        return np.array([self._oldest(row) for row in rows], dtype=np.int64)

    def _oldest(self, policy: PolicyRow) -> int:
        """Return the agent steps from which on a policy's checkpoints count as latest ones."""
        return policy.agent_steps - self.ghosts_every

    def predicted(self, candidates: Candidates) -> FloatArray:
        """Return the trainee's score predicted by ratings, 1/2 where unknown. float64 [N]."""
        if candidates.codes is self.pool.policies.codes:
            opponents = self.ratings(candidates)
        else:
            opponents = taken(self._ghost_ratings[1], candidates.entrant_codes)
        return expected_scores(self._rating_here, opponents)

    @cached_property
    def _rating_here(self) -> float:
        """Return the trainee's rating (Elo) on the candidates' scale, NaN if unrated."""
        rating = self.trainee_rating
        if self.policy.population == self.population:
            return rating
        # Another population has another scale, and neither scale contains the advantage that the
        # game gives to a side. The trainee's results contain it, so they decide its rating here.
        codes, results = self._met.among_ghosts()
        opponents = self._ghost_ratings[0][codes]
        is_rated = np.isfinite(opponents)
        wins, losses = results[:, is_rated]
        return rating_by_results(rating, opponents[is_rated], wins=wins, losses=losses)

    def ratings(self, candidates: Candidates) -> FloatArray:
        """Return ratings (Elo); policies have that of their newest rated weights. float64 [N].

        NaN if unrated.
        """
        if candidates.codes is self.pool.policies.codes:
            policies = self._tables.policies
            rows = [policies[policy] for policy in candidates.policies]
            return np.array([self._newest_rating(row) for row in rows], dtype=np.float64)
        return taken(self._ghost_ratings[0], candidates.entrant_codes)

    @cached_property
    def _ghost_ratings(self) -> tuple[FloatArray, FloatArray]:
        """Return ghosts' rated and expected Elo (`Pool.ghost_ratings`). float64 [codes] each."""
        row = self._tables.ratings.get(self.population)
        return self.pool.ghost_ratings(row, origins=self._league.checkpoints)

    @cached_property
    def trainee_rating(self) -> float:
        """Return the rating (Elo) of the trainee's newest rated weights; NaN if there are none."""
        return self._newest_rating(self.policy)

    def _newest_rating(self, policy: PolicyRow) -> float:
        # The newest weights may have no rating before the next fit, so those that they were trained
        # from are used.
        rating = self.fits.line_rating(policy)
        return float("nan") if rating is None else rating

    def scores(self, candidates: Candidates) -> FloatArray:
        """Return expected scores between candidates: results, filled by ratings. float64 [N, N].

        Results are of all evaluation matches of a pair, in any seats; `populations.league.scores`
        has the formula.
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
            # Only one entry is cached, as a new evaluation or fit makes older scores outdated.
            self.pool.scores.clear()
            self.pool.scores[key] = known
        return known

    def _outcomes(self, candidates: Candidates) -> Iterator[Outcome]:
        """Yield evaluation results between candidates, in any seats."""
        rated = [(self.population, Entrant(entrant)) for entrant in candidates.entrants]
        # Both orders of a pair are looked up, because results name the lower seat first.
        for (i, first), (j, second) in permutations(enumerate(rated), 2):
            for counts in self._league.results_of(first, second):
                yield i, j, counts.points, counts.matches


def taken(by_code: FloatArray, codes: IntArray) -> FloatArray:
    """Return entries of a table by code; the table itself, without a copy, for all its codes."""
    if len(codes) == len(by_code) and is_counting(codes):
        return by_code
    return by_code.take(codes)


def is_counting(codes: IntArray) -> bool:
    """Return whether codes are 0, 1, 2, ..., so that a look-up would change nothing."""
    return len(codes) == 0 or bool(codes[0] == 0 and (np.diff(codes) == 1).all())


def make_request(
    settings: Settings,
    indexes: Indexes,
    policy: PolicyRow,
    population: str,
    *,
    rival: PolicyRow | None = None,
) -> OpponentRequest:
    """Make the request to the matchmaker for a policy's opponents of one population.

    If a rival learns beside the policy, it is the only candidate with latest weights.
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
    """Return the number of a policy's opponents in an assignment, with or without a rival."""
    wanted = settings.config.matchmaking.opponents
    # With a rival, both have that many opponents, and each seating needs an environment.
    return wanted if rival is None else min(wanted, settings.setup.num_envs // 2)


def drop_external_player(settings: Settings, tx: Transaction, key: str, *, reason: str) -> None:
    """Remove an imported player with corrupt weights, so that it is not drawn any more."""
    for population, external in settings.external_players.items():
        kept = tuple(o for o in external if o.weights is None or o.weights.key != key)
        if len(kept) < len(external):
            settings.external_players = {**settings.external_players, population: kept}
            tx.add_event("outsider_corrupt", key, population=population, reason=reason)


def quality_of_new(matchmaker: Matchmaker, opponent_pools: OpponentPools, population: str) -> float:
    """Return the first quality of a new ghost; 0 unless the rule keeps a quality for each ghost."""
    memory = ghost_memory(matchmaker)
    if memory is None:
        return 0.0
    pool = opponent_pools.pool(population)
    return memory.number_of_new(pool.ghosts.candidates.qualities)


def update_qualities(
    state: ControllerState, tx: Transaction, message: Train, tallies: Sequence[Tally]
) -> None:
    """Update ghosts' qualities by trainees' wins, if the rule keeps a quality for each ghost."""
    memory = ghost_memory(state.settings.matchmaker)
    if memory is None:
        return
    for player, num_wins in _beaten_ghosts(state.tables, message, tallies).items():
        row = state.tables.ghosts[player]
        pool = state.indexes.opponent_pools.pool(row.population)
        position = pool.ghost_positions.get(player)
        # The ghost may have been found corrupt since the assignment was given out.
        if row.corrupt or position is None:
            continue
        # Qualities are read again for each ghost, because the last put has changed them.
        qualities = pool.ghosts.candidates.qualities
        quality = memory.number_after(qualities, position, num_wins=num_wins)
        tx.put(replace(row, quality=quality))


def _beaten_ghosts(tables: Tables, message: Train, tallies: Sequence[Tally]) -> dict[PlayerId, int]:
    """Return the number of trainees' wins against each ghost of an assignment."""
    ghosts: dict[Entrant, PlayerId] = {
        Entrant(player.weights.digest): player.player
        # Episodes that go on were seated by an earlier assignment, so their ghosts count, too.
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
