"""Evaluation matches that the last fit of ratings does not cover: asked for, or played since.

Evaluations last, several may be open at once, and a fit takes seconds. Without counting what is
under way, each evaluation would ask the questions of the one before it again. What such matches
will tell is foreseen: the variance of a player that meets another is multiplied by
1 - v / (noise + v + w), with v and w their variances and ``noise`` that of the difference as so
many matches tell it.

Not durable: after a resume ratings are fitted first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np
from msgspec import Struct

from arena.types import AssignmentId, Digest, Seat
from arena.wire.messages import Evaluate
from populations.controller.indexes.player_strengths import PlayerStrength
from populations.league.scheduling import FloatArray, noise_of
from populations.ratings.results import Rated
from populations.records.rows import AssignmentRow, CheckpointRow
from populations.records.tables import Table

Estimate = Callable[[Rated], tuple[float, float]]
"""Rating and variance of an entrant after the last fit, in Elo and its square."""

MAX_ANCESTORS = 32
"""Checkpoints of a policy that are looked at for matches which its current weights profit from."""

MAX_LINES = 4096
"""Weights whose lines are remembered: walking up one takes longer than all else about it."""


class _Evaluation(Struct):
    """Pairs that meet in one evaluation.

    Attributes:
        pairs: Matches of each two players.
        num_matches: All matches, those of players against themselves included.
        sequence: Sequence of its last tally; infinity while it is open.
    """

    pairs: Mapping[tuple[Rated, Rated], int]
    num_matches: int
    sequence: float = math.inf


class PendingMatches(Struct, kw_only=True):
    """Variances that are left after matches which ratings do not cover. Owned by one thread.

    Attributes:
        seats: Seats of the environment.
        ranked: Populations whose policies are compared.
        checkpoints: All recorded checkpoints.
    """

    seats: tuple[Seat, ...]
    ranked: Collection[str]
    checkpoints: Table[str, CheckpointRow]
    _evaluations: dict[AssignmentId, _Evaluation] = {}
    _remaining: dict[str, dict[str, float]] = {}
    _lines: dict[str, tuple[Digest, ...]] = {}

    def apply(self, row: AssignmentRow, *, num_tallies: int, estimate: Estimate) -> None:
        """Take in an assignment that was put, once or more often; evaluations matter.

        Args:
            row: Assignment as it is now.
            num_tallies: Sequence of the last tally, the assignment's own included.
            estimate: Rating and variance of an entrant after the last fit.
        """
        message = row.message
        if not isinstance(message, Evaluate):
            return
        known = self._evaluations.get(row.assignment_id)
        if row.status == "queued" and known is None:
            evaluation = _Evaluation(
                pairs=self._pairs(message),
                num_matches=sum(pairing.num_matches for pairing in message.pairings),
            )
            # Evaluations are in the order of opening: each one is foreseen with what those before
            # it will tell.
            self._evaluations[row.assignment_id] = evaluation
            self._foresee(evaluation, estimate)
        elif row.status == "finished" and known is not None:
            # The row may be put again, when later tallies are in.
            known.sequence = min(known.sequence, num_tallies)
        elif row.status == "failed" and known is not None:
            # Later ones were foreseen with the matches of this one, so all are foreseen anew.
            del self._evaluations[row.assignment_id]
            self._foresee_all(estimate)

    def cover(self, num_tallies: int, *, estimate: Estimate) -> None:
        """Take in that ratings were fitted.

        Args:
            num_tallies: Sequence of the last tally that they cover.
            estimate: Rating and variance of an entrant after this fit.
        """
        self._evaluations = {
            key: evaluation
            for key, evaluation in self._evaluations.items()
            if evaluation.sequence > num_tallies
        }
        self._foresee_all(estimate)

    @property
    def open(self) -> dict[AssignmentId, int]:
        """Return matches of each evaluation that is open."""
        return {
            assignment_id: evaluation.num_matches
            for assignment_id, evaluation in self._evaluations.items()
            if evaluation.sequence == math.inf
        }

    @property
    def num_open(self) -> int:
        """Return matches of all evaluations that are open."""
        return sum(self.open.values())

    def open_matches(self) -> Counter[Rated]:
        """Return matches with another player that each player has in evaluations that are open."""
        asked: Counter[Rated] = Counter()
        for evaluation in self._evaluations.values():
            if evaluation.sequence == math.inf:
                for pair, num_matches in evaluation.pairs.items():
                    for rated in pair:
                        asked[rated] += num_matches
        return asked

    def share_of(self, rated: Rated) -> float:
        """Return share of an entrant's variance that is left, in (0, 1].

        Of the newest weights in its line that meet somebody: it may have trained on meanwhile.
        """
        population, entrant = rated
        shares = self._remaining.get(population)
        if not shares:
            return 1.0
        # Weights trained since have no entry of their own; their parents' matches tell about them,
        # too. This is asked for each player of each evaluation.
        line = self._lines.get(entrant) or self._line(Digest(entrant))
        if shares.keys().isdisjoint(line):
            return 1.0
        return next(shares[digest] for digest in line if digest in shares)

    def _line(self, digest: Digest) -> tuple[Digest, ...]:
        """Return some weights and those that they were trained from, nearest first."""
        origins = self.checkpoints.first("weights")
        line, made = [digest], origins.get(digest)
        while made is not None and made.parent is not None and len(line) <= MAX_ANCESTORS:
            line.append(made.parent)
            made = origins.get(made.parent)
        # A line that ends at an unknown origin is not kept, as its origin may still become known.
        if made is not None:
            if len(self._lines) >= MAX_LINES:
                self._lines.clear()
            self._lines[digest] = tuple(line)
        return tuple(line)

    def forget_lines(self) -> None:
        """Take in that checkpoints were removed: lines are others now, and reach further up."""
        self._lines.clear()

    def remaining(self, players: Iterable[PlayerStrength]) -> FloatArray:
        """Return the share that is left for each player. float64 [N]."""
        return np.array([self.share_of((known.population, known.entrant)) for known in players])

    def _pairs(self, message: Evaluate) -> Mapping[tuple[Rated, Rated], int]:
        """Return pairs of rated players that an evaluation seats, each with all its matches."""
        matches: Counter[tuple[Rated, Rated]] = Counter()
        for pairing in message.pairings:
            # A set, for a player may have several seats; sorted, so that a pair has one key.
            seated = sorted(
                {
                    (seat.population, player.entrant)
                    for seat, player in zip(self.seats, pairing.seating.players, strict=True)
                    if seat.population in self.ranked
                }
            )
            # A player against itself tells nothing of its strength.
            if len(seated) == 2:
                matches[seated[0], seated[1]] += pairing.num_matches
        return matches

    def _foresee_all(self, estimate: Estimate) -> None:
        self._remaining.clear()
        for evaluation in self._evaluations.values():
            self._foresee(evaluation, estimate)

    def _foresee(self, evaluation: _Evaluation, estimate: Estimate) -> None:
        # Most players meet several others, and a look along a line takes longer than all else.
        rated = {one for pair in evaluation.pairs for one in pair}
        known = {one: (*estimate(one), self.share_of(one)) for one in rated}
        for (one, other), num_matches in evaluation.pairs.items():
            rating, variance, share = known[one]
            other_rating, other_variance, other_share = known[other]
            # share <- share (1 - v / (noise + v + w)), with v and w as left by earlier matches
            left, other_left = variance * share, other_variance * other_share
            noise = noise_of(rating - other_rating, num_matches=num_matches)
            total = noise + left + other_left
            known[one] = rating, variance, share * (1.0 - left / total)
            known[other] = other_rating, other_variance, other_share * (1.0 - other_left / total)
        for (population, entrant), (_, _, share) in known.items():
            self._remaining.setdefault(population, {})[entrant] = share
