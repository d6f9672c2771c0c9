"""The ranks of a learner, seen from one that is not rank 0.

Tests: `tests/arena/learners/ranks/test_crew.py`.
"""

from __future__ import annotations

import torch

from arena.learners.ranks.link import Link
from arena.learners.ranks.results import RankResult
from arena.wire.messages import Train


class Member:
    """A further rank's side, an `arena.learners.ranks.crew.Ranks`; it counts progress, too.

    Args:
        link: Connection to rank 0.
    """

    def __init__(self, link: Link) -> None:
        self.rank = link.rank
        self.number = link.number
        self._link = link

    def begin(self, message: Train) -> None:
        """Do nothing: rank 0 has begun it."""

    def exchange(self, values: torch.Tensor) -> torch.Tensor:
        """Give the others numbers and get theirs; see `arena.normalization.Exchange`."""
        self.advance()
        return self._link.exchange(values)

    def results(self, own: RankResult) -> list[RankResult]:
        """Give rank 0 this rank's part of the result; return that alone."""
        self._link.send(0, own)
        return [own]

    def advance(self, agent_steps: int = 0) -> None:
        """Count one turn of the loop, for the heartbeats of rank 0."""
        self._link.count(agent_steps)
