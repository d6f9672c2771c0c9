"""Fictitious self-play: ghosts of all policies, all alike.

Source: Heinrich, Lanctot and Silver, "Fictitious self-play in extensive-form games" (ICML 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from populations.core import Candidate, OpponentRequest, Opponents
from populations.matchmaking.latest import combine, draw_num_latest


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformMatchmaker:
    """Every ghost is as likely as any other.

    Attributes:
        latest_ratio: Share of opponents that are the latest instead.
    """

    latest_ratio: float

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        """The latest and uniformly drawn ghosts."""
        num_latest = draw_num_latest(request, latest_ratio=self.latest_ratio, rng=rng)
        num_ghosts = request.num_opponents - num_latest
        ghosts = draw_uniformly(request.ghosts, num_draws=num_ghosts, rng=rng)
        return combine(request, num_latest=num_latest, ghosts=ghosts, rng=rng)


def draw_uniformly(
    candidates: Sequence[Candidate], *, num_draws: int, rng: np.random.Generator
) -> list[Candidate]:
    """Draw with replacement; nobody if ``num_draws`` is 0."""
    if num_draws == 0:
        return []
    return [candidates[int(index)] for index in rng.integers(len(candidates), size=num_draws)]
