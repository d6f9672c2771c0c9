"""Possible opponents, and results against a trainee's past opponents, as columns of arrays.

A trainee's results since its weights were last replaced are cached beside the candidates, so that a
decision processes only new matches. Opponents that no decision needs any more are dropped, so that
the number of columns does not grow with the length of a run.

The columns are not durable: a resumed controller computes them from the journal's rows. Shapes: M
past opponents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, repeat

import numpy as np
from msgspec import Struct, field

from arena.types import Digest, Entrant, PlayerId, PolicyId, is_trainee, policy_of_trainee
from populations.candidates import (
    BoolArray,
    Candidate,
    CandidateColumns,
    Candidates,
    FloatArray,
    IntArray,
)
from populations.league.payoff import MetOpponents, Payoff
from populations.records.rows import CheckpointRow, GhostRow, PolicyRow, RatingsRow
from populations.records.tables import Tables

ScoresKey = tuple[int, int, bytes]
"""Key of cached scores: sequences of the last evaluation and the last fit, codes of entrants."""


class Pool(Struct):
    """Candidates of one population.

    Attributes:
        ghosts: Ghosts in order of creation.
        policies: All policies, in their order in the tables.
        ghost_positions: Position of each ghost in ``ghosts``.
        policy_positions: Position of each policy in ``policies``.
        is_active: Which policies may be opponents. bool [policies].
        scores: Cached expected scores, with one entry, until there are new results or ratings.
        met: By trainee, its past opponents.
    """

    ghosts: CandidateColumns = field(default_factory=CandidateColumns)
    policies: CandidateColumns = field(default_factory=CandidateColumns)
    ghost_positions: dict[PlayerId, int] = {}
    policy_positions: dict[PolicyId, int] = {}
    is_active: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    scores: dict[ScoresKey, FloatArray] = {}
    met: dict[PolicyId, OpponentColumns] = {}
    _leaving: set[PlayerId] = set()
    _rated: RatingsRow | None = None
    _ratings: FloatArray = field(default_factory=lambda: np.zeros(0))
    _expected: FloatArray = field(default_factory=lambda: np.zeros(0))
    _parents: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def latest(self, *, without: PolicyId) -> Candidates:
        """Return the latest checkpoints of all active policies except one."""
        others = self.is_active
        position = self.policy_positions.get(without)
        if position is not None:
            # The pool's own column must not change, so it is copied.
            others = others.copy()
            others[position] = False
        return self.policies.candidates.take(np.flatnonzero(others))

    def named(self, players: Iterable[PlayerId]) -> tuple[Candidates, Candidates]:
        """Return the ghosts and the latest checkpoints among some players."""
        names = list(players)
        ghosts = [self.ghost_positions[name] for name in names if name in self.ghost_positions]
        policies = [
            position
            for name in names
            if (position := self.policy_positions.get(PolicyId(name))) is not None
        ]
        return (
            self.ghosts.candidates.take(np.array(ghosts, dtype=np.int64)),
            self.policies.candidates.take(np.array(policies, dtype=np.int64)),
        )

    def ghost_ratings(
        self, row: RatingsRow | None, *, origins: Mapping[Digest, CheckpointRow]
    ) -> tuple[FloatArray, FloatArray]:
        """Return rated and expected Elo of ghosts by entrant code. float64 [codes] each.

        An unrated ghost is expected to be as good as its nearest ancestor among rated ghosts, from
        whose rating a fit would start, too. NaN where there is none.

        Args:
            row: Row of the last fit.
            origins: Checkpoints by their weights.
        """
        codes = self.ghosts.codes.entrants
        # Rows are compared by identity, because each fit puts a new object.
        if self._rated is row and len(codes) == len(self._ratings):
            return self._ratings, self._expected
        self._rated, self._ratings = row, np.full(len(codes), np.nan)
        if row is not None:
            # The loop is over rated entrants, of which there are few, instead of over all ghosts.
            rated = np.fromiter(map(codes.get, row.entrants, repeat(-1)), dtype=np.int64)
            self._ratings[rated[rated >= 0]] = np.array(row.ratings)[rated >= 0]
        self._expected = inherited(self._ratings, self._found_parents(origins))
        return self._ratings, self._expected

    def _found_parents(self, origins: Mapping[Digest, CheckpointRow]) -> IntArray:
        """Return the code of each ghost's nearest ghost ancestor; -1: none. int64 [codes]."""
        codes = self.ghosts.codes.entrants
        # Parents of older ghosts never change, because a ghost's ancestors come before it. So only
        # those of new ghosts are searched.
        new = list(islice(reversed(codes), len(codes) - len(self._parents)))[::-1]
        found = []
        for entrant in new:
            origin = origins.get(Digest(entrant))
            # Walk up the line to the nearest weights that are of a ghost.
            while origin is not None and origin.parent is not None and origin.parent not in codes:
                origin = origins.get(origin.parent)
            parent = origin.parent if origin is not None else None
            found.append(codes[parent] if parent is not None else -1)
        self._parents = np.append(self._parents, found).astype(np.int64)
        return self._parents

    def set_policy(self, row: PolicyRow, checkpoint: CheckpointRow | None) -> None:
        """Add or update a policy; without a checkpoint it has a position but is not active."""
        candidate = Candidate(
            player=PlayerId(row.policy),
            policy=row.policy,
            role=row.role,
            entrant=Entrant("" if checkpoint is None else checkpoint.weights_digest),
            agent_steps=row.agent_steps,
        )
        position = self.policy_positions.setdefault(row.policy, len(self.policy_positions))
        # A new policy is appended; a known one keeps its position, which results refer to.
        if position == len(self.is_active):
            self.policies.append(candidate)
            self.is_active = np.append(self.is_active, False)
        else:
            self.policies.set(position, candidate)
        self.is_active[position] = row.state == "active" and checkpoint is not None

    def set_ghost(self, row: GhostRow) -> None:
        """Add or update a ghost."""
        candidate = Candidate(
            player=row.player,
            policy=row.policy,
            role=row.role,
            entrant=Entrant(row.weights_digest),
            agent_steps=row.agent_steps,
            quality=row.quality,
        )
        position = self.ghost_positions.get(row.player)
        if position is None:
            self.ghost_positions[row.player] = len(self.ghost_positions)
            self.ghosts.append(candidate)
        else:
            self.ghosts.set(position, candidate)

    def leave(self, player: PlayerId) -> None:
        """Mark a ghost for removal from the columns at the next `settle`."""
        if player in self.ghost_positions:
            self._leaving.add(player)

    def settle(self) -> None:
        """Remove the marked ghosts from all columns; the others keep their order."""
        if not self._leaving:
            return
        former = self.ghosts
        old_codes, self.ghosts = former.codes.entrants, CandidateColumns()
        self.ghost_positions = {}
        for candidate in (former.candidates[index] for index in range(len(former.candidates))):
            if candidate.player not in self._leaving:
                self.ghost_positions[candidate.player] = len(self.ghost_positions)
                self.ghosts.append(candidate)
        self._leaving.clear()
        codes = self.ghosts.codes.entrants
        # One more entry at the end keeps the code -1, of entrants that are no ghosts, at -1.
        renumbered = np.array([codes.get(entrant, -1) for entrant in old_codes] + [-1])
        for met in self.met.values():
            met.renumber(renumbered, num_ghosts=len(codes))
        # Scores, ratings and parents are by code, so they are computed anew.
        self.scores.clear()
        self._rated, self._ratings, self._expected = None, np.zeros(0), np.zeros(0)
        self._parents = np.zeros(0, dtype=np.int64)


