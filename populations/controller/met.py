"""Whom a trainee has met, and how that went, since its weights were last replaced.

Kept beside the candidates, so that a decision looks at new matches alone. Not durable: it follows
from the journal's rows, and a resumed controller makes it anew. Shapes: M met entrants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from arena.types import Digest, Entrant
from populations.league.payoff import Payoff
from populations.matchmaking.candidates import FloatArray, IntArray
from populations.types import CheckpointRow


@dataclass(slots=True)
class Met:
    """Columns of all whom a trainee has met, in order of first meeting.

    Attributes:
        line: Generations of the trainee that were looked at, oldest first.
        results: Wins and losses, draws half. float64 [2, M].
        ghost_codes: Of entrants among the ghosts, -1 for others.
        policy_codes: Of the policies whose checkpoints they are, -1 where unknown.
        generations: Of these checkpoints.
        agent_steps: Of these checkpoints.
    """

    line: list[Entrant] = field(default_factory=list)
    results: FloatArray = field(default_factory=lambda: np.zeros((2, 0)))
    ghost_codes: list[int] = field(default_factory=list)
    policy_codes: list[int] = field(default_factory=list)
    generations: list[int] = field(default_factory=list)
    agent_steps: list[int] = field(default_factory=list)
    _places: dict[Entrant, int] = field(default_factory=dict)
    _num_ghosts: int = 0
    _current: list[int] = field(default_factory=list)
    """Places of those whom the last generation has met."""
    _former: FloatArray = field(default_factory=lambda: np.zeros((2, 0)))
    """Results of the generations before that."""

    def follows(self, line: Sequence[Entrant]) -> bool:
        """Return whether these are the first generations of a line."""
        return self.line == line[: len(self.line)]

    def take(
        self,
        line: Sequence[Entrant],
        payoff: Payoff,
        *,
        ghosts: dict[str, int],
        policies: dict[str, int],
        origins: Mapping[Digest, CheckpointRow],
    ) -> None:
        """Take in what has been played since the last time.

        Results of former generations fade as those of one generation do: with the later matches of
        the same two.

        Args:
            line: Generations of the trainee, oldest first.
            payoff: Results of training matches.
            ghosts: Codes of entrants of ghosts; they only grow.
            policies: Codes of policies.
            origins: Checkpoints by their weights.
        """
        for entrant in islice(reversed(ghosts), len(ghosts) - self._num_ghosts):
            place = self._places.get(Entrant(entrant))
            if place is not None:
                self.ghost_codes[place] = ghosts[entrant]
        self._num_ghosts = len(ghosts)
        for generation in line[max(len(self.line) - 1, 0) :]:
            if not self.line or generation != self.line[-1]:
                self.line.append(generation)
                self._former, self._current = self.results, []
            found = list(payoff.met(generation))
            for other, _, _ in found[len(self._current) :]:
                if other not in self._places:
                    self._add(other, ghosts=ghosts, policies=policies, origins=origins)
                self._current.append(self._places[other])
            results = np.zeros((2, len(self._places)))
            results[:, self._current] = [[f[1] for f in found], [f[2] for f in found]]
            num_former = self._former.shape[1]
            later = results[:, :num_former].sum(axis=0)
            results[:, :num_former] += self._former * 0.5 ** (later / payoff.half_life_matches)
            self.results = results

    def _add(
        self,
        other: Entrant,
        *,
        ghosts: dict[str, int],
        policies: dict[str, int],
        origins: Mapping[Digest, CheckpointRow],
    ) -> None:
        origin = origins.get(Digest(other))
        self._places[other] = len(self._places)
        self.ghost_codes.append(ghosts.get(other, -1))
        self.policy_codes.append(policies.get(origin.policy, -1) if origin is not None else -1)
        self.generations.append(origin.generation if origin is not None else -1)
        self.agent_steps.append(origin.agent_steps if origin is not None else -1)

    def among_ghosts(self) -> tuple[IntArray, FloatArray]:
        """Return codes of ghosts that were met, ascending [K], and the results [2, K]."""
        codes = np.array(self.ghost_codes, dtype=np.int64)
        places = np.argsort(codes)[np.count_nonzero(codes < 0) :]
        return codes[places], self.results[:, places]
