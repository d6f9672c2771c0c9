"""What matchmaking may ask about candidates: results, ratings, expected scores.

Vectorized: what Python looks at one by one is whom the trainee has met, and the few players of a
meta-game, never all candidates. Shapes: N candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from arena.types import Entrant, trainee_entrant
from populations.controller.candidates import Met, Pool
from populations.controller.state import ControllerState
from populations.league.scores import Outcome, filled_scores_among
from populations.matchmaking.candidates import Candidates, FloatArray, IntArray
from populations.types import PolicyRow


class Facts:
    """Of one decision: about one trainee and the candidates of one population."""

    def __init__(
        self, state: ControllerState, pool: Pool, policy: PolicyRow, population: str
    ) -> None:
        self._state = state
        self._pool = pool
        self._policy = policy
        self._population = population
        self._entrant = trainee_entrant(policy.policy, generation=policy.generation)
        self._ghost_results: FloatArray | None = None

    def record(self, candidates: Candidates) -> tuple[FloatArray, FloatArray]:
        """Wins and losses of the trainee against candidates, draws half. float64 [N] each."""
        if candidates.codes is self._pool.policies.codes:
            by_code, codes = self._results_against_latest(candidates), candidates.policy_codes
        else:
            by_code, codes = self._results_against_ghosts(), candidates.entrant_codes
        if len(codes) == by_code.shape[1] and is_counting(codes):
            return by_code[0], by_code[1]
        return by_code[0].take(codes), by_code[1].take(codes)

    def _results_against_ghosts(self) -> FloatArray:
        """Wins and losses by entrant code. float64 [2, codes]."""
        if self._ghost_results is None:
            results, met = self._results
            # One place more than there are ghosts: -1, for whom it met and who is none of them.
            by_code = np.zeros((2, len(self._pool.ghosts.codes.entrants) + 1))
            by_code[:, met.ghost_codes] = results
            self._ghost_results = by_code[:, :-1]
        return self._ghost_results

    def _results_against_latest(self, candidates: Candidates) -> FloatArray:
        """Wins and losses by policy code. float64 [2, codes].

        Against any checkpoint that a policy made in its generation since about its last ghost: the
        latest checkpoint alone is too new to have been met.
        """
        num_codes = len(candidates.codes.policies)
        generations = np.full(num_codes + 1, -1)
        oldest = np.zeros(num_codes + 1, dtype=np.int64)
        recent = self._state.config.ghosts.every_agent_steps
        for code, policy in zip(candidates.policy_codes, candidates.policies, strict=True):
            row = self._state.tables.policies[policy]
            generations[code] = row.generation
            oldest[code] = row.agent_steps - recent
        results, met = self._results
        codes = met.policy_codes
        counts = (codes >= 0) & (met.agent_steps >= oldest[codes])
        counts &= met.generations == generations[codes]
        return np.array(
            [np.bincount(codes[counts], weights=r[counts], minlength=num_codes) for r in results]
        )

    @cached_property
    def _results(self) -> tuple[FloatArray, Met]:
        """Wins and losses [2, M] against all whom the trainee has met, and who they are."""
        met = self._pool.met.get(self._policy.policy)
        if met is None or met.entrant != self._entrant:
            followed = self._state.league.payoff.follow(self._entrant)
            met = Met(entrant=self._entrant, followed=followed)
            self._pool.met[self._policy.policy] = met
        met.find(self._pool, self._state.league.checkpoints)
        return met.followed.results, met

    def ratings(self, candidates: Candidates) -> FloatArray:
        """Elo, NaN if unrated; of a policy, that of its standing. float64 [N]."""
        if candidates.codes is self._pool.policies.codes:
            policies = self._state.tables.policies
            rows = [policies[policy] for policy in candidates.policies]
            return np.array([self._standing_rating(row) for row in rows], dtype=np.float64)
        row = self._state.tables.ratings.get(self._population)
        return self._pool.ghost_ratings(row)[candidates.entrant_codes]

    def trainee_rating(self) -> float:
        """Elo of the trainee's standing, NaN if unrated."""
        return self._standing_rating(self._policy)

    def _standing_rating(self, policy: PolicyRow) -> float:
        digest = self._state.league.standing_weights(policy, self._state.tables)
        ratings = self._state.ratings(policy.population)
        index = ratings.index(digest)
        if index is None or ratings.row is None:
            return float("nan")
        return ratings.row.ratings[index]

    def scores(self, candidates: Candidates) -> FloatArray:
        """Expected score of each against each: results, filled by what ratings predict.

        Over all evaluation matches of a pair in any seats; `populations.league.scores` has the
        formula. float64 [N, N].
        """
        row = self._state.tables.ratings.get(self._population)
        key = (
            self._state.league.last_evaluation_sequence,
            row.num_tallies if row is not None else 0,
            candidates.entrant_codes.tobytes(),
        )
        known = self._pool.scores.get(key)
        if known is None:
            known = self._new_scores(candidates)
            self._pool.scores.clear()
            self._pool.scores[key] = known
        return known

    def _new_scores(self, candidates: Candidates) -> FloatArray:
        return filled_scores_among(self.ratings(candidates), self._outcomes(candidates))

    def _outcomes(self, candidates: Candidates) -> Iterator[Outcome]:
        """Evaluation matches among candidates, in any seats."""
        results = self._state.league.results
        rated = [(self._population, Entrant(entrant)) for entrant in candidates.entrants]
        for seats in self._own_seats():
            for i, first in enumerate(rated):
                for j, second in enumerate(rated):
                    counts = results.get((first, second, seats)) if i != j else None
                    if counts is not None:
                        yield i, j, counts.points, counts.matches

    def _own_seats(self) -> list[tuple[int, int]]:
        """Pairs of seats in which two of the population can be opponents, the lower seat first."""
        seats = self._state.setup.seats
        return [
            (first, second)
            for second in range(len(seats))
            for first in range(second)
            if seats[first].side != seats[second].side
            and seats[first].population == seats[second].population == self._population
        ]


def is_counting(codes: IntArray) -> bool:
    """Whether the codes are 0, 1, 2, ..., so that nothing has to be looked up by them."""
    return len(codes) == 0 or bool(codes[0] == 0 and (np.diff(codes) == 1).all())