def inherited(ratings: FloatArray, parents: IntArray) -> FloatArray:
    """Fill the ratings of unrated entrants with those of their nearest rated ancestors.

    Args:
        ratings: Ratings, NaN where unrated. float64 [N].
        parents: Position of each entrant's parent, -1: none; without cycles. int64 [N].

    Returns:
        Filled ratings, NaN where no ancestor is rated. float64 [N].
    """
    found = ratings.copy()
    nearest = np.where(np.isnan(ratings), parents, -1)
    while (is_open := nearest >= 0).any():
        found[is_open] = found[nearest[is_open]]
        # The length of steps doubles: an entrant whose ancestor is unrated continues at the
        # ancestor's ancestor. An index of -1 reads the last entry, which `np.where` discards.
        further = np.where(is_open, nearest[nearest], -1)
        nearest = np.where(np.isnan(found), further, -1)
    return found


class OpponentPools:
    """Candidates of all populations, updated with the tables. Owned by one thread."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._pools: dict[str, Pool] = {}

    def pool(self, population: str) -> Pool:
        """Return the candidates of a population."""
        # Pools are made at the first query, and again after a ghost was found corrupt.
        if not self._pools:
            for policy in self._tables.policies.values():
                self._place_policy(policy)
            for ghost in self._tables.ghosts.values():
                self._place_ghost(ghost)
        # A population that an external player plays for has no candidates, so its pool is empty.
        pool = self._pools.setdefault(population, Pool())
        pool.settle()
        return pool

    def forget_results(self) -> None:
        """Clear cached results, so that the next query of each policy reads them again."""
        for pool in self._pools.values():
            pool.met.clear()

    def apply(self, row: PolicyRow | GhostRow) -> None:
        """Update the pools by a row that was put into the tables."""
        if not self._pools:
            return
        if isinstance(row, PolicyRow):
            self._place_policy(row)
        elif row.corrupt:
            # Corrupt ghosts are rare, so all pools are simply made again without this one.
            self._pools = {}
        else:
            self._place_ghost(row)

    def _place_ghost(self, row: GhostRow) -> None:
        if row.is_present:
            self._pools[row.population].set_ghost(row)
        elif row.doomed:
            self._pools[row.population].leave(row.player)

    def _place_policy(self, row: PolicyRow) -> None:
        checkpoint = self._tables.checkpoints.get(row.checkpoint or "")
        self._pools.setdefault(row.population, Pool()).set_policy(row, checkpoint)


LATEST = np.iinfo(np.int64).max
"""Agent steps that stand for a rival that learned beside the trainee, whose weights were always the
latest."""

ROOMY = 1024
"""Number of past opponents up to which none are dropped from `OpponentColumns`."""


class OpponentColumns(Struct):
    """Columns of a trainee's past opponents, in order of their first match.

    Attributes:
        line: Generations of the trainee whose results are included, oldest first.
        results: Wins and losses, draws half. float64 [2, M].
    """

    line: list[Entrant] = []
    results: FloatArray = field(default_factory=lambda: np.zeros((2, 0)))
    _places: dict[Entrant, int] = {}
    # The rows are ghost code, policy code, generation, agent steps. int64 [4, capacity].
    _columns: IntArray = field(default_factory=lambda: np.zeros((4, 16), dtype=np.int64))
    _num_ghosts: int = 0
    _followed: MetOpponents = field(default_factory=MetOpponents)
    """Opponents of the last generation in ``line``."""
    _current: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Columns of the opponents in ``_followed``."""
    _former: FloatArray = field(default_factory=lambda: np.zeros((2, 0)))
    """Results of the generations before the last one. float64 [2, columns of that time]."""
    _roomy: int = ROOMY
    """Number of opponents above which those that are not needed are dropped."""

    @property
    def ghost_codes(self) -> IntArray:
        """Return each opponent's code among the ghosts; -1: it is no ghost. int64 [M]."""
        return self._columns[0, : len(self._places)]

    @property
    def policy_codes(self) -> IntArray:
        """Return the code of the policy that made each opponent; -1: unknown. int64 [M]."""
        return self._columns[1, : len(self._places)]

    @property
    def generations(self) -> IntArray:
        """Return the generation of each opponent's policy. int64 [M]."""
        return self._columns[2, : len(self._places)]

    @property
    def agent_steps(self) -> IntArray:
        """Return each opponent's agent steps; ``LATEST`` for rivals that learned. int64 [M]."""
        return self._columns[3, : len(self._places)]

    def follows(self, line: Sequence[Entrant]) -> bool:
        """Return whether the included generations are the first ones of a line."""
        return self.line == line[: len(self.line)]

    def update(
        self,
        line: Sequence[Entrant],
        payoff: Payoff,
        *,
        ghosts: dict[str, int],
        policies: dict[str, int],
        origins: Mapping[Digest, CheckpointRow],
        oldest: Callable[[], IntArray],
    ) -> None:
        """Add the results of matches since the last update.

        Args:
            line: Generations of the trainee, oldest first.
            payoff: Results of training matches.
            ghosts: Codes of entrants of ghosts; codes are only added.
            policies: Codes of policies.
            origins: Checkpoints by their weights.
            oldest: Function that returns, by policy code, the agent steps from which on checkpoints
                that are no ghosts are needed; these never fall. int64 [policies].
        """
        for entrant in islice(reversed(ghosts), len(ghosts) - self._num_ghosts):
            # Weights that were played as a latest checkpoint may have become a ghost since.
            place = self._places.get(Entrant(entrant))
            if place is not None:
                self._columns[0, place] = ghosts[entrant]
        self._num_ghosts = len(ghosts)
        # The last included generation may have played more since; later ones are new.
        for generation in line[max(len(self.line) - 1, 0) :]:
            if not self.line or generation != self.line[-1]:
                self.line.append(generation)
                self._followed = payoff.follow(generation)
                # A new generation begins, so all results so far are of former ones.
                self._former, self._current = self.results, np.zeros(0, dtype=np.int64)
            # Opponents are in the order of their first match, so new ones are at the end.
            new = self._followed.others[len(self._current) :]
            for other in new:
                if other not in self._places:
                    self._add(other, ghosts=ghosts, policies=policies, origins=origins)
            if new:
                places = [self._places[other] for other in new]
                self._current = np.append(self._current, places)
            results = np.zeros((2, len(self._places)))
            results[:, self._current] = self._followed.results
            num_former = self._former.shape[1]
            # former * 2^(-later / half-life): results fade with later matches of the same pair.
            later = results[:, :num_former].sum(axis=0)
            results[:, :num_former] += self._former * 0.5 ** (later / payoff.half_life_matches)
            self.results = results
        if len(self._places) > self._roomy:
            self._drop(oldest())

    def _drop(self, oldest: IntArray) -> None:
        """Drop opponents that are not needed: checkpoints that are no ghosts and are too old."""
        policies = self.policy_codes
        # One more entry is read by the code -1, of bots and policies of other pools, which are no
        # candidates.
        begin = np.append(oldest, LATEST)[policies]
        is_recent = (policies >= 0) & (self.agent_steps >= begin)
        stays = (self.ghost_codes >= 0) | is_recent
        places = np.flatnonzero(stays)
        renumbered = np.where(stays, np.cumsum(stays) - 1, -1)
        self._columns, self.results = self._columns[:, places], self.results[:, places]
        former = np.flatnonzero(stays[: self._former.shape[1]])
        self._former = self._former[:, former]
        names = list(self._places)
        self._places = {names[place]: new for new, place in enumerate(places.tolist())}
        current = renumbered[self._current]
        self._followed.keep(np.flatnonzero(current >= 0))
        self._current = current[current >= 0]
        # The next drop waits until the number of opponents has doubled, so that its cost per
        # opponent is small.
        self._roomy = max(2 * len(places), ROOMY)

    def _add(
        self,
        other: Entrant,
        *,
        ghosts: dict[str, int],
        policies: dict[str, int],
        origins: Mapping[Digest, CheckpointRow],
    ) -> None:
        place = self._places[other] = len(self._places)
        # The capacity doubles, so that on average each column is copied about once.
        if place == self._columns.shape[1]:
            more = np.zeros((4, max(place, 16)), dtype=np.int64)
            self._columns = np.concatenate([self._columns, more], axis=1)
        made, ghost = origins.get(Digest(other)), ghosts.get(other, -1)
        column = (ghost, -1, -1, -1)
        if made is not None:
            column = (ghost, policies.get(made.policy, -1), made.generation, made.agent_steps)
        elif is_trainee(other):
            policy, generation = policy_of_trainee(other)
            column = (ghost, policies.get(policy, -1), generation, LATEST)
        self._columns[:, place] = column

    def renumber(self, codes: IntArray, *, num_ghosts: int) -> None:
        """Replace the codes of ghosts after some were removed.

        Args:
            codes: New code by old code, -1 for removed ghosts; the last entry is -1. int64
                [ghosts + 1].
            num_ghosts: Number of new codes.
        """
        width = len(self._places)
        self._columns[0, :width] = codes[self._columns[0, :width]]
        self._num_ghosts = num_ghosts

    def among_ghosts(self) -> tuple[IntArray, FloatArray]:
        """Return the codes of past opponents among ghosts, ascending [K], and results [2, K]."""
        codes = self.ghost_codes
        places = np.flatnonzero(codes >= 0)
        places = places[np.argsort(codes[places])]
        return codes[places], self.results[:, places]
