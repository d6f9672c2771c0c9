"""Opponents of a trainee and its results against them since its weights were last replaced.

Kept beside the candidates, so that a decision looks at new matches alone. Those that no question is
about any more are dropped, so that a trainee of weeks has met no more than one of hours. Not
durable: it follows from the journal's rows, and a resumed controller makes it anew. Shapes: M met
entrants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import numpy as np
from msgspec import Struct, field

from arena.types import Digest, Entrant, is_trainee, policy_of_trainee
from populations.candidates import FloatArray, IntArray
from populations.league.payoff import MetOpponents, Payoff
from populations.records.rows import CheckpointRow

LATEST = np.iinfo(np.int64).max
"""Agent steps of a rival that learned beside the trainee: in all of its generation's matches it
was the latest.
"""

ROOMY = 1024
"""OpponentColumns entrants of which none are dropped."""


class OpponentColumns(Struct):
    """Columns of all whom a trainee has met, in order of first meeting.

    Attributes:
        line: Generations of the trainee that were looked at, oldest first.
        results: Wins and losses, draws half. float64 [2, M].
    """

    line: list[Entrant] = []
    results: FloatArray = field(default_factory=lambda: np.zeros((2, 0)))
    _places: dict[Entrant, int] = {}
    # Ghost code, policy code, generation, agent steps. int64 [4, capacity].
    _columns: IntArray = field(default_factory=lambda: np.zeros((4, 16), dtype=np.int64))
    _num_ghosts: int = 0
    _followed: MetOpponents = field(default_factory=MetOpponents)
    """Opponents of the last generation."""
    _current: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Their places here."""
    _former: FloatArray = field(default_factory=lambda: np.zeros((2, 0)))
    """Results of the generations before that."""
    _roomy: int = ROOMY
    """Size above which it is looked for those who matter no more."""

    @property
    def ghost_codes(self) -> IntArray:
        """Return codes of entrants among the ghosts, -1 for others. int64 [M]."""
        return self._columns[0, : len(self._places)]

    @property
    def policy_codes(self) -> IntArray:
        """Return codes of the policies whose checkpoints they are, -1 where unknown. int64 [M]."""
        return self._columns[1, : len(self._places)]

    @property
    def generations(self) -> IntArray:
        """Return generations of these checkpoints. int64 [M]."""
        return self._columns[2, : len(self._places)]

    @property
    def agent_steps(self) -> IntArray:
        """Return agent steps of these checkpoints; of those that learned, ``LATEST``. int64 [M]."""
        return self._columns[3, : len(self._places)]

    def follows(self, line: Sequence[Entrant]) -> bool:
        """Return whether these are the first generations of a line."""
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
        """Take in what has been played since the last time.

        Args:
            line: Generations of the trainee, oldest first.
            payoff: Results of training matches.
            ghosts: Codes of entrants of ghosts; they only grow.
            policies: Codes of policies.
            origins: Checkpoints by their weights.
            oldest: Agent steps from which on checkpoints that are no ghosts matter, by policy code;
                it never falls. int64 [policies].
        """
        for entrant in islice(reversed(ghosts), len(ghosts) - self._num_ghosts):
            # Weights that were met as a latest checkpoint may have become a ghost since.
            place = self._places.get(Entrant(entrant))
            if place is not None:
                self._columns[0, place] = ghosts[entrant]
        self._num_ghosts = len(ghosts)
        # The last generation that was looked at may have played on; later ones are new.
        for generation in line[max(len(self.line) - 1, 0) :]:
            if not self.line or generation != self.line[-1]:
                self.line.append(generation)
                self._followed = payoff.follow(generation)
                # All results so far are those of former generations now.
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
            # former * 2^(-later / half-life): results fade with later matches of the same two
            later = results[:, :num_former].sum(axis=0)
            results[:, :num_former] += self._former * 0.5 ** (later / payoff.half_life_matches)
            self.results = results
        if len(self._places) > self._roomy:
            self._drop(oldest())

    def _drop(self, oldest: IntArray) -> None:
        """Drop those who matter no more: checkpoints that are no ghosts and are too old."""
        policies = self.policy_codes
        # One entry more: the code -1 reads it. Bots and policies of other pools are no candidates.
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
        # The next pruning waits until the places have doubled, so that it costs little for each
        # opponent.
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
        # The capacity doubles, so that a column is copied about once on average.
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
        """Take in that ghosts have other codes.

        Args:
            codes: New code of each old one, -1 for ghosts that are gone; a -1 at the end. int64
                [ghosts + 1].
            num_ghosts: Number of codes of ghosts.
        """
        width = len(self._places)
        self._columns[0, :width] = codes[self._columns[0, :width]]
        self._num_ghosts = num_ghosts

    def among_ghosts(self) -> tuple[IntArray, FloatArray]:
        """Return codes of ghosts that were met, ascending [K], and the results [2, K]."""
        codes = self.ghost_codes
        places = np.flatnonzero(codes >= 0)
        places = places[np.argsort(codes[places])]
        return codes[places], self.results[:, places]
